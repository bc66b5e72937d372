r"""The page: one HTML file that needs nothing else. Whatever came from a user is escaped on its way in.

text in HTML       html.escape
JSON in a script   <, > and & as \u escapes: no string can end the element
scripts            named by their hash in the page's content security policy: no other script runs, nothing is
                   fetched
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import numpy as np

from graphstrap.graph import Graph
from graphstrap.report.health import Health
from graphstrap.report.scores import Confusion, Scores
from graphstrap.run.folder import Run

SCRIPTS = ("data.js", "palette.js", "points.js", "grid.js", "map.js", "panel.js", "charts.js", "main.js")


def fill_page(parts: Mapping[str, str], *, data: Mapping[str, Any], block: str) -> str:
    """The template with its parts, which are HTML already; `data` becomes JSON and `block` stands as it is."""
    script = "(() => {\n'use strict';\n" + "\n".join(asset(name) for name in SCRIPTS) + "\n})();\n"
    filled = {
        **parts,
        "style": asset("report.css"),
        "script": script,
        "script_hash": _hash(script),
        "data": script_json(data),
        "block": block,
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: filled[match[1]], asset("page.html"))


def asset(name: str) -> str:
    return (resources.files("graphstrap.report") / "assets" / name).read_text(encoding="utf-8")


def script_json(value: Any) -> str:
    """JSON that may stand inside a script element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def escape(value: Any) -> str:
    return html.escape(str(value))


def table(header: Sequence[str], rows: Sequence[Sequence[str]], *, css_class: str = "") -> str:
    """A table of cells that are HTML already; the first cell of a row is its heading."""
    head = "".join(f'<th scope="col">{cell}</th>' for cell in header)
    body = "".join(
        f'<tr><th scope="row">{row[0]}</th>{"".join(f"<td>{cell}</td>" for cell in row[1:])}</tr>' for row in rows
    )
    return f'<table class="{css_class}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def definitions(values: Mapping[str, Any]) -> str:
    """Names and values, escaped, as a list."""
    pairs = (f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in values.items())
    return f"<dl>{''.join(pairs)}</dl>"


