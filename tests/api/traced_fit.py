"""Which of our functions `graphstrap fit` on two CSV files calls, and how deep their calls are nested.

python tests/api/traced_fit.py [--deepest] [--files]
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType
from typing import Any

import graphstrap
from graphstrap.cli._app import run as run_command

SOURCE = str(Path(graphstrap.__file__).parent)
_COMPREHENSIONS = ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>")


@dataclass
class Trace:
    """What was called: for each function its file, and the longest chain of calls."""

    functions: dict[CodeType, int] = field(default_factory=dict)  # how often each was called
    deepest: list[str] = field(default_factory=list)

    @property
    def files(self) -> list[str]:
        return sorted({_file(code) for code in self.functions})

    def notice(self, frame: FrameType, event: str, argument: Any) -> None:
        if event != "call" or not _is_ours(frame.f_code):
            return
        self.functions[frame.f_code] = self.functions.get(frame.f_code, 0) + 1
        chain: list[str] = []
        at: FrameType | None = frame
        while at is not None:
            if _is_ours(at.f_code):
                chain.append(f"{_file(at.f_code)}: {at.f_code.co_qualname}")
            at = at.f_back
        if len(chain) > len(self.deepest):
            self.deepest = chain[::-1]


def trace(call: Callable[[], object]) -> Trace:
    """The functions that a call goes through, in all threads."""
    found = Trace()
    threading.setprofile(found.notice)
    sys.setprofile(found.notice)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return found


def trace_fit(folder: Path) -> Trace:
    """`graphstrap fit` on two small tables; once before, so that imports are not counted."""
    edges, nodes = folder / "edges.csv", folder / "nodes.csv"
    edges.write_text("source,target\n" + "".join(f"a{i},a{i * 7 % 60}\n" for i in range(1, 60)))
    nodes.write_text("id,x,y,label\n" + "".join(f"a{i},{i % 5},{i % 3},{'uvw'[i % 3]}\n" for i in range(60)))

    def fit(run: str) -> None:
        command = ["fit", "--edges", str(edges), "--nodes", str(nodes), "--run", str(folder / run), "--quiet"]
        with redirect_stdout(sys.stderr):
            assert run_command([*command, "--device", "cpu", "--set", "train.steps=3"]) == 0

    fit("first")
    return trace(lambda: fit("second"))


def _is_ours(code: CodeType) -> bool:
    """Comprehensions, which Python 3.12 runs within the function around them, are part of it."""
    is_function = bool(code.co_flags & inspect.CO_OPTIMIZED) and code.co_name not in _COMPREHENSIONS
    return is_function and code.co_filename.startswith(SOURCE)


def _file(code: CodeType) -> str:
    return str(Path(code.co_filename).relative_to(SOURCE))


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        found = trace_fit(Path(folder))
    print(f"{len(found.functions)} functions in {len(found.files)} files, {len(found.deepest)} frames deep")
    if "--deepest" in sys.argv:
        print("\n".join(found.deepest))
    if "--files" in sys.argv:
        for file in found.files:
            calls = {code.co_qualname: times for code, times in found.functions.items() if _file(code) == file}
            print(f"{file}: {', '.join(f'{name} {times}' for name, times in calls.items())}")
