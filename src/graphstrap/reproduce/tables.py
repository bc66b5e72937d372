"""The tables that can be reproduced, and how each is put together from the ledger."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from graphstrap.errors import InputError
from graphstrap.reproduce.cells import protocols_of, summarize
from graphstrap.reproduce.ledger import Ledger
from graphstrap.reproduce.paper import Printed, printed, table_title
from graphstrap.reproduce.variants import VARIANTS, find_variant, settings_id

BIG = ("amazon-photo", "amazon-computers", "coauthor-cs", "coauthor-physics")
SMALL = ("cora", "citeseer", "pubmed", "dblp")


@dataclass(frozen=True)
class Table:
    """What a table shows. `num_seeds`: of the rows that the paper measured itself, and of the others."""

    name: str
    variants: tuple[str, ...]
    datasets: tuple[str, ...]
    num_seeds: tuple[int, int] = (20, 5)

    @property
    def title(self) -> str:
        return table_title(self.name)


@dataclass(frozen=True)
class Cell:
    """One cell: ours, the paper's, and how they compare."""

    variant: str
    dataset: str
    protocol: str
    mean: float | None
    std: float | None
    num_seeds: int
    note: str  # OOM, "not computed", "not at hand"
    paper: Printed | None
    p_value: float | None  # of Welch's test between ours and the paper's, where both have a spread

    @property
    def difference(self) -> float | None:
        if self.mean is None or self.paper is None or self.paper.mean is None:
            return None
        return self.mean - self.paper.mean

    @property
    def is_significant(self) -> bool:
        return self.p_value is not None and self.p_value < 0.01


TABLES = {
    table.name: table
    for table in (
        Table(
            "table-3",
            (
                "raw",
                "deepwalk",
                "deepwalk-features",
                "dgi",
                "gmi",
                "mvgrl",
                "random-init",
                "grace",
                "bgrl",
                "gca",
                "barlow-twins",
                "label-propagation",
                "supervised-mlp",
                "supervised-gcn",
            ),
            ("wikics", *BIG),
        ),
        Table(
            "table-4",
            (
                "bgrl",
                "bgrl-degree",
                "bgrl-pagerank",
                "bgrl-eigenvector",
                "gca-standard",
                "gca-degree",
                "gca-pagerank",
                "gca-eigenvector",
            ),
            BIG,
        ),
        Table(
            "table-5",
            (
                "supervised-mlp",
                "node2vec",
                "random-init",
                "dgi",
                "grace",
                "grace-2",
                "grace-8",
                "grace-32",
                "grace-2048",
                "bgrl",
                "supervised-gcn",
            ),
            ("ogbn-arxiv",),
        ),
        Table("small-datasets", ("raw", "random-init", "grace", "bgrl", "supervised-gcn"), SMALL),
    )
}


def find_table(name: str) -> Table:
    if name not in TABLES:
        raise InputError(f"there is no table {name!r}: take one of {', '.join(TABLES)}")
    return TABLES[name]


def chosen_variants(table: Table, names: Sequence[str] | None) -> list[str]:
    """The rows that were asked for, or the table's own."""
    for name in names or ():
        find_variant(name)
    return list(names or table.variants)


def seeds_for(table: Table, variant: str, asked: int | None, *, quick: bool) -> range:
    """How many seeds a row gets. What does not depend on a seed gets one."""
    if VARIANTS[variant].kind == "raw":
        return range(1)
    if asked is not None:
        return range(asked)
    if quick:
        return range(1)
    is_starred = any((cell := printed(table.name, variant, d)) is not None and cell.is_starred for d in table.datasets)
    return range(table.num_seeds[0] if is_starred else table.num_seeds[1])


def make_cells(
    table: Table, ledger: Ledger, *, variants: Sequence[str], datasets: Sequence[str], quick: bool
) -> Iterator[Cell]:
    """Every cell of a table, under every protocol, from what the ledger holds."""
    for variant in variants:
        for dataset in datasets:
            for protocol in protocols_of(dataset):
                yield make_cell(table, ledger, variant, dataset, protocol, quick=quick)


def make_cell(table: Table, ledger: Ledger, variant: str, dataset: str, protocol: str, *, quick: bool) -> Cell:
    wanted = settings_id(variant, dataset, quick=quick)
    rows = ledger.find(dataset=dataset, variant=variant, settings=wanted)
    paper = printed(table.name, variant, dataset)
    found = summarize(rows, protocol=protocol)
    if found is None:
        note = next((row["oom"] for row in rows if row.get("oom")), "")
        return Cell(variant, dataset, protocol, None, None, 0, note or "not computed", paper, None)
    mean, std, number = found
    return Cell(variant, dataset, protocol, mean, std, number, "", paper, _welch(mean, std, number, paper))


def _welch(mean: float, std: float, number: int, paper: Printed | None) -> float | None:
    """The paper's rows are over 20 runs."""
    if paper is None or paper.mean is None or not paper.std or number < 2 or std == 0:
        return None
    from scipy.stats import ttest_ind_from_stats

    return float(ttest_ind_from_stats(mean, std, number, paper.mean, paper.std, 20, equal_var=False).pvalue)
