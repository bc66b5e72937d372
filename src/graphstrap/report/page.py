"""The page: one HTML file that needs nothing else. Whatever came from a user is escaped on its way in.

text in HTML       html.escape
JSON in a script   <, > and & as \\u escapes: no string can end the element
scripts            named by their hash in the page's content security policy: no other script runs, nothing is
                   fetched
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

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
