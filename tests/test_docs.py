"""The documentation: every code block runs or is checked, every picture is there, the site builds with no warning."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main

from code_blocks import ROOT, code_blocks, commands, make_user_tables, run_commands, run_python
from graphstrap.cli._app import app

PAGES = sorted((ROOT / "docs").glob("*.md"))
RUN = [page for page in PAGES if any(language in ("python", "sh") for language, _ in code_blocks(page))]
LONG = [
    "performance.md",
    "results.md",
    "parallel.md",
    "partitions.md",
]  # bare blocks take a GPU, or several hosts: parsed, not run
SOURCES = [path for folder in ("src", "examples") for path in sorted((ROOT / folder).rglob("*.py"))]
FILES = [path for folder in ("src", "lab", "tests", "examples", "docs") for path in (ROOT / folder).rglob("*.*")]
FILES += list(ROOT.glob("*.*"))
# Files of users, of run folders and of other projects, which are not in the repository.
WRITTEN_LATER = {"run.json", "config.json", "metrics.jsonl", "parts.json", "recipe.toml", "restarts.jsonl"}
LINES = r"graphstrap |python lab/benchmarks/"
CLUSTER_LINES = LINES + r"|torchrun |srun |#|first=|    (graphstrap|--rdzv)"


@pytest.mark.usefixtures("forget_added_encoders")
@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_code_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_user_tables(tmp_path)
    run_commands(page)
    run_python(page)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_block_escapes(page: Path) -> None:
    """A block in any other language, or a line that is no `graphstrap` command, would be run by nobody."""
    for language, code in code_blocks(page):
        assert language in ("python", "sh") or (language == "" and page.name in LONG), code
        if language != "python":
            assert all(
                re.match(CLUSTER_LINES if page.stem == "parallel" else LINES, line) for line in code.splitlines()
            ), code


@pytest.mark.parametrize("name", LONG)
def test_long_commands_have_options_that_exist(name: str) -> None:
    page = ROOT / "docs" / name
    found = commands(page, language="")
    assert found
    for command in found:
        parse(typer.main.get_command(app), command[1:])


def parse(command: Any, words: list[str], parent: Any = None) -> None:
    """Raises where an option or a verb is unknown; nothing is run."""
    if hasattr(command, "resolve_command"):
        context = command.make_context("graphstrap", [], parent=parent, resilient_parsing=True)
        _, verb, rest = command.resolve_command(context, words)
        parse(verb, rest, context)
    else:
        command.make_context(command.name, list(words), parent=parent)


@pytest.mark.parametrize(
    "page", [*PAGES, *ROOT.glob("*.md"), ROOT / "lab" / "benchmarks" / "README.md"], ids=lambda p: p.stem
)
def test_files_that_pages_name_exist(page: Path) -> None:
    """By their path from the repository, the package or the page's own folder, or by a bare name that some file has.

    Tables made from result files keep the commands that they were measured by.
    """
    text = re.sub(r"<!-- results.*?<!-- end of", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    names = set(re.findall(r"(?<![\w/.-])(?:[\w-]+/)*[\w-]+\.(?:py|jsonl?|toml|txt)\b", text)) - WRITTEN_LATER
    assert [name for name in sorted(names) if not is_there(name, page)] == []


def test_files_that_comments_name_exist() -> None:
    missing = []
    for module in SOURCES:
        found = re.findall(r"(?<![\w/.\"])((?:\w+/)+\w+\.py|test_\w+\.py)\b", module.read_text(encoding="utf-8"))
        missing += [f"{module.name}: {name}" for name in sorted(set(found)) if not is_there(name, module)]
    assert missing == []


def is_there(name: str, page: Path) -> bool:
    if "/" not in name:
        return any(path.name == name for path in FILES)
    folders = [
        ROOT,
        page.parent,
        page.parent.parent,
        ROOT / "src" / "graphstrap",
        ROOT / "tests",
        ROOT / "lab",
        ROOT / "lab" / "benchmarks",
    ]
    return any((folder / name).exists() for folder in folders)


def test_the_list_of_benchmarks_is_of_those_that_are_there() -> None:
    folder = ROOT / "lab" / "benchmarks"
    listed = re.findall(r"`(\w+\.\w+)`", (folder / "README.md").read_text(encoding="utf-8"))
    there = [*folder.glob("*.py"), *(folder / "results").iterdir()]
    assert sorted(listed) == sorted(path.name for path in there)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=lambda page: page.stem)
def test_links_to_files_lead_somewhere(page: Path) -> None:
    """Also pictures, which the site generator does not check."""
    made = {"methods.md", "api.md"}
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if "://" not in target and target not in made:
            assert (page.parent / target).exists(), target


def test_the_site_builds_with_no_warning(tmp_path: Path) -> None:
    if importlib.util.find_spec("zensical") is None:
        pytest.skip("the site generator is not installed: pip install zensical, or make docs")
    command = [sys.executable, str(ROOT / "docs" / "build.py"), str(tmp_path / "site")]
    outcome = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert "No issues found" in outcome.stdout + outcome.stderr
    pages = {path.parent.name for path in (tmp_path / "site").glob("*/index.html")}
    assert pages >= {page.stem for page in PAGES if page.stem != "index"} | {"methods", "api"}
    assert "<li>BGRL" in (tmp_path / "site" / "results" / "index.html").read_text(encoding="utf-8")
