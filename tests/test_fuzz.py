"""Damaged files of every kind are read or refused in a sentence; `lab/benchmarks/fuzz.py` runs many more."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fuzz_readers import READERS, run_case

# Cases that once crashed, hung, or came out as something else than a sentence. They stay.
PAST_FAILURES = {
    "csv": [48, 65, 2793],  # a pipe instead of a file: waited for ever; a name of 10 kB, said twice
    "npz-types": [347, 559, 798],  # 17 GB for nodes that are only counted
    "wikics": [466, 1184],  # a feature too large for float32, one number for all features
    "ppi": [41, 71, 98, 130, 175, 220, 243, 264],  # NaN ids, labels that are no labels
    "ogb": [67, 72, 88, 99, 103, 124],  # arrays of no numbers, shapes and values too large, an id far beyond the others
    "ogb-csv": [69, 493],  # a table without rows, a cell without a number
    "ogb-npz": [1, 10, 50, 129],  # all of /dev/zero as an archive, shapes too large, no shape, float16
    "checkpoint": [200, 1, 7, 18, 26, 34, 62, 63, 101, 192, 196, 198, 213, 234, 272],  # steps, moments, log lines
    "run": [8, 12, 19, 26, 40, 134, 239, 257, 271],  # log lines that are no records
    "model": [17, 18, 20, 37, 48, 49, 54, 60, 71, 82, 86, 95, 128, 130, 138, 139, 163, 200, 209, 228, 230],
    "sizes": [
        8,
        12,
        59,
        763,
    ],  # an encoder that the method cannot take apart; 17 GB, or minutes, for a file of a few kB
    "recipe": [118],  # a whole number too large for a float
    "seeds": [69, 295],  # infinity as a seed
    "embeddings": [121, 143],  # bfloat16 under a checksum
}
NUM_FRESH = {"csv": 6, "parquet": 6, "prepare": 2, "ogb": 2, "ogb-csv": 2, "ogb-npz": 2}
GREED_BYTES = 1 << 29


@contextmanager
def little_room() -> Iterator[None]:
    """At most 4 GiB more address space than now: what asks for more fails, and does not bring the machine down."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + (4 << 30), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize("name", READERS)
def test_damaged_files_are_read_or_refused(name: str, tmp_path: Path) -> None:
    good = tmp_path / "good"
    good.mkdir()
    READERS[name].make(good)
    READERS[name].read(good)
    for entry in ("store", ".store.building"):
        assert not (good / entry).exists()
    seeds = [*PAST_FAILURES.get(name, []), *range(10_000_000, 10_000_000 + NUM_FRESH.get(name, 25))]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with little_room():
        outcomes = {run_case(name, seed, good, tmp_path / "work") for seed in seeds}
    assert "refused" in outcomes
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < GREED_BYTES >> 10


def test_a_case_is_the_same_every_time(tmp_path: Path) -> None:
    good = tmp_path / "good"
    good.mkdir()
    READERS["npz"].make(good)
    contents = []
    for number in range(2):
        work = tmp_path / f"work-{number}"
        run_case("npz", 7, good, work)
        contents.append({p.name: os.stat(p).st_size for p in work.iterdir()})
    assert contents[0] == contents[1]
