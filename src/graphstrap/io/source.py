"""Source: where a graph comes from, in a form that a run folder can keep and load again; its folds, and new nodes."""

from __future__ import annotations

import glob
import os
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphstrap.errors import InputError, UnknownNodesError
from graphstrap.graph import Graph, Splits
from graphstrap.graph.blocks import dense
from graphstrap.graph.views import hash32
from graphstrap.io.arrays import Array
from graphstrap.io.columns import TableOptions, choose_edge_columns, open_tables
from graphstrap.io.database import Connection, connect, open_table
from graphstrap.io.datasets import load
from graphstrap.io.ids import NodeIds, load_ids
from graphstrap.io.parts import is_parts, open_part, read_parts_info
from graphstrap.io.prepare import Layout
from graphstrap.io.readers import find_reader
from graphstrap.io.tables import edges_of, read_layout, read_tables

FOLDED = ("val", "all")
_FOLD_SEED = 1_000_003


@dataclass(frozen=True)
class Fold:
    """The fold `number` (from 0) of `of`, cut from the nodes `part`."""

    number: int
    of: int
    part: str = "val"

    def __call__(self, graph: Graph) -> Graph:
        """The graph whose training nodes are all but the fold's, and whose validation nodes are the fold."""
        folds = fold_numbers(graph, self.of, part=self.part)
        held_out = folds == self.number
        train, _, test = _labelled_and_test(graph)
        masks = ((train | (folds >= 0)) & ~held_out, held_out, test)
        return replace(graph, splits=Splits(*(mask[:, None] for mask in masks)))

    @classmethod
    def from_dict(cls, saved: Any) -> Fold:
        kinds = {"number": int, "of": int, "part": str}
        if not isinstance(saved, dict) or {name: type(value) for name, value in saved.items()} != kinds:
            raise InputError("the run folder does not say which fold it leaves out: fit it again")
        fold = cls(**saved)
        if fold.part not in FOLDED or not 0 <= fold.number < fold.of:
            raise InputError(f"there is no fold {fold.number} of {fold.of} of {fold.part!r} nodes: fit it again")
        return fold


