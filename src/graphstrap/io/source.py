"""Source: where a graph comes from, in a form that a run folder can keep and load again."""

from __future__ import annotations

import glob
import os
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from graphstrap.errors import InputError, UnknownNodesError
from graphstrap.graph import Graph
from graphstrap.io.arrays import Array
from graphstrap.io.columns import TableOptions
from graphstrap.io.datasets import load
from graphstrap.io.folds import Fold
from graphstrap.io.new_nodes import check_weights, has_weight_column, read_extension
from graphstrap.io.readers import find_reader
from graphstrap.io.tables import read_tables


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
        if self.edges is not None:
            graph = read_tables(self.edges, self.nodes, options=self.options)
        else:
            assert self.dataset is not None
            graph = load(self.dataset)
        return graph if self.fold is None else self.fold(graph)

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
            if np.isin(apart.external_ids, original.external_ids).any():
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
