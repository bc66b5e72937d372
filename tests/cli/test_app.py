"""The program: its help, how fast it starts, verbs that other packages add, and verbs that are not there.

help.txt holds the help of the program and of every verb: `python tests/cli/test_app.py` writes it anew.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import pytest
import typer
from typer.testing import CliRunner

from graphstrap.cli._app import VERBS, app, run

SNAPSHOT = Path(__file__).with_name("help.txt")
OWN_VERBS = [name for name in VERBS if VERBS.is_own(name)]
HEAVY = ("torch", "sklearn", "numpy", "duckdb", "scipy", "matplotlib", "rich")


def all_help() -> str:
    """The help of the program without plugins, and of every verb, 80 columns wide."""
    version = ".".join(typer.__version__.split(".")[:2])
    pages = [f"# Written by `python tests/cli/test_app.py` with typer {version}\n"]
    for verb in ("", *OWN_VERBS):
        command = [*([verb] if verb else []), "--help"]
        shown = CliRunner(env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"}).invoke(app, command, prog_name="graphstrap")
        pages.append(f"$ graphstrap {' '.join(command)}\n{shown.stdout}")
    return "\n".join(pages)


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> dict[str, EntryPoint]:
    """The verbs of other packages; none at first."""
    found: dict[str, EntryPoint] = {}
    monkeypatch.setitem(VERBS.__dict__, "_plugins", found)
    monkeypatch.setattr(VERBS, "_loaded", {name: verb for name, verb in VERBS._loaded.items() if VERBS.is_own(name)})
    return found


def add_plugin(plugins: dict[str, EntryPoint], name: str, value: str) -> None:
    plugins[name] = EntryPoint(name, value, "graphstrap.verbs")


def test_help_is_what_the_snapshot_says(plugins: dict[str, EntryPoint]) -> None:
    expected, found = SNAPSHOT.read_text(encoding="utf-8"), all_help()
    if expected.partition("\n")[0] == found.partition("\n")[0]:
        assert found == expected, "run `python tests/cli/test_app.py` if the change is meant"
    else:  # another version of typer, which words types and defaults differently
        assert re.findall(r"--[a-z-]+", found) == re.findall(r"--[a-z-]+", expected)


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_help_imports_nothing_heavy(verb: str) -> None:
    """Measured 0.2 s for each; five seconds are for a busy machine."""
    arguments = [*([verb] if verb else []), "--help"]
    code = (
        "import json, sys\nfrom graphstrap.cli import main\n"
        f"code = main({arguments})\nprint(json.dumps([code, sorted(sys.modules)]), file=sys.stderr)"
    )
    begin = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    seconds = time.monotonic() - begin
    code_, modules = json.loads(done.stderr)
    assert code_ == 0
    assert f"Usage: graphstrap {verb}".strip() in done.stdout
    assert not set(HEAVY) & set(modules)
    assert seconds < 5


def test_version_needs_nothing_heavy() -> None:
    code = "import sys\nfrom graphstrap.cli import main\nmain(['--version'])\n"
    code += f"assert not set({HEAVY}) & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert re.fullmatch(r"graphstrap (\d+\.\d+\.\d+\S*|uninstalled)\n", done.stdout)


def test_no_verb_shows_the_help(capfd: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 2
    captured = capfd.readouterr()
    assert "Usage: graphstrap" in captured.out + captured.err


def test_help_names_what_the_code_knows() -> None:
    """These texts are written out, so that --help does not import what they name."""
    from graphstrap.api.embed import WAYS
    from graphstrap.evaluation.registry import PROTOCOLS
    from graphstrap.io.export import PARTS
    from graphstrap.io.partition import PARTITIONERS

    text = re.sub(r"-\n\s+", "-", SNAPSHOT.read_text(encoding="utf-8"))  # a line may end within adamw-reference
    known = {
        "evaluate": list(PROTOCOLS),
        "report": list(PROTOCOLS),
        "predict": list(PARTS),
        "prepare": list(PARTITIONERS),
        "embed": list(WAYS),
    }
    for verb, names in known.items():
        shown = " ".join(text.partition(f"$ graphstrap {verb} --help\n")[2].partition("\n$ ")[0].split())
        assert all(re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", shown) for name in names), verb


def test_an_unknown_verb_is_answered_by_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["evalute", "x"]) == 2
    assert "there is no verb 'evalute'; did you mean 'evaluate'?" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["bench", "reproduce"])
def test_verbs_of_the_laboratory_say_how_to_get_them(
    verb: str, plugins: dict[str, EntryPoint], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([verb, "table-3", "--quick"]) == 2
    text = capsys.readouterr().err
    assert "pip install graphstrap-lab" in text
    assert "pip install ./lab" in text
    assert text.count("\n") == 1


def test_plugins_add_verbs(
    plugins: dict[str, EntryPoint], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module, group = ModuleType("a_plugin"), typer.Typer(help="Several at once.", rich_markup_mode=None)

    def greet(name: str = "you") -> None:
        """Greet."""
        print(f"hello {name}")

    def stop() -> None:
        raise KeyboardInterrupt

    group.command("inner")(greet)
    module.greet, module.group, module.stop = greet, group, stop  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "a_plugin", module)
    for name in ("greet", "group", "stop"):
        add_plugin(plugins, name, f"a_plugin:{name}")
    assert run(["greet", "--name", "me"]) == 0
    assert run(["group", "inner"]) == 0
    assert capsys.readouterr().out == "hello me\nhello you\n"
    assert run(["stop"]) == 130
    assert capsys.readouterr().err == "graphstrap: stopped; no half-written file is left\n"
    assert run(["--help"]) == 0
    assert "greet      Added by a_plugin." in capsys.readouterr().out


def test_a_broken_plugin_is_named_and_breaks_no_other_verb(
    plugins: dict[str, EntryPoint], capsys: pytest.CaptureFixture[str]
) -> None:
    add_plugin(plugins, "broken", "no_such_module:verb")
    assert run(["broken"]) == 2
    assert "verb 'broken' of no_such_module cannot be imported" in capsys.readouterr().err
    assert run(["--help"]) == 0
    assert run(["info", "--help"]) == 0


def test_python_m_runs_the_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "graphstrap", "info", "nowhere"], capture_output=True, text=True, env={**os.environ}
    )
    assert done.returncode == 2
    assert done.stderr.startswith("graphstrap: ")


if __name__ == "__main__":
    VERBS.__dict__["_plugins"] = {}
    SNAPSHOT.write_text(all_help(), encoding="utf-8")


def test_a_second_table_of_edges_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for second in (["--edges", "b.csv"], ["--edges=b.csv"]):
        assert run(["fit", "--edges", "a.csv", *second, "--run", "unused"]) == 2
        assert "--edges is given twice: write them into one" in capsys.readouterr().err
