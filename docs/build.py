"""Builds the documentation site, strictly: `python docs/build.py FOLDER`, or `make docs`.

Pages are the Markdown files beside this one. Two are made here, from what cannot go out of date: the methods from
their docstrings and the ledger's numbers, and the API from the docstrings of the public names.
"""

from __future__ import annotations

import importlib
import inspect
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import graphstrap
from graphstrap_lab.reproduce.ledger import Ledger

ROOT = Path(__file__).parent.parent
# module, name in a recipe, rows in the ledger, when to use it
METHODS = {
    "BGRL": ("bgrl", "bgrl", ("bgrl",), "The one to start with: linear cost, no negatives, few settings."),
    "Instant": ("instant", "instant", (), "At once, without training; what a trained embedding must beat."),
    "BGRL with decorrelated columns": (
        "bgrl_cca",
        "bgrl-cca",
        (),
        "What `default` trains.",
    ),
    "GRACE and GCA": ("grace", "grace", ("grace", "gca"), "As a yardstick on small graphs; GCA with adaptive views."),
    "DGI": ("dgi", "dgi", ("dgi",), "Linear cost like BGRL's and one network; needs features that differ."),
    "GMI": ("gmi", "gmi", ("gmi",), "To compare with the paper's tables; sees the whole graph at every step."),
    "MVGRL": ("mvgrl", "mvgrl", ("mvgrl",), "To compare, on graphs of some thousand nodes: memory is quadratic."),
    "Graph Barlow Twins": ("barlow_twins", "barlow-twins", ("barlow-twins",), "No second network, no predictor."),
    "DeepWalk and node2vec": ("skip_gram", "node2vec", ("deepwalk", "node2vec"), "Structure alone; no new nodes."),
    "Semi-supervised BGRL": ("semi_supervised", "semi-supervised", (), "Some labels, many nodes without."),
    "Label propagation": ("label_propagation", "", ("label-propagation",), "The baseline that uses labels only."),
    "Supervised GCN and MLP": ("supervised", "", ("supervised",), "What training on labels reaches."),
}
ENCODERS = {"GCN": "gcn", "Mean pooling": "mean_pooling", "GAT": "gat", "MPNN": "mpnn", "MLP": "mlp"}
BRIDGES = {
    "graphstrap.io.pyg": ("from_pyg", "to_pyg"),
    "graphstrap.io.networkx": ("from_networkx", "to_networkx"),
    "graphstrap.io.scipy": ("from_scipy", "to_scipy"),
    "graphstrap.io.store": ("open_store", "write_store"),
    "graphstrap.api.neighbors": ("find_node", "find_neighbors"),
    "graphstrap.io.callgraph": ("call_graph",),
    "graphstrap.evaluation.links": ("hide_edges",),
    "graphstrap.api.estimator": ("score_links",),
}


