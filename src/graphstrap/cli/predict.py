"""graphstrap predict: labels and probabilities for the nodes that have no label, by one model or several together."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from graphstrap.cli import _options as o
from graphstrap.errors import InputError

if TYPE_CHECKING:
    from graphstrap.graph import Graph
    from graphstrap.io.source import Source


def predict(
    folder: o.RunFolder,
    to: Annotated[Path, Option(help="Where to write: .parquet or .csv; a folder for --submission.")],
    ensemble: Annotated[
        list[Path] | None, Option(help="Another run that answers with it, by the mean of probabilities.")
    ] = None,
    submission: Annotated[
        str | None, Option(help="Write OGB-LSC's file for MAG240M instead: test-whole, test-dev, test-challenge.")
    ] = None,
    split_file: Annotated[
        Path | None, Option(help="The split's papers in order: np.savez('split_dict.npz', **split).")
    ] = None,
    device: o.Device = "auto",
    quiet: o.Quiet = False,
) -> None:
    """Write, for every unlabelled node, its most probable label and the probability of each. A folder of seeds or folds
    answers together."""
    import numpy as np

    from graphstrap.api.ensemble import answer_together, member_folders
    from graphstrap.io.export import MAG240M_PAPERS, check_table_path, write_submission, write_table

    if split_file is not None and submission is None:
        raise InputError("--split-file says which papers --submission is of: give both")
    folders = member_folders([folder, *(ensemble or [])])
    if submission is None:
        check_table_path(to)
    loaded: dict[Source, Graph] = {}  # one graph for all runs that have it in common
    members = (o.open_run(one, device=device, quiet=quiet, loaded=loaded) for one in folders)
    first = next(members)
    graph, all_members = first[1], chain([first], members)
    by = "" if len(folders) == 1 else f" by {len(folders)} models"
    if submission is not None:
        papers = _papers(graph, submission, split_file)
        num_papers = None if graph.type_offsets[1] == MAG240M_PAPERS else len(papers)
        if num_papers is not None:
            o.note("note: this graph is not MAG240M itself: its answers are in OGB-LSC's layout, but not for its judge")
        labels = answer_together(all_members, nodes=papers).labels
        path = write_submission(to, labels, part=submission, num_papers=num_papers)
        print(f"{path}: {len(papers):,} papers answered{by}")
        return
    found = answer_together(all_members)
    columns = {
        "id": graph.external_ids[found.nodes],
        "label": np.array(found.class_names)[found.labels],
        "probability": found.probabilities.max(1),
    }
    columns |= {f"p_{name}": found.probabilities[:, index] for index, name in enumerate(found.class_names)}
    write_table(to, columns)
    print(f"{to}: {len(found.nodes):,} nodes labelled{by}")


def _papers(graph: Graph, submission: str, split_file: Path | None) -> Any:
    """The papers that a submission answers, in their order."""
    from graphstrap.io.export import read_papers

    if split_file is not None:
        return read_papers(split_file, part=submission, below=graph.type_offsets[1])
    if submission == "test-whole" and graph.splits is not None:
        papers = graph.splits.test[:, 0].nonzero().squeeze(1).cpu().numpy()
        if len(papers):
            return papers
    raise InputError(f"the graph does not say which papers are {submission}: give --split-file split_dict.npz")
