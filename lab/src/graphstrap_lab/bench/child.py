"""Work in a fresh process: `python -m graphstrap.bench.child MODULE:FUNCTION '{"argument": value}'` prints a JSON
value."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from graphstrap.errors import InputError


def run_in_child(function: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """What the function returns when it is called with these arguments by a process of its own."""
    source = Path(__file__).resolve().parents[2]
    paths = [str(source), *filter(None, [os.environ.get("PYTHONPATH")])]
    command = [sys.executable, "-m", "graphstrap_lab.bench.child", function, json.dumps(arguments)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode != 0:
        last_line = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise InputError(f"{function} with {arguments} failed in a process of its own: {last_line}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    function, arguments = sys.argv[1:]
    module, _, name = function.partition(":")
    print(json.dumps(getattr(importlib.import_module(module), name)(**json.loads(arguments))))


if __name__ == "__main__":
    main()
