from __future__ import annotations

import logging
import platform
import time
from pathlib import Path

import pytest
import torch

from graphstrap.errors import InputError
from graphstrap.graph import Graph
from graphstrap.graph.blocks import SparseMatrix
from graphstrap.io.callgraph import call_graph, split_words, stdlib_graph, stdlib_version

SOURCE = {
    "shop/__init__.py": """
        from .cart import Cart as Basket
        from . import money

        def open_shop():
            basket = Basket()
            basket.add(money.parse("1"))
            return unknown(basket)
        """,
    "shop/cart.py": """
        import shop.money
        from shop.money import *
        from ..outside import nothing

        class Container:
            def __init__(self): self.clear()
            def clear(self): pass
            @classmethod
            def make(cls): return cls()
            @staticmethod
            def measure(self): return self.clear()

        class Cart(Container):
            limit = property(lambda self: self.total())

            def add(self, price):
                self.check(price)
                self.history.note(price)
                super().clear()
                return shop.money.parse(price)

            def check(self, price):
                def is_small(value):
                    return value < 1 or self.clear()
                return is_small(price)

            def total(self):
                self.history = Journal()
                return sum_up(self.history)

            sum = total

        class Journal:
            def note(self, price): parse = len; return parse(price)
            def close(self): return Cart.make() or self.close()
        """,
    "shop/money.py": '''
        def parse(text):
            """Calls nothing: not even close() in its string."""
            return float(text)

        def sum_up(items):
            with Ledger() as ledger:
                ledger.write(items)
            return [parse(item) for item in items]

        class Ledger:
            def write(self, items):
                self.__class__.write(self, items)

        if True:
            def choose(): return parse("1")
        else:
            def choose(): return sum_up([])

        add_all = sum_up

        def use(total):
            return add_all(total) and choose() and use(total)
        ''',
    "shop/tests/test_cart.py": "def test_nothing(): pass",
}

CALLS = {
    ("shop.open_shop", "shop.cart.Container.__init__"),
    ("shop.open_shop", "shop.cart.Cart.add"),
    ("shop.open_shop", "shop.money.parse"),
    ("shop.cart.Container.__init__", "shop.cart.Container.clear"),
    ("shop.cart.Container.make", "shop.cart.Container.__init__"),
    ("shop.cart.Cart.add", "shop.cart.Cart.check"),
    ("shop.cart.Cart.add", "shop.cart.Journal.note"),
    ("shop.cart.Cart.add", "shop.cart.Container.clear"),
    ("shop.cart.Cart.add", "shop.money.parse"),
    ("shop.cart.Cart.check", "shop.cart.Cart.check.is_small"),
    ("shop.cart.Cart.check.is_small", "shop.cart.Container.clear"),
    ("shop.cart.Cart.total", "shop.money.sum_up"),
    ("shop.cart.Journal.close", "shop.cart.Container.make"),
    ("shop.money.sum_up", "shop.money.Ledger.write"),
    ("shop.money.sum_up", "shop.money.parse"),
    ("shop.money.choose", "shop.money.parse"),
    ("shop.money.choose#2", "shop.money.sum_up"),
    ("shop.money.use", "shop.money.sum_up"),
    ("shop.money.use", "shop.money.choose#2"),
}


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    for name, text in SOURCE.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        indent = len(text) - len(text.lstrip("\n ")) - text.startswith("\n")
        lines = [line[indent:] if line[:indent].isspace() else line for line in text.split("\n")]
        path.write_text("\n".join(lines), encoding="utf-8")
    return tmp_path / "shop"


def calls_of(graph: Graph) -> set[tuple[str, str]]:
    names = graph.external_ids.tolist()
    edges = zip(graph.indices.tolist(), graph.targets.tolist(), strict=True)
    return {(names[source], names[target]) for source, target in edges}


def small_graph(path: Path | str) -> Graph:
    return call_graph(path, directed=True, min_functions_per_word=1, max_word_share=1.0, min_functions_per_class=1)


def test_every_call_is_resolved_and_no_other(shop: Path) -> None:
    assert calls_of(small_graph(shop)) == CALLS


def test_undirected_is_the_default(shop: Path) -> None:
    graph = call_graph(shop)
    assert graph.is_symmetric
    assert calls_of(graph) == CALLS | {(target, source) for source, target in CALLS}


def test_nodes_are_in_the_order_of_the_source_and_tests_are_left_out(shop: Path) -> None:
    names = small_graph(shop).external_ids.tolist()
    assert names[:3] == ["shop.open_shop", "shop.cart.Container.__init__", "shop.cart.Container.clear"]
    assert names[-4:] == ["shop.money.Ledger.write", "shop.money.choose", "shop.money.choose#2", "shop.money.use"]
    assert len(names) == len(set(names)) == 17
    assert "shop.tests.test_cart.test_nothing" in call_graph(shop, exclude=()).external_ids.tolist()


def test_features_are_words_of_signature_and_body(shop: Path) -> None:
    graph = small_graph(shop)
    assert isinstance(graph.x, SparseMatrix)
    assert graph.feature_names is not None
    row = graph.external_ids.tolist().index("shop.cart.Cart.add")
    words = {graph.feature_names[column] for column in graph.x.to_dense()[row].nonzero()[:, 0].tolist()}
    assert words == {"add", "self", "price", "check", "history", "note", "super", "clear", "shop", "money", "parse"}
    parse = graph.external_ids.tolist().index("shop.money.parse")
    assert graph.x.to_dense()[parse].sum() == 3  # parse, text, float: neither its module nor its string
    assert bool((graph.x.values == 1).all())


