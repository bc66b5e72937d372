"""The run folder: whole or not at all; every damaged file gives one sentence."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.nn.methods import build_method
from graphstrap.ops.adamw import AdamW
from graphstrap.run.folder import FORMAT_VERSION, Run, load_tensors, save_tensors
from graphstrap.run.recipe import Recipe

RECIPE = Recipe().with_settings({"encoder.hidden_sizes": [8], "encoder.embedding_size": 4})


def make_run(folder: Path, graph: Graph) -> Run:
    return Run.create(folder, recipe=RECIPE, source={"dataset": "x"}, seed=3, device="cpu", graph=graph)


def method_and_optimizer(graph: Graph) -> tuple[torch.nn.Module, AdamW]:
    method = build_method(RECIPE, input_sizes=graph.num_features, seed=0)
    learned = [p for p in method.parameters() if p.requires_grad]
    optimizer = AdamW(learned)
    for parameter in learned:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    return method, optimizer


def test_a_run_opens_as_it_was_made(communities: Graph, tmp_path: Path) -> None:
    make_run(tmp_path / "deep" / "run", communities)
    run = Run.open(tmp_path / "deep" / "run")
    assert run.recipe == RECIPE
    assert run.info["seed"] == 3
    assert run.info["graph"]["fingerprint"] == communities.fingerprint
    assert not run.is_finished
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["run"]  # no temporary folder is left


def test_an_existing_folder_is_refused(communities: Graph, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"exists.*resume"):
        make_run(tmp_path, communities)


def test_checkpoint_restores_everything(communities: Graph, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", communities)
    method, optimizer = method_and_optimizer(communities)
    run.checkpoint(method, optimizer, 17)
    other, other_optimizer = method_and_optimizer(communities)
    with torch.no_grad():
        next(iter(other.parameters())).zero_()
    assert run.restore(other, other_optimizer) == 17
    assert all(
        torch.equal(a, b) for a, b in zip(method.state_dict().values(), other.state_dict().values(), strict=True)
    )
    for state, restored in zip(optimizer.state.values(), other_optimizer.state.values(), strict=True):
        assert all(torch.equal(torch.as_tensor(state[k]), torch.as_tensor(restored[k])) for k in state)


def test_metrics_survive_a_half_written_line(communities: Graph, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", communities)
    run.log({"step": 1, "loss": 0.5})
    with (run.folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 2, "lo')
    assert run.metrics() == [{"step": 1, "loss": 0.5}]


@pytest.mark.parametrize("damage", ["truncated", "flipped", "foreign", "garbage", "empty", "other model"])
def test_a_damaged_checkpoint_gives_one_sentence(communities: Graph, tmp_path: Path, damage: str) -> None:
    run = make_run(tmp_path / "run", communities)
    method, optimizer = method_and_optimizer(communities)
    run.checkpoint(method, optimizer, 17)
    path = run.checkpoint_path
    data = bytearray(path.read_bytes())
    if damage == "truncated":
        path.write_bytes(data[: len(data) // 2])
    elif damage == "flipped":
        data[-100] ^= 1
        path.write_bytes(data)
    elif damage == "foreign":
        save_file({"weight": torch.ones(3)}, path)
    elif damage == "garbage":
        path.write_bytes(b"\xff" * 1000)
    elif damage == "empty":
        path.write_bytes(b"")
    else:
        save_tensors(path, {"module.online.weight": torch.ones(2)}, kind="checkpoint", info={"step": 1})
    with pytest.raises(InputError) as caught:
        run.restore(*method_and_optimizer(communities))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [("{", "damaged"), ("[]", "not one that Graphstrap wrote"), (json.dumps({"format": 99}), "newer Graphstrap")],
)
def test_a_damaged_or_newer_run_folder_gives_one_sentence(
    communities: Graph, tmp_path: Path, content: str, words: str
) -> None:
    run = make_run(tmp_path / "run", communities)
    (run.folder / "run.json").write_text(content)
    with pytest.raises(InputError, match=words):
        Run.open(run.folder)
    with pytest.raises(InputError, match="no run folder"):
        Run.open(tmp_path / "nowhere")


@pytest.mark.parametrize("key", ["source", "seed", "device", "graph"])
@pytest.mark.parametrize("value", [None, [3]])
def test_a_run_whose_record_is_damaged_gives_one_sentence(
    communities: Graph, tmp_path: Path, key: str, value: object
) -> None:
    run = make_run(tmp_path / "run", communities)
    (run.folder / "run.json").write_text(json.dumps({**run.info, key: value}))
    with pytest.raises(InputError, match=key):
        Run.open(run.folder)


def test_tensors_round_trip_with_kind_and_info(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    tensors = {"a": torch.arange(6).reshape(2, 3), "b": torch.tensor(2.5), "c": torch.zeros(0, 4)}
    save_tensors(path, tensors, kind="model", info={"é": 1})
    loaded, info = load_tensors(path, kind="model")
    assert info == {"é": 1}
    assert all(torch.equal(tensors[name], loaded[name]) for name in tensors)
    with pytest.raises(InputError, match="not a Graphstrap checkpoint"):
        load_tensors(path, kind="checkpoint")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_gives_one_sentence(communities: Graph, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", communities)
    (run.folder / "metrics.jsonl").symlink_to("/dev/full")
    with pytest.raises(InputError, match=r"metrics.jsonl cannot be written: No space"):
        run.log({"step": 1})


def test_run_folders_of_every_past_format_still_open(communities: Graph) -> None:
    """One folder for each format version, written by the release that brought it; never rewritten."""
    import numpy as np

    from graphstrap.api.estimator import Embedder

    folders = sorted((Path(__file__).parents[1] / "fixtures").glob("run-v*[0-9]"))
    assert [folder.name for folder in folders] == [f"run-v{version}" for version in range(1, FORMAT_VERSION + 1)]
    for folder in folders:
        assert Run.open(folder).metrics()[-1]["step"] == 20
        h = Embedder.load(folder, device="cpu").embed(communities)
        np.testing.assert_allclose(h, np.load(folder.with_name(f"{folder.name}-embeddings.npy")), rtol=1e-3, atol=1e-4)


def test_a_checkpoint_of_another_run_is_refused(communities: Graph, tmp_path: Path) -> None:
    """Of the same shape, even of the same seed; one without a run, as older versions wrote, belongs to older runs."""
    one, other = (make_run(tmp_path / name, communities) for name in ("one", "other"))
    one.checkpoint(*method_and_optimizer(communities), 17)
    other.checkpoint_path.write_bytes(one.checkpoint_path.read_bytes())
    with pytest.raises(InputError, match="from another run"):
        other.restore(*method_and_optimizer(communities))
    assert one.restore(*method_and_optimizer(communities)) == 17
    old_info = {key: value for key, value in one.info.items() if key != "id"}
    (other.folder / "run.json").write_text(json.dumps(old_info))
    old = Run.open(other.folder)
    old.checkpoint(*method_and_optimizer(communities), 5)
    assert Run.open(other.folder).restore(*method_and_optimizer(communities)) == 5


def test_a_folder_is_locked_once(communities: Graph, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", communities)
    other = Run.open(run.folder)
    with run.locked():
        with run.locked():
            pass  # its holder may
        with pytest.raises(InputError, match=rf"in use by process {os.getpid()} on "), other.locked():
            pass
    with other.locked(), pytest.raises(InputError, match="in use by"), run.locked():
        pass
    with run.locked():
        pass


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the names of open files are read from /proc")
def test_a_power_cut_loses_no_folder_and_no_line_before_a_checkpoint(
    communities: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is waited for, and in which order."""
    flushed: list[str] = []

    def flush(descriptor: int, fsync: Callable[[int], None] = os.fsync) -> None:
        fsync(descriptor)
        flushed.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)

    monkeypatch.setattr(os, "fsync", flush)
    run = make_run(tmp_path / "run", communities)
    assert {"recipe.toml", "run.json"} == set(flushed[:2])
    assert flushed[2].startswith(".run.")
    assert flushed[3:] == [tmp_path.name]
    run.log({"step": 17, "loss": 0.5})
    flushed.clear()
    run.checkpoint(*method_and_optimizer(communities), 17)
    assert flushed[0] == "metrics.jsonl"
    assert flushed[1].startswith(".checkpoint.")


def test_each_time_that_a_run_goes_on_is_noted(communities: Graph, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", communities)
    assert run.restore(*method_and_optimizer(communities)) == 0
    assert run.restarts() == []
    run.checkpoint(*method_and_optimizer(communities), 17)
    Run.open(run.folder).restore(*method_and_optimizer(communities))
    assert [one["step"] for one in run.restarts()] == [17]
