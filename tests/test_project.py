"""What is said of the project in several files is the same in all of them."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest

from code_blocks import ROOT


def pyproject(folder: str = ".") -> dict[str, Any]:
    return tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))


def test_one_version_and_one_date() -> None:
    version = pyproject()["project"]["version"]
    assert pyproject("lab")["project"]["version"] == version
    released = re.search(r"^## \[(\d.*)\] - (\S+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert released is not None
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {version}\ndate-released: {released[2]}\n" in citation
    assert released[1] == version


def test_changes_are_in_the_usual_sections() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert text.index("## [Unreleased]") < text.index(f"## [{pyproject()['project']['version']}]")
    assert set(re.findall(r"^### (.*)$", text, re.MULTILINE)) <= {
        "Added",
        "Changed",
        "Deprecated",
        "Removed",
        "Fixed",
        "Security",
    }


def test_all_optional_packages_are_in_the_extra_all_and_pinned() -> None:
    extras = pyproject()["project"]["optional-dependencies"]
    wanted = set(extras) - {"all", "dev", "docs"}
    assert extras["all"] == [f"graphstrap[{','.join(name for name in extras if name in wanted)}]"]
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {normal(line.partition("==")[0]) for line in lines}
    named = {normal(re.split(r"[\[<>=;]", one)[0]) for extra in {*extras} - {"all"} for one in extras[extra]}
    assert named <= pinned


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.extras("yaml")
def test_yaml_files_are_as_their_readers_want() -> None:
    import yaml

    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    assert [repo["repo"] for repo in hooks] == ["local"]
    for hook in hooks[0]["hooks"]:
        assert {"id", "name", "entry", "language"} <= set(hook)
        assert hook["language"] == "system"
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors", "version"} <= set(citation)
    assert all("family-names" in author for author in citation["preferred-citation"]["authors"])
