r"""The page: one HTML file that needs nothing else. Whatever came from a user is escaped on its way in.

text in HTML       html.escape
JSON in a script   <, > and & as \u escapes: no string can end the element
scripts            named by their hash in the page's content security policy: no other script runs, nothing is
                   fetched

Everything that is words and numbers goes through `table`, `definitions` and `note`; each section below is a function
that gives HTML.
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

from graphstrap.evaluation.registry import Evaluation, find_protocol
from graphstrap.graph import Graph
from graphstrap.report.health import Health
from graphstrap.report.scores import Confusion
from graphstrap.report.series import elapsed_seconds
from graphstrap.run.folder import Run

SCRIPTS = ("data.js", "palette.js", "points.js", "grid.js", "map.js", "panel.js", "charts.js", "main.js")
NO_MAP = "<section><h2>Embedding map</h2><p>There is none yet: the run has left no model.</p></section>"
_VERDICTS = {"healthy": "Healthy", "warning": "Look closer", "bad": "Unhealthy"}
_METRICS = {"nmi": "NMI", "auc": "AUC", "micro-f1": "micro-F1"}

Logs = Mapping[int, list[dict[str, Any]]]  # what each seed's training logged


def fill_page(sections: Mapping[str, str], *, data: Mapping[str, Any], block: str) -> str:
    """The template with its sections, which are HTML already; `data` becomes JSON and `block` stands as it is."""
    script = "(() => {\n'use strict';\n" + "\n".join(asset(name) for name in SCRIPTS) + "\n})();\n"
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    filled = {
        **sections,
        "style": asset("report.css"),
        "script": script,
        "script_hash": f"sha256-{digest}",
        "data": script_json(data),
        "block": block,
    }
    return fill("page.html", filled)


def fill(template: str, filled: Mapping[str, str]) -> str:
    """The asset of this name with what is to stand for each {{name}}."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: filled[match[1]], asset(template))


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


def note(text: str) -> str:
    """A small sentence below a table."""
    return f'<p class="note">{escape(text)}.</p>'


def headline(health: Health) -> str:
    advice = "".join(
        f"<li>{f'<b>{escape(one.text)}</b> ' if place else ''}{escape(one.advice)}</li>"  # the first is the headline
        for place, one in enumerate(health.findings)
    )
    sentence = f"{_pill(health.verdict)}<span>{escape(health.headline)}</span>"
    return f'<p class="verdict {health.verdict}">{sentence}</p>' + (
        f'<ul class="advice">{advice}</ul>' if advice else ""
    )


def tiles(run: Run, logs: Logs, best: Evaluation | None) -> str:
    """The figures one wants first; over seeds their mean."""
    graph, lasts = run.info["graph"], [records[-1] if records else {} for records in logs.values()]
    figures = {"nodes": _count(graph.get("num_nodes")), "directed edges": _count(graph.get("num_edges"))}
    if len(logs) > 1:
        figures["seeds"] = str(len(logs))
    figures["steps"] = f"{max(last.get('step', 0) for last in lasts):,}"
    figures["training time"] = _duration(max((elapsed_seconds(one)[-1] for one in logs.values() if one), default=0.0))
    losses, ranks = (
        [last[name] for last in lasts if isinstance(last.get(name), float)] for name in ("loss", "effective_rank")
    )
    if losses:
        figures["final loss"] = f"{np.mean(losses):.3f}"
    if ranks:
        figures["effective rank"] = f"{np.mean(ranks):.0f} of {run.recipe.encoder.embedding_size}"
    if best is not None:
        figures[_metric_of(best)] = f"{best.mean:.1f} %"
    cells = (f"<div><dd>{escape(value)}</dd><dt>{escape(name)}</dt></div>" for name, value in figures.items())
    return f'<dl class="tiles">{"".join(cells)}</dl>'


def seed_table(
    logs: Logs, healths: Mapping[int, Health], best: Evaluation | None, score_of: Mapping[int, float]
) -> str:
    """A row for each seed: its verdict, where its training ended, its score by the first protocol."""
    columns = {"final loss": ("loss", 3), "effective rank": ("effective_rank", 1), "spread": ("spread", 2)}
    columns["mean length"] = ("mean_norm", 1)
    scored = [] if best is None or not score_of else [escape(f"{_metric_of(best)}, %")]
    rows = []
    for seed, records in logs.items():
        last, verdict = records[-1] if records else {}, healths[seed].verdict
        figures = [_figure(last.get(name), digits) for name, digits in columns.values()]
        figures += [_figure(score_of.get(seed), 1) for _ in scored]
        rows.append([str(seed), f'<span class="{verdict}">{_pill(verdict)}</span>', *figures])
    return f'<div class="scroll">{table(["seed", "", *columns, *scored], rows, css_class="seeds")}</div>'


