"""graphstrap predict: labels and probabilities for the nodes that have no label."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from graphstrap.cli import _options as o
from graphstrap.io.export import check_table_path, write_table


def predict(
    folder: o.RunFolder,
    to: Annotated[Path, typer.Option(help="Where to write: .parquet or .csv.")],
    device: o.Device = "auto",
    quiet: o.Quiet = False,
) -> None:
    """Write, for every unlabelled node, its most probable label and the probability of each."""
    check_table_path(to)
    model, graph = o.open_run(folder, device=device, quiet=quiet)
    predictions = model.predict(graph)
    names = graph.class_names or tuple(str(c) for c in range(graph.num_classes))
    columns = {
        "id": graph.external_ids[predictions.nodes],
        "label": np.array(names)[predictions.labels],
        "probability": predictions.probabilities.max(1),
    }
    columns |= {f"p_{name}": predictions.probabilities[:, index] for index, name in enumerate(names)}
    write_table(to, columns)
    print(f"{to}: {len(predictions.nodes):,} nodes labelled")