@dataclass(frozen=True)
class Source:
    """A dataset by name, `.npz` path or store, or a pair of tables; perhaps with a fold of its labels left out."""

    dataset: str | None = None
    edges: str | None = None
    nodes: str | None = None
    options: TableOptions = field(default_factory=TableOptions)
    fold: Fold | None = None
    run: str = field(default="", compare=False)  # the folder of the run that was trained on it

    def __post_init__(self) -> None:
        if (self.dataset is None) == (self.edges is None):
            raise InputError(
                "name one source: a dataset (see `graphstrap datasets`), an .npz file, a store, or --edges with --nodes"
            )
        if self.dataset is not None and self.nodes is not None:
            raise InputError("--nodes goes with --edges, not with a dataset")
        if self.dataset is not None and self.options != TableOptions():
            raise InputError("column options and --directed go with --edges, not with a dataset")

    def load(self) -> Graph:
        self._check_files()
        if self.dataset is None:
            graph = read_tables(str(self.edges), self.nodes, options=self.options)
        else:
            graph = load(self.dataset)
        return graph if self.fold is None else self.fold(graph)

    def load_for(self, worker: int, num_workers: int) -> Graph:
        """What a worker is to train on: the graph, or its own part where that is in parts."""
        path = self.dataset
        if path is None or not is_parts(path):
            return self.load()
        if self.fold is not None:
            raise InputError("a fold is of all labels, and no worker has all of a graph in parts: take the whole store")
        num_parts = read_parts_info(path).num_parts
        if num_parts != num_workers:
            raise InputError(
                f"{path} has {num_parts} parts, one for each worker, and there are {num_workers}: give --workers "
                f"{num_parts}, or partition it anew"
            )
        return open_part(path, worker)

    def load_new(
        self, edges: str, nodes: str | None, *, ignore_unknown_nodes: bool = False, ignore_columns: tuple[str, ...] = ()
    ) -> tuple[Graph, Array | None]:
        """A graph of new tables, and the numbers of the nodes to embed (None: all). Labels are not read.

        Where the new edges name nodes that only this source's graph has, the new nodes are put into that graph. A node
        table that has every node its edges name is a graph of its own.
        """
        named = [name for name in (self.options.label, self.options.split, "label", "split") if name is not None]
        options = replace(
            self.options,
            label=None,
            split=None,
            ignore_columns=ignore_columns,
            ignore_if_there=(*self.options.ignore_columns, *named),
            ignore_unknown_nodes=ignore_unknown_nodes or self.options.ignore_unknown_nodes,
        )
        if nodes is None:
            original, apart = self.load(), read_tables(edges, options=options)
            is_known = np.isin(apart.external_ids, original.external_ids)
            if is_known.all():
                raise InputError(f"{edges} names no node that the run's graph lacks: leave it out to embed that graph")
            if is_known.any():
                return read_extension(edges, None, original=original, options=options)
            check_weights(original.edge_weights is not None, edges, are_there=apart.edge_weights is not None)
            return apart, None
        try:
            apart = read_tables(edges, nodes, options=replace(options, ignore_unknown_nodes=False))
        except UnknownNodesError:
            original = self.load()
            if self.dataset is not None:  # whose tables' options are not known, but for this one
                options = replace(options, directed=not original.is_symmetric)
            return read_extension(edges, nodes, original=original, options=options)
        if self.edges is not None and apart.edge_weights is None:  # a dataset is not loaded for this alone
            check_weights(has_weight_column(self.edges, self.options), edges, are_there=False)
        return apart, None

    def _check_files(self) -> None:
        """The files that a run was trained on may have moved since."""
        for path in (self.dataset, self.edges, self.nodes) if self.run else ():
            is_there = path is None or os.path.exists(path) or glob.glob(path, recursive=True)
            if path is not None and os.path.isabs(path) and not is_there:
                more = "; `embed` also takes the tables with --edges and --nodes" if self.nodes else ""
                raise InputError(
                    f"{path} does not exist any more, and {self.run} was trained on it: put it back, or write its new "
                    f'path into {os.path.join(self.run, "run.json")}, under "source"{more}'
                )

    def to_dict(self) -> dict[str, Any]:
        """For JSON, with paths that hold from every folder."""
        fold = {} if self.fold is None else {"fold": asdict(self.fold)}
        if self.dataset is not None:
            is_path = find_reader(self.dataset) is not None
            return {"dataset": os.path.abspath(self.dataset) if is_path else self.dataset, **fold}
        nodes = None if self.nodes is None else os.path.abspath(self.nodes)
        return {"edges": os.path.abspath(str(self.edges)), "nodes": nodes, "options": asdict(self.options), **fold}

    @classmethod
    def from_dict(cls, saved: dict[str, Any], *, run: str | os.PathLike[str] = "") -> Source:
        dataset, edges, nodes = names = [saved.get(key) for key in ("dataset", "edges", "nodes")]
        try:
            if not any(names[:2]) or not all(isinstance(name, str | None) for name in names):
                raise TypeError("it names no dataset and no table")
            options: dict[str, Any] = {
                key: tuple(value) if isinstance(value, list) else value
                for key, value in saved.get("options", {}).items()
            }
            fold = Fold.from_dict(saved["fold"]) if "fold" in saved else None
            return cls(dataset, edges, nodes, TableOptions(**options), fold, os.fspath(run))
        except TypeError as error:
            raise InputError(
                "the run folder does not say where its graph came from: give --edges and --nodes"
            ) from error


# ---- folds: models that each leave another share of the labels out, so that together they have learned all -----------
#
#     fold i of K     held out of model i's training, and what it is validated on
#     model i         learns from the training labels and from all other folds
#
# Cut into folds are the validation nodes, as in the authors' released code for MAG240M (ten folds; validation papers
# are the nearest in time to the test papers), or `all`: training and validation nodes together, where there are no
# validation nodes or where that is asked for. Nodes in the order of a hash of their numbers are dealt out one by one:
# folds have nearly the same size, are the same for every seed, and do not depend on the labels. Test nodes are in none.


