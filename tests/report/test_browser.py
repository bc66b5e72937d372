"""The report in a real browser: it opens without a complaint, asks for nothing, and does what a person asks of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from browser import Browser, find_chromium
from conftest import make_communities
from test_build import FAST, fit

from graphstrap.api.estimator import Embedder
from graphstrap.graph import Graph
from graphstrap.report.build import write_report
from graphstrap.run.folder import Run

NASTY = "<script>document.title='stolen'</script>"
pytestmark = pytest.mark.skipif(find_chromium() is None, reason="Chromium is not installed: apt-get install chromium")


def nasty_graph() -> Graph:
    """400 nodes; ids, classes and the name are what an attacker would choose."""
    graph = make_communities(num_nodes=400, num_classes=3, seed=0)
    ids = np.array([f"node-{number:03d}" for number in range(398)] + ["node-1", NASTY])
    classes = ("plain", "</script><img src=x onerror=alert(1)>", '"quoted" & <b>bold</b>')
    return replace(graph, ids=ids, class_names=classes, name="<i>graph</i>")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    graph = nasty_graph()
    model = fit(graph, folder / "run")
    write_report([(Run.open(folder / "run"), model)], folder / "report.html", graph=graph, num_runs=1)
    return folder / "report.html"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with Browser() as made:
        yield made


@pytest.fixture
def browser(chromium: Browser, page: Path) -> Iterator[Browser]:
    """The page, freshly opened; afterwards nothing may have been complained about or asked for."""
    chromium.messages.clear()
    chromium.requests.clear()
    chromium.open(page)
    yield chromium
    assert chromium.messages == []
    asked = {url.partition("?")[0] for url in chromium.requests if not url.startswith("data:")}
    assert asked == {page.as_uri()}


def place(browser: Browser, node: int) -> tuple[float, float]:
    """Where a node is in the window."""
    script = (
        "(() => { const box = document.getElementById('stage').getBoundingClientRect();"
        f"const [x, y] = graphstrap.screenOf({node}); return [box.left + x, box.top + y]; }})()"
    )
    x, y = browser.run(script)
    return x, y


def lit_pixels(browser: Browser) -> int:
    """How many pixels of the map are drawn on: the picture of the stage against its most frequent colour."""
    return int(
        browser.run(
            "(async () => { const canvas = document.getElementById('points'); graphstrap.pan(0, 0);"
            "await new Promise((done) => requestAnimationFrame(() => done()));"
            "const copy = document.createElement('canvas'); copy.width = canvas.width; copy.height = canvas.height;"
            "const context = copy.getContext('2d'); context.drawImage(canvas, 0, 0);"
            "const pixels = context.getImageData(0, 0, copy.width, copy.height).data;"
            "let lit = 0; for (let i = 3; i < pixels.length; i += 4) lit += pixels[i] > 60; return lit; })()"
        )
    )


def test_it_opens_and_draws_every_part(browser: Browser) -> None:
    assert browser.run("document.querySelectorAll('.chart svg path.line').length") == 6
    assert browser.run("document.querySelectorAll('#legend button').length") == 3
    assert "%" in browser.text("#map-notes")


def test_names_that_look_like_code_are_shown_as_text(browser: Browser) -> None:
    browser.run("document.getElementById('search').focus()")
    browser.write("<script>")
    browser.wait("!document.getElementById('matches').hidden")
    assert browser.text("#matches li") == NASTY
    browser.press("Enter")
    assert browser.text("#node h3") == NASTY
    assert browser.text("h1") == "<i>graph</i>"
    assert "</script><img src=x onerror=alert(1)>" in browser.text("#legend")
    assert "stolen" not in browser.run("document.title")
    assert browser.run("document.querySelectorAll('main img, h1 i, #legend b, main script').length") == 0


def test_hovering_shows_a_node_and_clicking_its_neighbours(browser: Browser) -> None:
    x, y = place(browser, 7)
    browser.mouse("mouseMoved", x, y)
    node = browser.run("graphstrap.hovered()")
    assert node >= 0
    assert browser.text("#tooltip b") == f"node-{node:03d}"
    assert "degree" in browser.text("#tooltip")
    browser.click(x, y)
    assert browser.run("graphstrap.selected()") == node
    assert browser.run("document.querySelectorAll('#node .nodes:nth-of-type(1) li').length") == 10
    linked = browser.run("document.querySelectorAll('#node .nodes:last-of-type li').length")
    assert linked == min(30, int(nasty_graph().in_degrees[node]))
    second = browser.text("#node .nodes .name")
    browser.run("document.querySelector('#node .nodes button').click()")
    assert browser.text("#node h3") == second


def test_search_by_keys_finds_the_exact_id_first(browser: Browser) -> None:
    browser.press("/")
    assert browser.run("document.activeElement.id") == "search"
    browser.write("node-03")
    browser.press("ArrowDown")
    chosen = browser.text("#matches [aria-selected=true]")
    browser.press("Enter")
    assert browser.text("#node h3") == chosen == "node-031"
    browser.wait("graphstrap.selected() === 31")
    x, y = browser.run("graphstrap.screenOf(31)")
    view = browser.run("graphstrap.view()")
    assert (x, y) == pytest.approx((view["width"] / 2, view["height"] / 2), abs=1)


def test_an_exact_id_comes_before_the_many_that_begin_like_it(browser: Browser) -> None:
    browser.press("/")
    browser.write("node-1")
    browser.press("Enter")
    assert browser.text("#node h3") == "node-1"


def test_the_map_is_moved_by_keys_wheel_and_dragging(browser: Browser) -> None:
    start = browser.run("graphstrap.view()")
    browser.run("document.getElementById('stage').focus()")
    browser.press("ArrowRight")
    browser.press("+")
    moved = browser.run("graphstrap.view()")
    assert moved["x"] > start["x"]
    assert moved["scale"] == pytest.approx(1.4 * start["scale"])
    browser.press("0")
    assert browser.run("graphstrap.view()")["scale"] == pytest.approx(start["scale"])
    x, y = place(browser, 0)
    browser.call("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=-300)
    browser.wait(f"graphstrap.view().scale > {start['scale']}")
    assert place(browser, 0) == pytest.approx((x, y), abs=2)  # a wheel event comes in whole pixels
    browser.press("0")
    box = browser.run("(({left, top}) => [left, top])(document.getElementById('stage').getBoundingClientRect())")
    browser.mouse("mousePressed", box[0] + 20, box[1] + 20)
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0] + 80, y=box[1] + 50, button="left", buttons=1)
    browser.mouse("mouseReleased", box[0] + 80, box[1] + 50)
    dragged = browser.run("graphstrap.view()")
    assert dragged["x"] == pytest.approx(0.5 - 60 / start["scale"])
    assert browser.run("graphstrap.selected()") == -1


def test_layout_colour_legend_and_theme(browser: Browser) -> None:
    before = browser.run("graphstrap.screenOf(5)")
    browser.run("document.querySelector('#layouts button:last-child').click()")
    browser.wait(f"String(graphstrap.screenOf(5)) !== {json.dumps(','.join(map(str, before)))}")
    browser.run("document.querySelector('#legend button').click()")
    assert browser.run("document.querySelector('#legend button').getAttribute('aria-pressed')") == "true"
    chooser = "document.getElementById('colour')"
    browser.run(f"{chooser}.value = 3; {chooser}.dispatchEvent(new Event('change'))")
    assert browser.text("#legend h3") == "degree"
    browser.run("document.getElementById('theme').click()")
    assert browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(14, 17, 22)"
    browser.run("document.querySelector('[data-axis=seconds]').click()")
    assert " s" in browser.text(".chart svg")


def test_a_narrow_window_has_no_sideways_scrolling(browser: Browser) -> None:
    browser.resize(390, 800)
    browser.wait("graphstrap.view().width < 390")
    assert browser.run("document.documentElement.scrollWidth") <= 390
    top = browser.run("document.querySelector('aside').getBoundingClientRect().top")
    assert top > browser.run("document.getElementById('stage').getBoundingClientRect().bottom")


def test_dark_is_what_the_system_asks_for(browser: Browser, page: Path) -> None:
    browser.open(page, dark=True)
    assert browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(14, 17, 22)"


@pytest.mark.parametrize("kind", ["webgl", "canvas"])
def test_both_ways_of_drawing_show_every_node(browser: Browser, page: Path, kind: str) -> None:
    browser.open(page, query=f"?{kind}")
    assert browser.run("graphstrap.kind") == kind
    assert 1000 < lit_pixels(browser) < 60_000
    x, y = place(browser, 3)
    browser.click(x, y)
    assert browser.run("graphstrap.selected()") >= 0


def test_several_seeds_have_bands_and_rows_and_a_cut_run_has_no_map(chromium: Browser, tmp_path: Path) -> None:
    graph = make_communities(num_nodes=60, num_classes=2, seed=0)
    models = [
        Embedder(settings=FAST, device="cpu", seed=seed).fit(graph, run=tmp_path / f"seed-{seed}") for seed in range(2)
    ]
    runs = [Run.open(tmp_path / f"seed-{seed}") for seed in range(2)]
    chromium.messages.clear()
    write_report(list(zip(runs, models, strict=True)), tmp_path / "two.html", graph=graph, num_runs=1)
    chromium.open(tmp_path / "two.html")
    assert chromium.run("document.querySelectorAll('.chart svg path.band').length") == 4
    assert chromium.run("document.querySelectorAll('table.seeds tbody tr').length") == 2
    assert " to " in chromium.text(".chart output")
    chromium.resize(390, 800)
    chromium.wait("innerWidth === 390 && document.documentElement.scrollWidth <= 390")
    write_report([(runs[0], None)], tmp_path / "cut.html")
    chromium.open(tmp_path / "cut.html")
    assert "no model" in chromium.text("main")
    assert chromium.run("document.getElementById('map-section').hidden") is True
    assert chromium.messages == []
