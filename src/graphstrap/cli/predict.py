"""graphstrap predict: labels and probabilities for the nodes that have no label, by one model or several together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from graphstrap.api.ensemble import answer_together, member_folders
from graphstrap.api.estimator import BGRL
from graphstrap.cli import _options as o
from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.io.export import MAG240M_PAPERS, PARTS, check_table_path, read_papers, write_submission, write_table
from graphstrap.io.source import Source


def predict(
    folder: o.RunFolder,
    to: Annotated[Path, typer.Option(help="Where to write: .parquet or .csv; a folder for --submission.")],
    ensemble: Annotated[
        list[Path] | None, typer.Option(help="Another run that answers with it, by the mean of probabilities.")
    ] = None,
    submission: Annotated[
        str | None, typer.Option(help=f"Write OGB-LSC's file for MAG240M instead: {', '.join(PARTS)}.")
    ] = None,
    split_file: Annotated[
        Path | None, typer.Option(help="The split's papers in order: np.savez('split_dict.npz', **split).")
    ] = None,
    device: o.Device = "auto",
    quiet: o.Quiet = False,
) -> None:
    """Write, for every unlabelled node, its most probable label and the probability of each. A folder of seeds or folds
    answers together."""
    if split_file is not None and submission is None:
        raise InputError("--split-file says which papers --submission is of: give both")
    folders = member_folders([folder, *(ensemble or [])])
    if submission is not None:
        _submit(folders, to, part=submission, split_file=split_file, device=device, quiet=quiet)
        return
    check_table_path(to)
    members = _members(folders, device=device, quiet=quiet)
    first = next(members)
    predictions = answer_together(_chain(first, members))
    graph = first[1]
    names = predictions.class_names
    columns = {
        "id": graph.external_ids[predictions.nodes],
        "label": np.array(names)[predictions.labels],
        "probability": predictions.probabilities.max(1),
    }
    columns |= {f"p_{name}": predictions.probabilities[:, index] for index, name in enumerate(names)}
    write_table(to, columns)
    print(f"{to}: {len(predictions.nodes):,} nodes labelled{_by(folders)}")


def _submit(folders: Sequence[Path], to: Path, *, part: str, split_file: Path | None, device: str, quiet: bool) -> None:
    """OGB-LSC's file for the test papers of a part."""
    members = _members(folders, device=device, quiet=quiet)
    first = next(members)
    nodes = _papers(first[1], part, split_file)
    is_mag240m = _num_papers(first[1]) == MAG240M_PAPERS
    if not is_mag240m:
        o.note("note: this graph is not MAG240M itself: its answers are in OGB-LSC's layout, but not for its judge")
    predictions = answer_together(_chain(first, members), nodes=nodes)
    path = write_submission(to, predictions.labels, part=part, num_papers=None if is_mag240m else len(nodes))
    print(f"{path}: {len(nodes):,} papers answered{_by(folders)}")


def _papers(graph: Graph, part: str, split_file: Path | None) -> Any:
    """The papers of a part, in their order."""
    if split_file is not None:
        return read_papers(split_file, part=part, below=_num_papers(graph))
    test = np.array([], dtype=np.int64)
    if part == "test-whole" and graph.splits is not None:
        test = graph.splits.test[:, 0].nonzero().squeeze(1).cpu().numpy()
    if len(test) == 0:
        raise InputError(f"the graph does not say which papers are {part}: give --split-file split_dict.npz")
    return test


def _num_papers(graph: Graph) -> int:
    return graph.type_offsets[1]


def _members(folders: Sequence[Path], *, device: str, quiet: bool) -> Iterator[tuple[BGRL, Graph]]:
    """The runs' models and graphs, one at a time; a graph that several have in common is loaded once."""
    loaded: dict[Source, Graph] = {}
    for one in folders:
        yield o.open_run(one, device=device, quiet=quiet, loaded=loaded)


def _chain(first: tuple[BGRL, Graph], rest: Iterator[tuple[BGRL, Graph]]) -> Iterator[tuple[BGRL, Graph]]:
    yield first
    yield from rest


def _by(folders: Sequence[Path]) -> str:
    return "" if len(folders) == 1 else f" by {len(folders)} models"