def score_tables(tables: Mapping[str, Mapping[str, Evaluation]], left_out: str = "") -> str:
    """One block a protocol: a bar for each candidate, the trained one last."""
    blocks = []
    for protocol, evaluations in tables.items():
        cells = [
            [
                escape(name),
                f'<span class="bar"><i style="width:{max(0.0, min(100.0, one.mean)):.1f}%"></i></span>',
                f"{one.mean:.1f}" + (f" <small>± {one.std:.1f}</small>" if len(one.runs) > 1 else ""),
            ]
            for name, one in evaluations.items()
        ]
        trained = list(evaluations.values())[-1]
        metric = _METRICS.get(trained.metric, trained.metric.capitalize())
        caption = f"<h3>{escape(find_protocol(protocol).title or protocol)} <code>{escape(protocol)}</code></h3>"
        done = note(f"{metric} in %; {re.sub(r'; ari [^,]*', '', trained.detail)}")
        bars = table(["", "", escape(metric)], cells, css_class="scores")
        blocks.append(f'<div class="score">{caption}{bars}{done}</div>')
    return "".join(blocks) + (note(left_out[0].upper() + left_out[1:]) if left_out else "")


def confusion_matrix(found: Confusion, *, seed: int | None = None) -> str:
    """Rows are true classes, columns predicted ones; a cell's shade is its share of the row. A `seed` is named."""
    names, counts = found.names, found.counts
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)

    def cell(i: int, j: int) -> str:
        percent, kind = f"{100 * shares[i, j]:.0f}", "hit" if i == j else "miss"
        title = escape(f"{names[i]} taken for {names[j]}: {counts[i, j]} ({percent} %)")
        text = percent if shares[i, j] >= 0.005 else ""
        return f'<span class="{kind}" style="--share:{shares[i, j]:.3f}" title="{title}">{text}</span>'

    header = ["", *(f"<span>{escape(name)}</span>" for name in names)]
    rows = [[escape(name), *(cell(i, j) for j in range(len(names)))] for i, name in enumerate(names)]
    matrix = f'<div class="scroll">{table(header, rows, css_class="confusion")}</div>'
    lines = "".join(
        f"<li><b>{escape(true)}</b> taken for <b>{escape(predicted)}</b> "
        f"<small>{count:,} nodes, {100 * share:.0f} %</small></li>"
        for true, predicted, count, share in found.mistakes
    )
    confused = f'<div class="mistakes"><h3>Most often confused</h3><ol>{lines}</ol></div>' if lines else ""
    heading = "<h3>Which classes are taken for which, in % of the true class</h3>"
    caption = f"{found.accuracy:.1f} % right: a linear probe on 10 % of the labels, C chosen on 10 %, shown on the rest"
    caption += "" if seed is None else f"; seed {seed}"
    return f'{heading}<div class="beside">{matrix}{confused}</div>{note(caption)}'


def data_statistics(run: Run, graph: Graph | None) -> str:
    info, source = run.info["graph"], run.info["source"]
    names = [str(source[key]) for key in ("dataset", "edges", "nodes") if source.get(key)]
    values: dict[str, Any] = {"source": " and ".join(names) or "given as a Graph"}
    if info.get("name", "graph") != "graph":
        values["name"] = info["name"]
    values |= {"nodes": _count(info.get("num_nodes")), "directed edges": _count(info.get("num_edges"))}
    values["features"] = ", ".join(f"{size:,}" for size in info.get("num_features", [])) or "none"
    values["classes"] = info.get("num_classes") or "none"
    if graph is not None:
        degrees = graph.in_degrees.numpy()
        alone = (degrees == 0) & (graph.transpose.indptr.diff().numpy() == 0)
        values["every edge has its reverse"] = "yes" if graph.is_symmetric else "no"
        values["mean degree"], values["largest degree"] = f"{degrees.mean():.1f}", f"{degrees.max():,}"
        values["nodes without edges"] = f"{int(alone.sum()):,}"
        if graph.labels is not None and graph.labels.dim() == 1:
            values["labelled nodes"] = f"{int((graph.labels >= 0).sum()):,}"
        if len(graph.node_types) > 1:
            sizes = zip(graph.node_types, np.diff(graph.type_offsets).tolist(), strict=True)
            values["node types"] = ", ".join(f"{name} ({size:,})" for name, size in sizes)
    for name, number in info.get("cleaning", {}).items():
        values[name.removeprefix("num_").replace("_", " ")] = _count(number)
    values["fingerprint"] = info["fingerprint"]
    return definitions(values)


def recipe_settings(run: Run, *, seeds: Sequence[int]) -> str:
    """The recipe, section by section."""
    settings = tomllib.loads(run.recipe.to_toml())
    sections = {name: value for name, value in settings.items() if isinstance(value, dict)}
    top = {name: value for name, value in settings.items() if name not in sections}
    sections = {"recipe": {**top, "seed": ", ".join(map(str, seeds))}, **sections}
    return "".join(f"<div><h3>{escape(name)}</h3>{definitions(values)}</div>" for name, values in sections.items())


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


def _metric_of(evaluation: Evaluation) -> str:
    return f"{_METRICS.get(evaluation.metric, evaluation.metric)}, {evaluation.protocol}"


def _pill(verdict: str) -> str:
    return f'<span class="pill">{_VERDICTS[verdict]}</span>'


def _count(number: Any) -> str:
    return f"{number:,}" if isinstance(number, int) else "unknown"


def _figure(value: Any, digits: int) -> str:
    return f"{value:.{digits}f}" if isinstance(value, float) else "–"


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 1 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
