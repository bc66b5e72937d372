"""How much of Graphstrap does one `graphstrap fit` on two CSV files pass: files, functions, the deepest stack?

    python lab/benchmarks/trace_fit.py [--deepest] > trace.json

A profile function in every thread of this process notes the calls of functions in src/graphstrap. Calls made while a
module is being imported do not count, and comprehensions count as frames but not as functions. One line on stderr, JSON
on stdout: functions by file, and the deepest stack of our own frames.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
from collections import defaultdict
from contextlib import redirect_stdout
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

import graphstrap
from graphstrap.cli import main as graphstrap_main

SOURCE = str(Path(graphstrap.__file__).parent) + os.sep


def write_tables(folder: Path, *, num_nodes: int = 300) -> None:
    """Two columns of features, labels, and edges mostly within the classes."""
    random = np.random.default_rng(0)
    rows = [f"n{i},{random.normal(i % 3):.3f},{random.integers(5)},l{i % 3}" for i in range(num_nodes)]
    (folder / "nodes.csv").write_text("\n".join(["id,age,pay,label", *rows]) + "\n", encoding="utf-8")
    pairs = [(i, (i + 3 * random.integers(1, 20)) % num_nodes) for i in range(num_nodes) for _ in range(4)]
    edges = [f"n{source},n{target}" for source, target in pairs]
    (folder / "edges.csv").write_text("\n".join(["source,target", *edges]) + "\n", encoding="utf-8")


class Trace:
    """The functions of src/graphstrap that were called, by file, and the deepest stack of them."""

    def __init__(self) -> None:
        self.functions: defaultdict[str, set[str]] = defaultdict(set)
        self.deepest: list[CodeType] = []

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event != "call" or not frame.f_code.co_filename.startswith(SOURCE):
            return
        stack: list[CodeType] = []
        above: FrameType | None = frame
        while above is not None:
            if above.f_code.co_filename.startswith("<frozen importlib"):
                return
            if above.f_code.co_filename.startswith(SOURCE):
                stack.append(above.f_code)
            above = above.f_back
        functions = self.functions[frame.f_code.co_filename]
        if not frame.f_code.co_name.startswith("<"):
            functions.add(frame.f_code.co_qualname)
        if len(stack) > len(self.deepest):
            self.deepest = stack[::-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--deepest", action="store_true", help="also show the deepest stack on stderr")
    show_deepest = parser.parse_args().deepest
    trace = Trace()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_tables(folder)
        tables = ["--edges", str(folder / "edges.csv"), "--nodes", str(folder / "nodes.csv")]
        few = ["--set", "train.steps=20", "--device", "cpu"]
        sys.argv = ["graphstrap", "fit", *tables, "--run", str(folder / "run"), *few]
        threading.setprofile(trace)
        sys.setprofile(trace)
        try:
            with redirect_stdout(sys.stderr):
                code = graphstrap_main()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    assert code == 0
    functions = {name.removeprefix(SOURCE): sorted(found) for name, found in sorted(trace.functions.items())}
    deepest = [f"{one.co_filename.removeprefix(SOURCE)}: {one.co_qualname}" for one in trace.deepest]
    num_functions = sum(map(len, functions.values()))
    print(f"{num_functions} functions in {len(functions)} files, {len(deepest)} frames deep", file=sys.stderr)
    if show_deepest:
        print("\n".join(deepest), file=sys.stderr)
    numbers = {"num_functions": num_functions, "num_files": len(functions), "num_frames": len(deepest)}
    print(json.dumps({**numbers, "deepest": deepest, "functions": functions}, indent=1))


if __name__ == "__main__":
    main()
