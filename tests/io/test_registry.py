"""Names: our own, those registered in a program, and those that an installed package promises."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from types import ModuleType
from typing import Any

import pytest

from graphstrap.errors import InputError
from graphstrap.io.registry import Registry


def make_registry(**plugins: str) -> Registry[Any]:
    registry: Registry[Any] = Registry("thing", group="graphstrap.things", own={"path": "pathlib:Path"})
    registry.__dict__["_plugins"] = {
        name: EntryPoint(name, value, "graphstrap.things") for name, value in plugins.items()
    }
    return registry


def test_what_is_registered_is_found_and_can_be_replaced_and_forgotten() -> None:
    registry = make_registry()
    assert registry.register("one")(1) == 1
    assert (registry.get("one"), "one" in registry, registry.names()) == (1, True, ["path", "one"])
    registry.register("one")(2)
    assert registry.get("one") == 2
    registry.forget("one")
    assert "one" not in registry


def test_own_names_are_imported_when_asked_for_and_belong_to_us() -> None:
    registry = make_registry()
    assert registry.is_own("path")
    assert registry.get("path").__name__ == "Path"
    with pytest.raises(InputError, match="thing 'path' is Graphstrap's own"):
        registry.register("path")(object)


def test_an_unknown_name_is_answered_by_the_nearest() -> None:
    with pytest.raises(InputError, match=r"there is no thing 'pat'; did you mean 'path'\?.*path"):
        make_registry().get("pat")


def test_a_plugin_is_an_attribute_or_a_module_that_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = make_registry(attribute="a_plugin:VALUE", module="a_plugin", missing="a_plugin:nothing")
    module = ModuleType("a_plugin")
    module.VALUE = 3  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "a_plugin", module)
    assert registry.get("attribute") == 3
    with pytest.raises(InputError, match="does not register the thing 'module'"):
        registry.get("module")
    registry.register("module")(4)
    assert registry.get("module") == 4
    with pytest.raises(InputError, match="has no 'nothing'"):
        registry.get("missing")


def test_a_broken_plugin_is_named_and_breaks_nothing_else() -> None:
    registry = make_registry(broken="no_such_module_anywhere:x")
    with pytest.raises(InputError, match="thing 'broken' of no_such_module_anywhere cannot be imported"):
        registry.get("broken")
    assert registry.get("path")