def make_folds(graph: Graph, number: int, *, part: str | None = None) -> list[Fold]:
    """So many folds; of validation nodes where the split has enough of them, unless `part` says otherwise."""
    if graph.labels is None or graph.labels.dim() != 1:
        raise InputError("folds are of nodes with labels: name the label column with --label-column")
    if part not in (None, *FOLDED):
        raise InputError(f"folds are cut from one of {', '.join(FOLDED)}, got {part!r}")
    _, val, _ = _labelled_and_test(graph)
    chosen = part or ("val" if int(val.sum()) >= number else "all")
    size = int((fold_numbers(graph, 1, part=chosen) == 0).sum())
    if not 2 <= number <= size:
        raise InputError(f"--folds must lie between 2 and the {size} labelled nodes that are cut ({chosen})")
    return [Fold(index, number, chosen) for index in range(number)]


def fold_numbers(graph: Graph, number: int, *, part: str) -> Tensor:
    """(N,) the fold of every node; -1 for those of none."""
    train, val, _ = _labelled_and_test(graph)
    assert graph.labels is not None
    nodes = (val if part == "val" else train | val).nonzero().squeeze(1).cpu().numpy()
    order = np.argsort(hash32(nodes, _FOLD_SEED), kind="stable")
    folds = torch.full((graph.num_nodes,), -1)
    folds[torch.from_numpy(nodes[order])] = torch.arange(len(nodes)) % number
    return folds.to(graph.labels.device)


def _labelled_and_test(graph: Graph) -> tuple[Tensor, Tensor, Tensor]:
    """(N,) each: labelled nodes for training and for validation, and test nodes, by the first split. Without a split
    all labels are for training."""
    assert graph.labels is not None
    has_label, nobody = graph.labels >= 0, torch.zeros_like(graph.labels, dtype=torch.bool)
    if graph.splits is None:
        return has_label, nobody, nobody
    splits = graph.splits
    return splits.train[:, 0] & has_label, splits.val[:, 0] & has_label, splits.test[:, 0]


# ---- new nodes for a graph that is known already: their tables are read on top of it ---------------------------------

_MOST_NAMES_SHOWN = 5


def read_extension(edges: str, nodes: str | None, *, original: Graph, options: TableOptions) -> tuple[Graph, Array]:
    """The original graph with new nodes and edges in it, and the numbers of the new nodes.

    New edges may join new nodes to each other and to the original's; they have weights where the original's have. A
    node that the original has already takes its new features.
    """
    if len(original.node_types) > 1:
        raise InputError(
            f"the run's graph has several node types ({', '.join(original.node_types)}), and new nodes can be put only "
            "into a graph of one: give the tables of the whole graph, with the old nodes and edges and the new ones"
        )
    with connect() as connection:
        edge_columns, node_columns = open_tables(connection, edges, nodes, options)
        load_ids(edge_columns, node_columns)
        given = NodeIds(connection)
        _append_ids(connection, original.external_ids)
        ids = NodeIds(connection).read()
        layout = read_layout(edge_columns, node_columns, given, options=options, can_name_ends=False)
        source, target, edge_fields = edges_of(layout, connection)
    check_weights(original.edge_weights is not None, edges, are_there="edge_weights" in edge_fields)
    if len(layout.node_types) > 1:
        raise InputError(f"{nodes} has several node types, but the run's graph has one")
    number_of_id = {str(id_): number for number, id_ in enumerate(ids)}
    numbers = np.array([number_of_id[str(id_)] for id_ in original.external_ids])  # (N,) where each old node is now
    new = Graph.from_edges(source, target, num_nodes=len(ids), directed=options.directed, **edge_fields)
    x = None
    if original.x is not None:
        x = torch.zeros(len(ids), original.x.shape[1])
        x[torch.from_numpy(numbers)] = dense(original.x).float()
        x[: given.count] = _features_as_in(original, layout)
    is_old = np.zeros(len(ids), dtype=bool)
    is_old[numbers] = True
    wanted = np.arange(given.count) if nodes is not None else np.flatnonzero(~is_old)
    graph = _joined(new, original, numbers=torch.from_numpy(numbers))
    return replace(graph, ids=ids, features=(x,), feature_names=original.feature_names), wanted


def has_weight_column(edges: str, options: TableOptions) -> bool:
    """Whether a table of edges has weights. One that is gone, or cannot be read any more, has none."""
    try:
        with connect() as connection:
            table = open_table(connection, edges, has_header=options.header)
            return choose_edge_columns(table, options).weight is not None
    except InputError:
        return False


