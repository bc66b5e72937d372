"""The tables and figures that can be reproduced, and how accuracies are put together from the ledger."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from graphstrap.errors import InputError
from graphstrap.io.datasets import DATASETS, Published, find_name
from graphstrap_lab.reproduce.cells import ON_VALIDATION, protocols_of, summarize
from graphstrap_lab.reproduce.curves import has_curve
from graphstrap_lab.reproduce.ledger import Ledger, Row, of_one_graph
from graphstrap_lab.reproduce.paper import Printed, has_printed, printed, table_title
from graphstrap_lab.reproduce.variants import VARIANTS, find_variant, name_in_ledger, settings_id, why_not

BIG = ("amazon-photo", "amazon-computers", "coauthor-cs", "coauthor-physics")
SMALL = ("cora", "citeseer", "pubmed", "dblp")
OFTEN = ("random-init", "grace", "bgrl")  # rows of so many seeds as those that the authors measured themselves
TWITCH = tuple(f"twitch-{country}" for country in ("de", "engb", "es", "fr", "ptbr", "ru"))
SELDOM_AT_HAND = ("wikics", "ogbn-arxiv", "ppi")  # an empty column of these says so, and how to get them


@dataclass(frozen=True)
class Table:
    """What a table shows.

    Args:
        num_seeds: of the rows that the paper measured itself, and of the others.
        kind: "accuracy", "memory" (table 1), "curves" (the course of training), "learning" (of the
            probe meanwhile), "entropy" (of attention) or "mag" (MAG240M's figures).
        quick_datasets: the graphs of `--quick`, where the table's own take too long for that.
    """

    name: str
    variants: tuple[str, ...]
    datasets: tuple[str, ...]
    num_seeds: tuple[int, int] = (20, 5)
    kind: str = "accuracy"
    quick_datasets: tuple[str, ...] = ()

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
    note: str  # OOM, "not computed", "no data here", ...
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


def _mag(name: str, *variants: str, num_seeds: int = 5) -> Table:
    """A figure of MAG240M: on the graph itself, if it is at hand, and on a synthetic one in its shape."""
    datasets, quick = ("mag240m", "mag-like-0.01"), ("mag-like-0.0005",)
    return Table(name, variants, datasets, (num_seeds, num_seeds), kind="mag", quick_datasets=quick)


TABLES = {
    table.name: table
    for table in (
        Table("table-1", ("grace", "bgrl"), ("amazon-photo", "wikics", *BIG[1:]), kind="memory"),
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
                "bgrl-best",
                "gca-pagerank",
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
        Table(
            "table-6",
            (
                "raw",
                "dgi",
                "gmi",
                "random-init",
                "grace",
                "bgrl",
                "grace-gat",
                "bgrl-gat",
                "supervised-mean",
                "supervised-gat",
            ),
            ("ppi",),
        ),
        Table("small-datasets", ("raw", "random-init", "grace", "bgrl", "supervised-gcn"), SMALL),
        Table("projector", ("bgrl", "bgrl-projector"), (*BIG, *SMALL)),
        Table("training-curves", ("bgrl",), (*BIG, *SMALL), num_seeds=(3, 3), kind="curves"),
        Table(
            "learning-curves",
            ("bgrl", "grace", "bgrl-gat", "grace-gat", "grace-2-gat"),
            ("ppi",),
            kind="learning",
            quick_datasets=("ppi", "cora"),
        ),
        Table(
            "attention-entropy",
            ("bgrl-gat", "grace-gat", "grace-2-gat"),
            ("ppi", "cora", *TWITCH),
            num_seeds=(3, 3),
            kind="entropy",
            quick_datasets=("ppi", "cora", "twitch-ptbr"),
        ),
        _mag("mag-auxiliary", "mag-supervised", "mag-grace-256", "mag-bgrl-0"),
        _mag("mag-unlabelled", "mag-bgrl-0", "mag-bgrl-1", "mag-bgrl-10"),
        _mag("mag-projector", "mag-bgrl-0", "mag-bgrl-0-projector"),
        _mag("mag-gcn", "mag-gcn-supervised", "mag-gcn-grace-256", "mag-gcn-bgrl-0", num_seeds=3),
        _mag("mag-frozen", "mag-frozen-bgrl", "mag-frozen-grace", "mag-label-propagation"),
    )
}
ALIASES = {
    "memory": "table-1",
    "figure-11": "table-1",
    "ogbn-arxiv": "table-5",
    "ppi": "table-6",
    "table-7": "small-datasets",
    "figure-2": "learning-curves",
    "figure-3": "attention-entropy",
    "figure-4": "mag-auxiliary",
    "figure-5": "mag-unlabelled",
    "figure-6": "training-curves",
    "figure-7": "training-curves",
    "figure-8": "training-curves",
    "figure-9": "projector",
    "figure-10": "mag-gcn",
    "figure-12": "mag-frozen",
}


def find_tables(name: str) -> list[Table]:
    """A table by its name or another one for it; all of them for `all`."""
    return list(TABLES.values()) if name == "all" else [find_table(name)]


def find_table(name: str) -> Table:
    known = ALIASES.get(name, name)
    if known not in TABLES:
        raise InputError(f"there is no table {name!r}: take all, or one of {', '.join([*TABLES, *ALIASES])}")
    return TABLES[known]


def how_to_get(dataset: str) -> str:
    """What to do about a published graph that is not at hand."""
    source = DATASETS[dataset]
    assert isinstance(source, Published)
    raw = f", or its published files into {source.stem}/ there" if source.raw_file else ""
    return (
        f"{dataset} ({source.origin}) was not at hand, so its cells are empty: put {source.stem}.npz into the folder "
        f"$GRAPHSTRAP_DATA{raw}, or connect to the network, which downloads it on first use."
    )


def chosen_variants(table: Table, names: Sequence[str] | None, *, exactly: bool = True) -> list[str]:
    """The rows that were asked for, or the table's own; unless `exactly`, those asked for that the table has."""
    for name in names or ():
        find_variant(name)
        if exactly and not _has_room(table, name):
            fitting = [other for other in VARIANTS if _has_room(table, other)]
            raise InputError(f"{table.name} has no room for the method {name!r}: take some of {', '.join(fitting)}")
    return [name for name in dict.fromkeys(names or table.variants) if exactly or name in table.variants]


def _has_room(table: Table, variant: str) -> bool:
    """Whether a method can stand in a table of this kind."""
    if table.kind == "memory":
        return variant in table.variants
    if table.kind == "curves":
        return has_curve(variant)
    if table.kind == "entropy":
        return VARIANTS[variant].encoder == "gat"
    if table.kind == "learning" and VARIANTS[variant].kind != "trained":
        return False
    return variant.startswith("mag-") == (table.kind == "mag")


def chosen_datasets(
    table: Table, names: Sequence[str] | None, *, exactly: bool = True, quick: bool = False
) -> list[str]:
    """The graphs that were asked for, or the table's own; unless `exactly`, those asked for that the table has."""
    usual = (table.quick_datasets if quick else ()) or table.datasets
    known = [name if name in (*table.datasets, *usual) else find_name(name) for name in names or usual]
    return [name for name in dict.fromkeys(known) if exactly or name in usual]


def seeds_for(table: Table, variant: str, asked: int | None, *, quick: bool) -> range:
    """How many seeds a row gets. What does not depend on a seed gets one."""
    if VARIANTS[variant].kind in ("raw", "printed"):
        return range(1)
    if asked is not None:
        return range(asked)
    if quick:
        return range(1)
    is_starred = any((cell := printed(table.name, variant, d)) is not None and cell.is_starred for d in table.datasets)
    return range(table.num_seeds[0] if is_starred or variant in OFTEN else table.num_seeds[1])


def make_cells(
    table: Table,
    ledger: Ledger,
    *,
    variants: Sequence[str],
    datasets: Sequence[str],
    quick: bool,
    memory_limit: int | None = None,
) -> Iterator[Cell]:
    """Every cell of a table, under every protocol, from what the ledger holds."""
    for variant in variants:
        for dataset in datasets:
            tested = protocols_of(dataset)
            validated = [one + ON_VALIDATION for one in tested] if has_printed(f"{table.name}-validation") else []
            for protocol in (*tested, *validated):
                yield make_cell(table, ledger, variant, dataset, protocol, quick=quick, memory_limit=memory_limit)


def make_cell(
    table: Table,
    ledger: Ledger,
    variant: str,
    dataset: str,
    protocol: str,
    *,
    quick: bool,
    memory_limit: int | None = None,
) -> Cell:
    is_validated = protocol.endswith(ON_VALIDATION)
    paper = printed(f"{table.name}-validation" if is_validated else table.name, variant, dataset)
    if why_not(variant, dataset):
        return Cell(variant, dataset, protocol, None, None, 0, why_not(variant, dataset), paper, None)
    rows = find_rows(ledger, variant, dataset, quick=quick, memory_limit=memory_limit)
    found = summarize(rows, protocol=protocol)
    if found is None:
        usual = "no data here" if dataset in SELDOM_AT_HAND and not ledger.find(dataset=dataset) else "not computed"
        note = next((row["oom"] for row in rows if row.get("oom")), usual)
        return Cell(variant, dataset, protocol, None, None, 0, note, paper, None)
    mean, std, number = found
    return Cell(variant, dataset, protocol, mean, std, number, "", paper, _welch(mean, std, number, paper))


def find_rows(ledger: Ledger, variant: str, dataset: str, *, quick: bool, memory_limit: int | None = None) -> list[Row]:
    """The seeds of a row on a graph, as its settings are now; under a memory limit that it did not fit, those that say
    so."""
    if why_not(variant, dataset):
        return []
    settings = settings_id(variant, dataset, quick=quick)
    rows = of_one_graph(ledger.find(dataset=dataset, variant=name_in_ledger(variant), settings=settings))
    refused = [row for row in rows if row.get("oom")]
    refused_here = [row for row in refused if row.get("memory_limit") == memory_limit]
    computed = [row for row in rows if not row.get("oom")]
    if memory_limit is not None and refused_here:
        return refused_here
    return computed or refused_here or refused


def _welch(mean: float, std: float, number: int, paper: Printed | None) -> float | None:
    """Two-sided, from means, deviations and numbers of runs; the paper's rows are over 20 runs."""
    if paper is None or paper.mean is None or not paper.std or number < 2 or std == 0:
        return None
    from scipy.stats import ttest_ind_from_stats

    return float(ttest_ind_from_stats(mean, std, number, paper.mean, paper.std, 20, equal_var=False).pvalue)