def main(site: Path) -> int:
    """Build into a folder; the exit code of the site generator, which is not 0 when anything is amiss."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        shutil.copytree(ROOT / "docs", folder / "docs", ignore=shutil.ignore_patterns("*.py", "__pycache__"))
        shutil.copy(ROOT / "mkdocs.yml", folder)
        for page in (folder / "docs").glob("*.md"):  # GitHub shows Markdown inside of HTML, a site has to be told to
            page.write_text(page.read_text(encoding="utf-8").replace("<details>", '<details markdown="1">'), "utf-8")
        (folder / "docs" / "methods.md").write_text(methods_page(), encoding="utf-8")
        (folder / "docs" / "api.md").write_text(api_page(), encoding="utf-8")
        code = subprocess.run([sys.executable, "-m", "zensical", "build", "--strict"], cwd=folder).returncode
        if code == 0:
            shutil.copytree(folder / "site", site, dirs_exist_ok=True)
    return code


def methods_page() -> str:
    parts = [
        "# Methods",
        "Each section is the docstring of a file in `src/graphstrap/nn/methods/`: the equation, where it departs from "
        "its paper, its cost. Numbers are the ledger's, mean ± standard deviation over seeds "
        "([all results](results.md)); a method without a table has none there yet.",
    ]
    ledger = Ledger(ROOT / "lab" / "benchmarks" / "results" / "ledger.jsonl")
    for title, (module, name, rows, use) in METHODS.items():
        parts += [f"## {title}", use]
        parts += [f"`--set method.name={name}` on the command line, `settings={{'method.name': '{name}'}}` in Python."]
        parts = parts if name else parts[:-1]
        parts += [_text(f"graphstrap.nn.methods.{module}"), *_numbers(ledger, rows)]
    parts += ["# Encoders", "`--set encoder.name=gat`: every method that calls its encoder as a whole takes each."]
    for title, module in ENCODERS.items():
        parts += [f"## {title} encoder", _text(f"graphstrap.nn.encoders.{module}")]
    return "\n\n".join(parts) + "\n"


def _text(module: str) -> str:
    """A docstring as Markdown: prose, lists, and what is indented (equations) as it stands."""
    parts: list[str] = []
    for paragraph in (inspect.getdoc(importlib.import_module(module)) or "").split("\n\n"):
        if paragraph.startswith("    "):
            parts.append(f"```text\n{textwrap.dedent(paragraph)}\n```")
            continue
        starts_anew = True
        for line in paragraph.replace("<", "&lt;").split("\n"):
            is_item = line.startswith("  * ")
            if starts_anew or is_item or (parts[-1].startswith("* ") and not line.startswith("    ")):
                parts.append(line.strip())
            else:
                parts[-1] += f" {line.strip()}"
            starts_anew = False
    return "\n\n".join(parts)


def _numbers(ledger: Ledger, families: tuple[str, ...]) -> Iterator[str]:
    """A table of what the ledger holds of these rows and their variants, such as bgrl and bgrl-degree."""
    cells: dict[tuple[str, str, str], list[float]] = {}
    for row in ledger.find(quick=False):
        protocols = row.get("accuracy") or {}
        is_of_family = any(row["variant"] == name or row["variant"].startswith(f"{name}-") for name in families)
        if is_of_family and protocols:
            protocol = "reference" if "reference" in protocols else next(iter(protocols))
            cells.setdefault((row["variant"], row["dataset"], protocol), []).append(protocols[protocol])
    if cells:
        lines = ["| row | graph | protocol | % | seeds |", "| --- | --- | --- | --- | --- |"]
        for names, found in cells.items():
            lines.append(f"| {' | '.join(names)} | {fmean(found):.2f} ± {pstdev(found):.2f} | {len(found)} |")
        yield "\n".join(lines)


def api_page() -> str:
    parts = ["# API", "What `import graphstrap as gs` gives, and the bridges, from their docstrings."]
    for name in graphstrap.__all__:
        thing = getattr(graphstrap, name)
        if not inspect.ismodule(thing):
            parts += list(_entry(f"gs.{name}", thing))
    for module, names in BRIDGES.items():
        for name in names:
            parts += list(_entry(f"{module}.{name}", getattr(importlib.import_module(module), name)))
    parts += list(_entry("gs.generate.mag", graphstrap.generate.mag))
    return "\n\n".join(parts) + "\n"


def _entry(name: str, thing: Any, *, level: int = 2) -> Iterator[str]:
    yield f"{'#' * level} `{name}`"
    is_error = inspect.isclass(thing) and issubclass(thing, Exception)
    signature = "" if is_error else inspect.signature(thing)
    yield f"```text\n{name.rpartition('.')[2]}{signature}\n\n{inspect.getdoc(thing) or ''}\n```"
    if inspect.isclass(thing):
        for method, member in vars(thing).items():
            function = getattr(member, "__func__", member)
            if inspect.isfunction(function) and not method.startswith("_") and function.__doc__:
                yield from _entry(f"{name}.{method}", getattr(thing, method), level=3)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "site")))