def check_weights(are_wanted: bool, edges: str, *, are_there: bool) -> None:
    """Edges without weights are not like those that a model was trained on, where these had some."""
    if are_wanted and not are_there:
        raise InputError(
            f"the run was trained with edge weights, but {edges} has no column 'weight': add it, with a 1 "
            "where nothing is known"
        )


def _append_ids(connection: Connection, old_ids: Array) -> None:
    """Add the ids of the original graph that the new tables do not have, in their order."""
    (type_,) = connection.execute("SELECT typeof(id) FROM node_ids LIMIT 1").fetchall()[0]
    if type_ != "VARCHAR" and old_ids.dtype.kind == "U":
        raise InputError(f"the new tables' ids are {type_}, but those of the run's graph are text: cast them to text")
    connection.register("old_ids", {"id": old_ids.astype(object) if old_ids.dtype.kind == "U" else old_ids})
    connection.execute(
        f"INSERT INTO node_ids SELECT CAST(old_ids.id AS {type_}) FROM old_ids "
        f"WHERE CAST(old_ids.id AS {type_}) NOT IN (SELECT id FROM node_ids)"
    )


def _features_as_in(original: Graph, new: Layout) -> Tensor:
    """The features of the nodes table, in the columns that the original graph has."""
    x, names = new.raw_features[0], new.feature_names
    wanted, num_columns = original.feature_names, original.num_features[0]
    trained_on = f"the run was trained on {num_columns} feature columns"
    if x is None:
        raise InputError(f"{trained_on}: give those of the new nodes with --nodes")
    if wanted and names:
        missing = [repr(name) for name in wanted if name not in names]
        if missing:
            shown = ", ".join(missing[:_MOST_NAMES_SHOWN]) + (", ..." if len(missing) > _MOST_NAMES_SHOWN else "")
            raise InputError(
                f"{trained_on}, and the new nodes lack {len(missing)} of them ({shown}): give the same columns"
            )
        x = x[:, [names.index(name) for name in wanted]]
    elif x.shape[1] != num_columns:
        raise InputError(f"{trained_on}, but the new nodes have {x.shape[1]}: give the same columns")
    return torch.from_numpy(x)


def _joined(new: Graph, original: Graph, *, numbers: Tensor) -> Graph:
    """The original's edges as they are, and those of `new` that it does not have. Types and columns are kept where both
    have them; where only new edges have weights, those of the original are 1."""
    size, both, names = new.num_nodes, dict[str, tuple[Tensor, Tensor]](), dict[str, tuple[str, ...]]()
    both["source"] = numbers[original.indices.long()], new.indices.long()
    both["target"] = numbers[original.targets], new.targets
    old_keys, new_keys = (both["target"][i] * size + both["source"][i] for i in (0, 1))
    if original.edge_types is not None and new.edge_types is not None:
        type_names = tuple(dict.fromkeys([*original.edge_type_names, *new.edge_type_names]))
        places = torch.tensor([type_names.index(name) for name in new.edge_type_names], dtype=torch.int64)
        both["edge_types"] = old_types, new_types = original.edge_types.long(), places[new.edge_types.long()]
        old_keys, new_keys = old_keys * len(type_names) + old_types, new_keys * len(type_names) + new_types
        names["edge_type_names"] = type_names
    if new.edge_weights is not None:
        old_weights = torch.ones(original.num_edges) if original.edge_weights is None else original.edge_weights
        both["edge_weights"] = old_weights, new.edge_weights
    wanted = original.edge_column_names
    has_same_columns = bool(wanted) and set(wanted) <= set(new.edge_column_names)
    if original.edge_columns is not None and new.edge_columns is not None and has_same_columns:
        columns = [new.edge_column_names.index(name) for name in wanted]
        both["edge_columns"] = original.edge_columns, new.edge_columns[:, columns]
        names["edge_column_names"] = wanted
    is_new = ~torch.isin(new_keys, old_keys)
    joined: dict[str, Any] = {key: torch.cat([old, of_new[is_new]]) for key, (old, of_new) in both.items()}
    return Graph.from_edges(**joined, **names, num_nodes=size, directed=True, self_loops="keep", duplicates="keep")
