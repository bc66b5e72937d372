"""Many seeds at once: each model is the one that its seed gives alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import graphstrap as gs
from graphstrap.api.ensemble import evaluate_runs, resume_seeds, seed_folders
from graphstrap.errors import InputError, InterruptedTrainingError
from graphstrap.evaluation.registry import pool_evaluations
from graphstrap.run.folder import Run
from graphstrap.train import loop

SETTINGS = {"train.steps": 12, "encoder.hidden_sizes": [16], "encoder.embedding_size": 8, "train.log_every": 4}


def same_weights(one: gs.Embedder, other: gs.Embedder) -> bool:
    pairs = zip(one.model_.module.parameters(), other.model_.module.parameters(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_each_seed_is_the_model_trained_alone(communities: gs.Graph) -> None:
    settings = {**SETTINGS, "encoder.own_features": 3, "data.feature_scaling": "column"}
    together = gs.fit_seeds(gs.Embedder(settings=settings), communities, seeds=[3, 5])
    alone = [gs.Embedder(settings=settings, seed=seed).fit(communities) for seed in (3, 5)]
    assert all(same_weights(a, b) for a, b in zip(together, alone, strict=True))
    assert not same_weights(*together)
    for a, b in zip(together, alone, strict=True):
        assert np.array_equal(a.embed(communities), b.embed(communities))
    assert [one.metrics_[-1]["step"] for one in together] == [12, 12]


def test_every_seed_has_its_run_folder_and_its_evaluation(communities: gs.Graph, tmp_path: Path) -> None:
    gs.fit_seeds(gs.Embedder(settings=SETTINGS), communities, seeds=range(3), run=tmp_path / "run")
    folders = seed_folders(tmp_path / "run")
    assert [folder.name for folder in folders] == ["seed-0", "seed-1", "seed-2"]
    assert all(Run.open(folder).is_finished for folder in folders)
    by_seed = evaluate_runs(folders, communities, protocol="paper", num_runs=2, device="cpu")
    assert list(by_seed) == [0, 1, 2]
    total = pool_evaluations(list(by_seed.values()))
    assert len(total.runs) == 6
    assert total.mean == pytest.approx(sum(one.mean for one in by_seed.values()) / 3)
    assert "3 seeds" in total.detail


def test_seeds_resume_bit_for_bit_wherever_each_was_cut(
    communities: gs.Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cut finds one model saved at step 5 and the other two at step 4, as a kill between two saves would."""
    settings = {**SETTINGS, "train.checkpoint_seconds": 0.0}
    record = loop._Session.record

    def cut(self: loop._Session, step: int, *rest: object, **options: bool) -> None:
        if step == 5 and self.job.seed > 0:
            raise InterruptedTrainingError(step)
        record(self, step, *rest, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(loop._Session, "record", cut)
        with pytest.raises(InterruptedTrainingError):
            gs.fit_seeds(gs.Embedder(settings=settings), communities, seeds=range(3), run=tmp_path / "run")
    resumed = resume_seeds(tmp_path / "run", communities)
    whole = gs.fit_seeds(gs.Embedder(settings=settings), communities, seeds=range(3))
    assert all(same_weights(a, b) for a, b in zip(resumed, whole, strict=True))
    steps = [record["step"] for record in Run.open(tmp_path / "run" / "seed-1").metrics()]
    assert steps == [1, 4, 8, 12]


def test_mistakes_are_named(communities: gs.Graph, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="different numbers"):
        gs.fit_seeds(gs.Embedder(settings=SETTINGS), communities, seeds=[1, 1])
    (tmp_path / "run").mkdir()
    with pytest.raises(InputError, match="exists"):
        gs.fit_seeds(gs.Embedder(settings=SETTINGS), communities, seeds=[1, 2], run=tmp_path / "run")
    assert seed_folders(tmp_path / "run") == []
    (tmp_path / "run" / "seeds.json").write_text('{"seeds": [0, 1]}')
    with pytest.raises(InputError, match="seed-0, seed-1"):
        seed_folders(tmp_path / "run")
    (tmp_path / "run" / "seeds.json").write_text("[")
    with pytest.raises(InputError, match="damaged"):
        seed_folders(tmp_path / "run")


@pytest.mark.gpu
def test_on_cuda_too_each_seed_is_the_model_trained_alone(communities: gs.Graph) -> None:
    together = gs.fit_seeds(gs.Embedder(settings=SETTINGS, device="cuda"), communities, seeds=range(6))
    alone = [gs.Embedder(settings=SETTINGS, seed=seed, device="cuda").fit(communities) for seed in range(6)]
    assert all(same_weights(a, b) for a, b in zip(together, alone, strict=True))
