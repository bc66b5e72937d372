"""Damaged files for every reader, by the thousand: each must be read or refused in a sentence, in bounded time and
memory.

    python lab/benchmarks/fuzz.py [--cases 100000] [--minutes 20] [--readers csv npz] [--first-seed 0] [--to FILE.json]

A case is a reader and a seed: the same pair damages the same input in the same way (`tests/fuzz_mutations.py`). Cases
run in child processes with a cap on address space; one that crashes, hangs, takes 256 MB or raises anything but an
InputError is a failure, and its seed is printed and kept in the JSON. `tests/test_fuzz.py` keeps past failures.
The JSON is written after every batch. Damaged files lie in memory (`/dev/shm`) or in the folder of TMPDIR; they go when
a child ends, however it ends, and a run that was killed is tidied up after by the next.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[2] / "tests"
sys.path.insert(0, str(TESTS))

CASE_SECONDS = 30
ROOM_BYTES = 1 << 30  # beyond what the libraries themselves take
GREED_BYTES = 1 << 28  # resident memory that no case may add: the inputs are a few kB
BATCH = 1000  # cases a child; leaks show as growth over them


def child(name: str, first: int, count: int, folder: Path) -> None:
    """Run cases one after the other; say which one is next, and how it ended."""
    from fuzz_readers import READERS, run_case
    from graphstrap.train.parallel.workers import end_with_parent

    end_with_parent()
    warnings.simplefilter("error")
    good, work = folder / "good", folder / "work"
    good.mkdir()
    READERS[name].make(good)
    READERS[name].read(good)  # a good input is read; it also loads what is imported late
    limit = _address_space() + ROOM_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for seed in range(first, first + count):
        print(f"next {seed}", flush=True)
        begin, before = time.monotonic(), _peak_kb()
        try:
            outcome, why = run_case(name, seed, good, work), ""
        except BaseException as error:
            outcome, why = "failed", f"{type(error).__name__}: {str(error)[:200]} {_place(error)}"
        peak = _peak_kb()
        if peak - before > GREED_BYTES >> 10:  # where an error hides that memory ran out
            outcome, why = "failed", f"took {(peak - before) >> 10} MB, and was {outcome} {why}"
        ended = {"outcome": outcome, "why": why, "seconds": time.monotonic() - begin, "peak_kb": peak}
        print(json.dumps(ended), flush=True)


def _peak_kb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def room() -> Path:
    """Where folders of damaged files are made."""
    return Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else Path(tempfile.gettempdir())


def tidy_up() -> None:
    """Remove the folders of fuzzers that are no more: their names begin with the number of a process."""
    for folder in room().glob("graphstrap-fuzz-*-*"):
        if not Path(f"/proc/{folder.name.split('-')[2]}").exists():
            shutil.rmtree(folder, ignore_errors=True)


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _place(error: BaseException) -> str:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "graphstrap" in f.filename]
    return f"at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""


def run_batch(name: str, first: int, count: int, found: dict[str, Any], until: float) -> int:
    """Run a batch in a child; how many cases were run. After a crash or a hang the next batch starts behind it."""
    folder = tempfile.mkdtemp(prefix=f"graphstrap-fuzz-{os.getpid()}-", dir=room())
    command = [sys.executable, __file__, "--child", name, str(first), str(count), folder]
    try:
        return _run_batch(command, name, first, count, found, until)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run_batch(command: list[str], name: str, first: int, count: int, found: dict[str, Any], until: float) -> int:
    done, current, said = 0, first, b""
    environment = {**os.environ, "GRAPHSTRAP_PARENT": str(os.getpid())}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, env=environment) as process, _ended(process):
        assert process.stdout is not None
        why = "crashed"
        deadline = time.monotonic() + 120  # imports
        while True:
            ready, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            piece = os.read(process.stdout.fileno(), 1 << 16) if ready else b""
            if not piece:
                why = why if ready else f"no end after {CASE_SECONDS} s"
                process.kill()
                break
            deadline = time.monotonic() + CASE_SECONDS
            *lines, said = (said + piece).split(b"\n")
            for line in lines:
                if line.startswith(b"next "):
                    current = int(line[5:])
                    continue
                one = json.loads(line)
                done += 1
                found[one["outcome"]] += 1
                found["slowest_seconds"] = max(found["slowest_seconds"], round(one["seconds"], 3))
                found["peak_mb"] = max(found["peak_mb"], one["peak_kb"] // 1024)
                if one["outcome"] == "failed":
                    _note(name, found, current, one["why"])
            if time.monotonic() > until:
                process.kill()
                return done
        process.wait()
        if done < count:
            assert process.stderr is not None
            last = process.stderr.read().decode(errors="replace").strip().splitlines()[-1:]
            _note(name, found, current, f"{why} ({process.returncode}) {' '.join(last)[:200]}")
            found["failed"] += 1
            done = current - first + 1
    return done


@contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """It does not outlive the block, whatever ends that."""
    try:
        yield
    finally:
        process.kill()


def _note(name: str, found: dict[str, Any], seed: int, why: str) -> None:
    found["failures"].append({"seed": seed, "why": why})
    print(f"{name} {seed}: {why}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--readers", nargs="*")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--to", type=Path)
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child[0], int(options.child[1]), int(options.child[2]), Path(options.child[3]))
        return
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    tidy_up()
    from fuzz_readers import READERS

    names = options.readers or list(READERS)
    shares = {name: READERS[name].share / sum(READERS[n].share for n in names) for name in names}
    begin, until = time.monotonic(), time.monotonic() + 60 * options.minutes
    zero = {"cases": 0, "read": 0, "refused": 0, "failed": 0, "slowest_seconds": 0.0, "peak_mb": 0}
    found: dict[str, Any] = {name: {**zero, "failures": []} for name in names}
    while time.monotonic() < until:
        left = {name: round(options.cases * shares[name]) - found[name]["cases"] for name in names}
        name = max(names, key=lambda one: left[one] / shares[one] if left[one] > 0 else 0.0)
        if left[name] <= 0:
            break
        first = options.first_seed + found[name]["cases"]
        found[name]["cases"] += run_batch(name, first, min(BATCH, left[name]), found[name], until)
        if options.to is not None:
            command = f"python lab/benchmarks/fuzz.py --cases {options.cases} --readers {' '.join(names)}"
            _write(options.to, command, found, time.monotonic() - begin, options.first_seed)
    total = sum(one["cases"] for one in found.values())
    failed = sum(one["failed"] for one in found.values())
    print(f"{total:,} cases over {len(names)} readers in {time.monotonic() - begin:.0f} s, {failed} failures")
    raise SystemExit(1 if failed else 0)


def _write(path: Path, command: str, found: dict[str, Any], seconds: float, first_seed: int) -> None:
    from graphstrap.run.environment import describe_environment, describe_git

    result = {
        "command": command,
        "cases": sum(one["cases"] for one in found.values()),
        "failed": sum(one["failed"] for one in found.values()),
        "first_seed": first_seed,
        "seconds": round(seconds, 1),
        "case_seconds_limit": CASE_SECONDS,
        "memory_limit_bytes": GREED_BYTES,
        "address_space_beyond_libraries_bytes": ROOM_BYTES,
        "readers": found,
        "environment": describe_environment(),
        "git": describe_git(),
    }
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
