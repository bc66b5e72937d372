"""Damaged files for every reader, by the thousand: each must be read or refused in a sentence, in bounded time and
memory.

    python benchmarks/fuzz.py [--cases 100000] [--minutes 20] [--readers csv npz] [--first-seed 0] [--to FILE.json]

A case is a reader and a seed: the same pair damages the same input in the same way (`tests/fuzz_mutations.py`). Cases
run in child processes with a cap on address space; one that crashes, hangs, runs out of memory or raises anything
but an InputError is a failure, and its seed is printed and kept in the JSON. `tests/test_fuzz.py` keeps past failures.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import select
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent.parent / "tests"
sys.path.insert(0, str(TESTS))

CASE_SECONDS = 30
ROOM_BYTES = 1 << 30  # beyond what the libraries themselves take
BATCH = 1000  # cases a child; leaks show as growth over them


def child(name: str, first: int, count: int) -> None:
    """Run cases one after the other; say which one is next, and how it ended."""
    from fuzz_readers import READERS, run_case

    warnings.simplefilter("error")
    report = sys.stdout
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=place) as folder:
        good, work = Path(folder) / "good", Path(folder) / "work"
        good.mkdir()
        READERS[name].make(good)
        READERS[name].read(good)  # a good input is read; it also loads what is imported late
        limit = _address_space() + ROOM_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        for seed in range(first, first + count):
            print(f"next {seed}", file=report, flush=True)
            begin = time.monotonic()
            try:
                outcome, why = run_case(name, seed, good, work), ""
            except BaseException as error:
                outcome, why = "failed", f"{type(error).__name__}: {str(error)[:200]} {_place(error)}"
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            print(
                json.dumps({"outcome": outcome, "why": why, "seconds": time.monotonic() - begin, "peak_kb": peak}),
                file=report,
                flush=True,
            )


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _place(error: BaseException) -> str:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "graphstrap" in f.filename]
    return f"at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""


def run_batch(name: str, first: int, count: int, found: dict[str, Any], until: float) -> int:
    """Run a batch in a child; how many cases were run. After a crash or a hang the next batch starts behind it."""
    command = [sys.executable, __file__, "--child", name, str(first), str(count)]
    done, current, said = 0, first, b""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
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
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child[0], int(options.child[1]), int(options.child[2]))
        return
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
            command = f"python benchmarks/fuzz.py --cases {options.cases} --readers {' '.join(names)}"
            _write(options.to, command, found, time.monotonic() - begin, options.first_seed)
    total = sum(one["cases"] for one in found.values())
    failed = sum(one["failed"] for one in found.values())
    print(f"{total:,} cases over {len(names)} readers in {time.monotonic() - begin:.0f} s, {failed} failures")
    raise SystemExit(1 if failed else 0)


def _write(path: Path, command: str, found: dict[str, Any], seconds: float, first_seed: int) -> None:
    from graphstrap.environment import describe_environment, describe_git

    result = {
        "command": command,
        "cases": sum(one["cases"] for one in found.values()),
        "failed": sum(one["failed"] for one in found.values()),
        "first_seed": first_seed,
        "seconds": round(seconds, 1),
        "case_seconds_limit": CASE_SECONDS,
        "address_space_beyond_libraries_bytes": ROOM_BYTES,
        "readers": found,
        "environment": describe_environment(),
        "git": describe_git(),
    }
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
