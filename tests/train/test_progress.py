"""The bar writes to stderr only, and nothing when hidden."""

from __future__ import annotations

import pytest

from graphstrap.train.progress import TrainingBar


@pytest.mark.parametrize("shown", [True, False])
def test_bar_shows_on_stderr_or_not_at_all(shown: bool, capsys: pytest.CaptureFixture[str]) -> None:
    with TrainingBar(10, shown=shown) as bar:
        bar.update(3, loss=0.5, speed=12.0)
        bar.update(10)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert ("10/10" in captured.err) == shown
