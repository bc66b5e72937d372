"""Where numbers come from is recorded."""

from __future__ import annotations

import json

import pytest
import torch

from graphstrap.run import environment


def test_environment_is_json_and_names_what_matters() -> None:
    facts = environment.describe_environment()
    assert json.loads(json.dumps(facts)) == facts
    assert facts["torch"] == torch.__version__
    assert facts["num_threads"] >= 1


def test_git_state_is_none_outside_of_a_source_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "_git", lambda folder, *arguments: "")
    assert environment.describe_git() is None
    monkeypatch.setattr(environment, "_git", lambda folder, *arguments: "abc" if "status" not in arguments else "")
    assert environment.describe_git() == {"sha": "abc", "changed": False}
