"""Nothing that a user wrote can become part of the page but as text."""

from __future__ import annotations

import json

from graphstrap.report.page import SCRIPTS, asset, definitions, escape, fill_page, script_json, table

NASTY = "</script><script>alert(1)</script><!-- & \u2028 \" ' {{style}}"


def test_json_cannot_end_its_element() -> None:
    text = script_json({NASTY: [NASTY]})
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {NASTY: [NASTY]}


def test_text_in_html_is_escaped() -> None:
    for made in (definitions({NASTY: NASTY}), escape(NASTY)):
        assert "<script" not in made
        assert '"' not in made


def test_the_first_cell_of_a_row_is_its_heading() -> None:
    made = table(["", "a"], [["one", "1"]])
    assert '<th scope="row">one</th><td>1</td>' in made


def test_what_is_filled_in_is_not_filled_again() -> None:
    names = (
        "title",
        "folder",
        "method",
        "headline",
        "tiles",
        "seeds",
        "no_map",
        "scores",
        "confusion",
        "recipe",
        "statistics",
    )
    page = fill_page(dict.fromkeys((*names, "environment"), escape(NASTY)), data={"a": NASTY}, block="AAAA")
    assert page.count("{{style}}") == len(names) + 2 + 1  # the title stands twice; the last is in the JSON
    assert "alert(1)</script>" not in page
    assert page.count("<script") == 3


def test_assets_name_no_address_but_that_of_svg() -> None:
    for name in (*SCRIPTS, "report.css", "page.html"):
        text = asset(name).replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text
        assert "https://" not in text
        assert "innerHTML" not in text
