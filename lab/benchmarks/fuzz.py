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

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path

from harness import REPOSITORY, Record, Row, run

sys.path[:0] = [str(REPOSITORY / "tests"), str(REPOSITORY)]  # for fuzz_readers and what it imports

CASE_SECONDS = 30
ROOM_BYTES = 1 << 30  # beyond what the libraries themselves take
GREED_BYTES = 1 << 28  # resident memory that no case may add: the inputs are a few kB
BATCH = 1000  # cases a child; leaks show as growth over them


def run_cases(name: str, first: int, count: int, folder: Path) -> None:
    """Run cases one after the other; say how each ended."""
    from fuzz_readers import READERS, run_case
    from graphstrap.train.parallel.workers import end_with_parent

    end_with_parent()
    warnings.simplefilter("error")
    signal.alarm(120)  # for imports; nothing handles the signal, so it ends the process
    good, work = folder / "good", folder / "work"
    good.mkdir()
    READERS[name].make(good)
    READERS[name].read(good)  # a good input is read; it also loads what is imported late
    limit = address_space() + ROOM_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for seed in range(first, first + count):
        signal.alarm(CASE_SECONDS)
        begin, before = time.monotonic(), peak_kb()
        try:
            outcome, why = run_case(name, seed, good, work), ""
        except BaseException as error:
            outcome, why = "failed", f"{type(error).__name__}: {str(error)[:200]} {place_of(error)}"
        peak = peak_kb()
        if peak - before > GREED_BYTES >> 10:  # where an error hides that memory ran out
            outcome, why = "failed", f"took {(peak - before) >> 10} MB, and was {outcome} {why}"
        ended = {"outcome": outcome, "why": why, "seconds": time.monotonic() - begin, "peak_kb": peak}
        print(json.dumps(ended), flush=True)


def peak_kb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def room() -> Path:
    """Where folders of damaged files are made."""
    return Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else Path(tempfile.gettempdir())


def tidy_up() -> None:
    """Remove the folders of fuzzers that are no more: their names begin with the number of a process."""
    for folder in room().glob("graphstrap-fuzz-*-*"):
        if not Path(f"/proc/{folder.name.split('-')[2]}").exists():
            shutil.rmtree(folder, ignore_errors=True)


def address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def place_of(error: BaseException) -> str:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "graphstrap" in f.filename]
    return f"at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""


def run_batch(name: str, first: int, count: int, found: Row, until: float) -> int:
    """Run a batch in a child; how many cases were run. After a crash or a hang the next batch starts behind it."""
    done, pipe = 0, subprocess.PIPE
    environment = {**os.environ, "GRAPHSTRAP_PARENT": str(os.getpid())}
    prefix = f"graphstrap-fuzz-{os.getpid()}-"
    with tempfile.TemporaryDirectory(prefix=prefix, dir=room(), ignore_cleanup_errors=True) as folder:
        words = [sys.executable, __file__, "--child", name, str(first), str(count), folder]
        with subprocess.Popen(words, stdout=pipe, stderr=pipe, env=environment, text=True) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            try:
                for line in process.stdout:
                    one = json.loads(line)
                    found[one["outcome"]] += 1
                    found["slowest_seconds"] = max(found["slowest_seconds"], round(one["seconds"], 3))
                    found["peak_mb"] = max(found["peak_mb"], one["peak_kb"] // 1024)
                    if one["outcome"] == "failed":
                        note_failure(name, found, first + done, one["why"])
                    done += 1
                    if time.monotonic() > until:
                        return done
                process.wait()
            finally:
                process.kill()  # it does not outlive this function, whatever ends that
            if done == count:
                return done
            last = process.stderr.read().strip().splitlines()[-1:]
    why = f"no end after {CASE_SECONDS} s" if process.returncode == -signal.SIGALRM else "crashed"
    note_failure(name, found, first + done, f"{why} ({process.returncode}) {' '.join(last)[:200]}")
    found["failed"] += 1
    return done + 1


def note_failure(name: str, found: Row, seed: int, why: str) -> None:
    found["failures"].append({"seed": seed, "why": why})
    print(f"{name} {seed}: {why}", file=sys.stderr, flush=True)


def main(
    *,
    cases: int = 100_000,
    minutes: float = 60.0,
    readers: Sequence[str] = (),
    first_seed: int = 0,
    to: Path | None = None,
    child: Sequence[str] = (),
) -> None:
    """`child` is for the processes that this one starts."""
    if child:
        run_cases(child[0], int(child[1]), int(child[2]), Path(child[3]))
        return
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    tidy_up()
    from fuzz_readers import READERS

    names = readers or list(READERS)
    shares = {name: READERS[name].share / sum(READERS[n].share for n in names) for name in names}
    begin, until = time.monotonic(), time.monotonic() + 60 * minutes
    zero = {"cases": 0, "read": 0, "refused": 0, "failed": 0, "slowest_seconds": 0.0, "peak_mb": 0}
    found: dict[str, Row] = {name: {"reader": name, **zero, "failures": []} for name in names}
    limits: Row = {"case_seconds_limit": CASE_SECONDS, "memory_limit_bytes": GREED_BYTES}
    limits |= {"address_space_beyond_libraries_bytes": ROOM_BYTES}
    record = Record(to, "fuzz", first_seed=first_seed, **limits)
    record.rows = list(found.values())
    total: Row = {}
    while time.monotonic() < until:
        left = {name: round(cases * shares[name]) - found[name]["cases"] for name in names}
        name = max(names, key=lambda one: left[one] / shares[one] if left[one] > 0 else 0.0)
        if left[name] <= 0:
            break
        first = first_seed + found[name]["cases"]
        found[name]["cases"] += run_batch(name, first, min(BATCH, left[name]), found[name], until)
        total = {key: sum(one[key] for one in record.rows) for key in ("cases", "failed")}
        record.write(**total, seconds=round(time.monotonic() - begin, 1))
    print(f"{total} over {len(names)} readers in {time.monotonic() - begin:.0f} s")
    raise SystemExit(1 if total["failed"] else 0)


if __name__ == "__main__":
    run(main)
