"""The public names: one table of where each lives, which type checkers and `from graphstrap import *` see alike."""

from __future__ import annotations

import ast
from pathlib import Path

import graphstrap


def test_the_table_the_list_and_what_type_checkers_read_agree() -> None:
    source = ast.parse(Path(graphstrap.__file__).read_text(encoding="utf-8"))
    [block] = [node for node in source.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    checked = {
        alias.name: str(node.module).removeprefix("graphstrap.")
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert checked == graphstrap._PUBLIC
    assert set(graphstrap.__all__) == set(graphstrap._PUBLIC)
    assert dir(graphstrap) == sorted(graphstrap.__all__)