def test_rare_and_common_words_are_left_out(shop: Path) -> None:
    graph = call_graph(shop, min_functions_per_word=3, max_word_share=0.4)
    assert isinstance(graph.x, SparseMatrix)
    counts = graph.x.to_dense().sum(0)
    assert 3 <= counts.min() <= counts.max() <= 0.4 * graph.num_nodes


def test_labels_are_modules_with_enough_functions(shop: Path) -> None:
    graph = call_graph(shop, min_functions_per_class=6, label_depth=2)
    assert graph.class_names == ("shop.cart", "shop.money")
    assert graph.labels is not None
    assert graph.labels.tolist()[0] == -1
    assert torch.bincount(graph.labels[1:]).tolist() == [10, 6]
    assert call_graph(shop).labels is None


def test_a_folder_of_modules_and_a_single_file(shop: Path) -> None:
    (shop / "__init__.py").unlink()
    assert "money.parse" in small_graph(shop).external_ids.tolist()
    assert "money.parse" in small_graph(shop / "money.py").external_ids.tolist()


def test_a_package_is_called_what_its_folder_is_however_it_is_reached(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shop)
    for source in (".", "../shop", "../shop/../shop"):
        assert calls_of(small_graph(source)) == CALLS


def test_two_modules_of_one_name_are_refused(shop: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / "money.py"
    other.parent.mkdir()
    other.write_text("def f(): pass\n", encoding="utf-8")
    with pytest.raises(InputError, match="both money"):
        call_graph(shop / "money.py", other)
    assert call_graph(shop / "money.py", shop.parent / "shop" / ".." / "shop" / "money.py").num_nodes > 0


def test_a_package_comes_before_a_file_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "__init__.py").write_text("def package(): pass\n", encoding="utf-8")
    (tmp_path / "a.py").write_text("def file(): pass\n", encoding="utf-8")
    assert call_graph(tmp_path).external_ids.tolist() == ["a.package"]


def test_a_package_is_found_by_name_and_not_imported(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (shop / "bomb.py").write_text("raise SystemExit('imported')\ndef tick(): pass\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(shop.parent))
    assert "shop.bomb.tick" in call_graph("shop").external_ids.tolist()


def test_files_that_cannot_be_parsed_are_skipped_and_counted(shop: Path, caplog: pytest.LogCaptureFixture) -> None:
    (shop / "broken.py").write_text("def half(:\n", encoding="utf-8")
    (shop / "binary.py").write_bytes(b"x = '\xff\xfe'\n\x00")
    (shop / "deep.py").write_text("x = " + "-" * 5000 + "1\n", encoding="utf-8")
    (shop / "old.py").write_text(r"x = '\d'" + "\n", encoding="utf-8")  # warns, but is no error
    with caplog.at_level(logging.WARNING):
        assert calls_of(small_graph(shop)) == CALLS
    assert "3 of 7 Python files" in caplog.text


def test_loops_of_aliases_imports_and_bases_end(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "from b import *\nfrom b import f\nx = y\ny = x\ndef g(): f(); x(); z()\n", encoding="utf-8"
    )
    (tmp_path / "b.py").write_text(
        "from a import *\nfrom a import f\nclass A(B): pass\nclass B(A): pass\n", encoding="utf-8"
    )
    chain = "\n".join(f"a{number + 1} = a{number}" for number in range(3000))
    (tmp_path / "c.py").write_text(f"from b import A\n{chain}\ndef h(): A(); A.m(); a3000()\n", encoding="utf-8")
    graph = call_graph(tmp_path)
    assert (graph.num_nodes, graph.num_edges) == (2, 0)


def test_reading_twice_gives_the_same_graph(shop: Path) -> None:
    first, second = small_graph(shop), small_graph(shop)
    assert first.fingerprint == second.fingerprint
    assert first.feature_names == second.feature_names


@pytest.mark.parametrize(
    ("identifier", "words"),
    [
        ("snake_case_name", ["snake", "case", "name"]),
        ("parseHTTPHeader", ["parse", "http", "header"]),
        ("__init__", ["init"]),
        ("CamelCase", ["camel", "case"]),
        ("x1", []),
        ("utf8_decode", ["utf", "decode"]),
        ("MAX_SIZE", ["max", "size"]),
    ],
)
def test_identifiers_are_split_into_words(identifier: str, words: list[str]) -> None:
    assert split_words(identifier) == words


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    for sources in ((), (tmp_path,), (tmp_path / "none",), ("no_such_package",)):
        with pytest.raises(InputError):
            call_graph(*sources)


def test_the_standard_library() -> None:
    begin = time.perf_counter()
    graph = stdlib_graph()
    assert time.perf_counter() - begin < 120  # 5 s when nothing else runs
    names = graph.external_ids.tolist()
    assert "statistics.mean" in names
    assert "collections.OrderedDict.popitem" in names
    assert ("statistics.pvariance", "statistics._ss") in calls_of(graph)
    assert not any(name.startswith(("test.", "idlelib.", "site-packages")) or ".tests." in name for name in names)
    assert 12_000 < graph.num_nodes < 20_000
    assert 12_000 < graph.num_edges // 2 < 30_000
    assert 1_000 < graph.num_features[0] < 2_500
    assert 30 <= graph.num_classes <= 60
    assert graph.labels is not None
    assert float((graph.labels >= 0).float().mean()) > 0.6
    same = graph.labels[graph.indices.long()] == graph.labels[graph.targets]
    assert float(same.float().mean()) > 0.6  # most calls stay within a module
    assert graph.name == "stdlib"
    assert stdlib_version() == stdlib_version()
    assert stdlib_version().startswith(f"{platform.python_version()}-")
