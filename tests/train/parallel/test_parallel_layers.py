"""Layer-wise embedding by several workers: the bits of one, cut or not, with any number of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_communities
from in_processes import in_processes

from graphstrap.api.layerwise import embed_layers
from graphstrap.api.shards import write_shards
from graphstrap.io.export import ids_path
from graphstrap.nn.encoders.gcn import GCN
from graphstrap.nn.model import Model
from graphstrap.run.recipe import Recipe
from graphstrap.train.parallel.workers import ALONE, Workers

pytestmark = pytest.mark.distributed


def make_encoder() -> GCN:
    return GCN([30], [16, 12, 8], generator=torch.Generator().manual_seed(0))


def embed_some(workers: Workers, folder: Path, most: int) -> dict[str, Any]:
    """Embed in blocks of 7 rows; a worker is cut when it is to compute its block number `most`. How many it made."""
    graph, made = make_communities(num_nodes=120, num_classes=3, seed=0), 0
    encoder = make_encoder()

    def count(module: torch.nn.Module, inputs: Any, output: Any) -> None:
        nonlocal made
        made += 1
        if made == most:
            raise KeyError("power cut")

    for layer in encoder.layers:
        layer.register_forward_hook(count)
    try:
        h = embed_layers(encoder, graph, folder=folder, rows_per_block=7, workers=workers)
    except (KeyError, RuntimeError):  # the other worker is left waiting
        assert most
        return {}
    return {"h": torch.from_numpy(np.array(h)), "made": made}


def test_two_workers_give_the_bits_of_one_each_making_half(tmp_path: Path) -> None:
    alone = embed_some(ALONE, tmp_path / "alone", 0)
    full = embed_layers(make_encoder(), make_communities(num_nodes=120, num_classes=3, seed=0), rows_per_block=7)
    first, second = in_processes(embed_some, tmp_path / "both", 0, folder=tmp_path)
    assert alone["made"] == 3 * 18
    assert first["made"] == second["made"] == 3 * 9
    for h in (first["h"], second["h"], torch.from_numpy(full)):
        assert torch.equal(h, alone["h"])


def test_what_two_workers_began_one_ends(tmp_path: Path) -> None:
    alone = embed_some(ALONE, tmp_path / "alone", 0)
    in_processes(embed_some, tmp_path / "cut", 14, folder=tmp_path)  # in the second layer
    resumed = embed_some(ALONE, tmp_path / "cut", 0)
    assert torch.equal(resumed["h"], alone["h"])
    assert 18 <= resumed["made"] <= 2 * 18 - 4


def write(workers: Workers, folder: Path) -> dict[str, Any]:
    graph = make_communities(num_nodes=120, num_classes=3, seed=0)
    recipe = Recipe().with_settings({"encoder.hidden_sizes": [16], "encoder.embedding_size": 8})
    model = Model.build(graph, recipe, seed=0)
    options: dict[str, Any] = {"device": torch.device("cpu"), "rows_per_shard": 50, "ending": "npy", "how": "layers"}
    return {"width": write_shards(model, graph, folder, **options, workers=workers)}


def test_files_are_shared_too(tmp_path: Path) -> None:
    write(ALONE, tmp_path / "one")
    in_processes(write, tmp_path / "two", folder=tmp_path)
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert len(names) == 7
    assert sorted(path.name for path in (tmp_path / "two").iterdir()) == names
    for number in range(3):
        ours, theirs = (tmp_path / folder / f"part-{number:05}.npy" for folder in ("one", "two"))
        assert ours.read_bytes() == theirs.read_bytes()
        assert ids_path(ours).read_bytes() == ids_path(theirs).read_bytes()