def _hash(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


# The parts of the page that are words and tables. Every function gives HTML; what came from a user is escaped.


VERDICTS = {"healthy": "Healthy", "warning": "Look closer", "bad": "Unhealthy"}
_PROTOCOLS = {
    "paper": "Linear probe, 10 % of the labels",
    "reference": "Linear probe, 20 % of the labels",
    "public": "Linear probe, published splits",
    "knn": "Nearest neighbours vote",
    "clustering": "Clusters against classes",
    "links": "Hidden edges told from other pairs",
    "auc": "Linear probe, order of two classes",
    "adamw": "Linear layer by AdamW, published splits",
    "adamw-reference": "Linear layer by AdamW, z-scored columns",
}
NO_MAP = "<section><h2>Embedding map</h2><p>There is none yet: the run has left no model.</p></section>"
METRICS = {"nmi": "NMI", "auc": "AUC", "micro-f1": "micro-F1"}


def headline(health: Health) -> str:
    advice = "".join(
        f"<li>{f'<b>{escape(one.text)}</b> ' if place else ''}{escape(one.advice)}</li>"  # the first is the headline
        for place, one in enumerate(health.findings)
    )
    return (
        f'<p class="verdict {health.verdict}"><span class="pill">{VERDICTS[health.verdict]}</span>'
        f"<span>{escape(health.headline)}</span></p>" + (f'<ul class="advice">{advice}</ul>' if advice else "")
    )


def score_tables(scores: Scores) -> str:
    """One block a protocol: a bar for each candidate, the trained one last."""
    note = f'<p class="note">{escape(scores.note[0].upper() + scores.note[1:])}.</p>' if scores.note else ""
    return "".join(_score_table(protocol, rows) for protocol, rows in scores.tables.items()) + note


def _score_table(protocol: str, rows: Mapping[str, Any]) -> str:
    cells = [
        [
            escape(name),
            f'<span class="bar"><i style="width:{max(0.0, min(100.0, one.mean)):.1f}%"></i></span>',
            f"{one.mean:.1f}" + (f" <small>± {one.std:.1f}</small>" if len(one.runs) > 1 else ""),
        ]
        for name, one in rows.items()
    ]
    first = list(rows.values())[-1]
    caption = f"<h3>{escape(_PROTOCOLS.get(protocol, protocol))} <code>{escape(protocol)}</code></h3>"
    metric = METRICS.get(first.metric, first.metric.capitalize())
    detail = f'<p class="note">{escape(metric)} in %; {escape(re.sub(r"; ari [^,]*", "", first.detail))}.</p>'
    return f'<div class="score">{caption}{table(["", "", escape(metric)], cells, css_class="scores")}{detail}</div>'


def confusion_matrix(confusion: Confusion, *, seed: int | None = None) -> str:
    """Rows are true classes, columns predicted ones; a cell's shade is its part of the row. A `seed` is named."""
    shares = confusion.counts / np.maximum(confusion.counts.sum(1, keepdims=True), 1)
    header = ["", *(f"<span>{escape(name)}</span>" for name in confusion.names)]
    rows = [
        [escape(name), *(_cell(confusion, i, j, float(shares[i, j])) for j in range(len(confusion.names)))]
        for i, name in enumerate(confusion.names)
    ]
    caption = (
        f"{confusion.accuracy:.1f} % right: a linear probe on 10 % of the labels, C chosen on 10 %, shown on the rest"
    )
    caption += "" if seed is None else f"; seed {seed}"
    matrix = f'<div class="scroll">{table(header, rows, css_class="confusion")}</div>'
    heading = "<h3>Which classes are taken for which, in % of the true class</h3>"
    return f'{heading}<div class="beside">{matrix}{_mistakes(confusion)}</div><p class="note">{caption}.</p>'


def _mistakes(confusion: Confusion) -> str:
    lines = "".join(
        f"<li><b>{escape(true)}</b> taken for <b>{escape(predicted)}</b> <small>{count:,} nodes, {100 * share:.0f} %"
        "</small></li>"
        for true, predicted, count, share in confusion.mistakes
    )
    return f'<div class="mistakes"><h3>Most often confused</h3><ol>{lines}</ol></div>' if lines else ""


def _cell(confusion: Confusion, i: int, j: int, share: float) -> str:
    title = f"{confusion.names[i]} taken for {confusion.names[j]}: {confusion.counts[i, j]} ({100 * share:.0f} %)"
    text = f"{100 * share:.0f}" if share >= 0.005 else ""
    kind = "hit" if i == j else "miss"
    return f'<span class="{kind}" style="--share:{share:.3f}" title="{escape(title)}">{text}</span>'


def data_statistics(run: Run, graph: Graph | None) -> str:
    info = run.info["graph"]
    values: dict[str, Any] = {"source": _source(run.info["source"])}
    if info.get("name", "graph") != "graph":
        values["name"] = info["name"]
    values |= {"nodes": count(info.get("num_nodes")), "directed edges": count(info.get("num_edges"))}
    values["features"] = ", ".join(f"{size:,}" for size in info.get("num_features", [])) or "none"
    values["classes"] = info.get("num_classes") or "none"
    if graph is not None:
        values |= _degree_statistics(graph)
    for name, number in info.get("cleaning", {}).items():
        values[name.removeprefix("num_").replace("_", " ")] = count(number)
    values["fingerprint"] = info["fingerprint"]
    return definitions(values)


def _degree_statistics(graph: Graph) -> dict[str, str]:
    degrees = graph.in_degrees.numpy()
    values = {
        "every edge has its reverse": "yes" if graph.is_symmetric else "no",
        "mean degree": f"{degrees.mean():.1f}",
        "largest degree": f"{degrees.max():,}",
        "nodes without edges": f"{int(((degrees == 0) & (graph.transpose.indptr.diff().numpy() == 0)).sum()):,}",
    }
    if graph.labels is not None and graph.labels.dim() == 1:
        values["labelled nodes"] = f"{int((graph.labels >= 0).sum()):,}"
    if len(graph.node_types) > 1:
        sizes = zip(graph.node_types, np.diff(graph.type_offsets).tolist(), strict=True)
        values["node types"] = ", ".join(f"{name} ({size:,})" for name, size in sizes)
    return values


def recipe_settings(run: Run, *, seeds: Sequence[int]) -> str:
    """The recipe, table by table."""
    groups = tomllib.loads(run.recipe.to_toml())
    plain = {name: value for name, value in groups.items() if not isinstance(value, dict)}
    blocks = [f"<h3>recipe</h3>{definitions({**plain, 'seed': ', '.join(map(str, seeds))})}"]
    blocks += [
        f"<h3>{escape(name)}</h3>{definitions(value)}" for name, value in groups.items() if isinstance(value, dict)
    ]
    return "".join(f"<div>{block}</div>" for block in blocks)


def environment(run: Run) -> str:
    values = {name: value for name, value in run.info.get("environment", {}).items() if value is not None}
    values["device"] = run.info["device"]
    restarts = run.restarts()
    if restarts:
        values["went on after a cut"] = ", ".join(f"from step {one['step']:,}" for one in restarts)
    git = run.info.get("git")
    if git:
        values["source tree"] = git["sha"][:12] + (", changed" if git.get("changed") else "")
    return definitions(values)


def _source(source: Mapping[str, Any]) -> str:
    names = [str(source[key]) for key in ("dataset", "edges", "nodes") if source.get(key)]
    return " and ".join(names) or "given as a Graph"


def count(number: Any) -> str:
    return f"{number:,}" if isinstance(number, int) else "unknown"
