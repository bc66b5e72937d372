"""A graph of Parquet tables that is larger than memory: prepared, trained on samples and embedded under a cap.

    python lab/benchmarks/large.py                    # 20 million nodes, 200 million edges: needs about 40 GB of disk
    python lab/benchmarks/large.py --scale 0.05       # a twentieth of it

The tables are synthetic: 32 feature columns, sources at random, targets with a power-law tail. `prepare`, `fit` (200
sampled steps) and `embed` (layer by layer, 64 columns) run one after the other, each under the cap: in a control group
of its own, as a container has, where the system lets one be made (root), else by RLIMIT_DATA, which is stricter: it
counts addresses that an allocator keeps without memory behind them, of which DuckDB leaves gigabytes. Pages of files
that a command left in memory are dropped before the next one starts: a group is charged only for what it brings in
itself. Reported: seconds, and the most that was owned (VmData), in memory of its own (RssAnon), and in memory with
pages of files, which the system may drop at any time (VmHWM).
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from graphstrap.ops.memory import parse_bytes
from harness import GRAPHSTRAP, RESULTS, Record, Row, options_of, run

NUM_NODES, NUM_EDGES, NUM_COLUMNS = 20_000_000, 200_000_000, 32
_SETTINGS = {
    "sampling.fan_outs": "[10,10]",
    "sampling.batch_size": 1024,
    "encoder.hidden_sizes": "[64]",
    "encoder.embedding_size": 64,
    "encoder.own_features": 0,
    "encoder.batch_norm_statistics": "running",
    "method.predictor_hidden_size": 64,
    "views.edge_drop_probs": "[0.3,0.3]",
}
_MEMORY_GROUPS = (
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),  # version 1
    (Path("/sys/fs/cgroup"), "memory.max"),  # version 2
)


def write_tables(folder: Path, *, num_nodes: int, num_edges: int, threads: int) -> None:
    """edges.parquet and nodes.parquet, by DuckDB; every value is a hash of its row."""
    import duckdb

    with duckdb.connect() as connection:
        connection.execute(f"SET threads = {threads}")
        connection.execute("SET preserve_insertion_order = false")
        unit = "((hash(i + 77) >> 11)::DOUBLE / 9007199254740992.0)"
        ends = f"hash(i) % {num_nodes} AS source, (pow({unit}, 2.0) * {num_nodes})::BIGINT % {num_nodes} AS target"
        connection.execute(f"COPY (SELECT {ends} FROM range({num_edges}) t(i)) TO '{folder / 'edges.parquet'}'")
        columns = ", ".join(
            f"((hash(i * {NUM_COLUMNS} + {k}) % 65536)::FLOAT / 65536 + (i % {k + 2}) / {k + 2}.0)::FLOAT AS f{k}"
            for k in range(NUM_COLUMNS)
        )
        query = f"COPY (SELECT i AS id, {columns} FROM range({num_nodes}) t(i)) TO '{folder / 'nodes.parquet'}'"
        connection.execute(query)


@contextmanager
def capped(num_bytes: int) -> Iterator[tuple[str, Callable[[], object]]]:
    """By what a process can be kept below so many bytes, and what it is to call for that."""
    for root, limit_file in _MEMORY_GROUPS:
        group = root / f"graphstrap-large-{os.getpid()}"
        try:
            group.mkdir()
            (group / limit_file).write_text(str(num_bytes))
        except OSError:  # the system does not let us
            if group.exists():
                group.rmdir()
            continue
        yield "control group", partial((group / "cgroup.procs").write_text, "0")  # 0: the process that writes
        group.rmdir()
        return
    yield "RLIMIT_DATA", partial(resource.setrlimit, resource.RLIMIT_DATA, (num_bytes, num_bytes))


def run_verb(words: list[str], *, cap_bytes: int, threads: int) -> Row:
    """A command of Graphstrap's under the cap, watched while it runs."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MALLOC_ARENA_MAX": "2"}
    peaks = {"VmData": 0, "RssAnon": 0, "VmHWM": 0}
    start = time.perf_counter()
    with capped(cap_bytes) as (capped_by, limit):
        process = subprocess.Popen([*GRAPHSTRAP, *words], env=environment, stdout=sys.stderr, preexec_fn=limit)
        while process.poll() is None:
            with suppress(OSError):  # it may have ended by now
                lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
                sizes = dict(line.split(":", 1) for line in lines if ":" in line)
                for name in peaks:
                    peaks[name] = max(peaks[name], 1024 * int(sizes.get(name, "0 kB").split()[0]))
            time.sleep(0.2)
    seconds = time.perf_counter() - start
    if process.returncode:
        raise SystemExit(f"graphstrap {words[0]} failed with {process.returncode}")
    return {
        "verb": words[0],
        "seconds": round(seconds, 1),
        "capped_by": capped_by,
        "owned_bytes": peaks["VmData"],
        "resident_own_bytes": peaks["RssAnon"],
        "resident_bytes": peaks["VmHWM"],
    }


def forget_pages(folder: Path) -> None:
    """Have the system drop what it holds of the files' contents."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def main(
    *,
    scale: float = 1.0,
    memory: str = "6GB",
    threads: int = 2,
    steps: int = 200,
    feature_dtype: str = "fp16",
    folder: Path | None = None,
    to: Path = RESULTS / "large.json",
) -> None:
    """`folder` is where to work and to leave everything; without it all is removed."""
    num_nodes, num_edges, cap = round(NUM_NODES * scale), round(NUM_EDGES * scale), parse_bytes(memory)
    if folder is not None:
        folder.mkdir(parents=True)
    with TemporaryDirectory(prefix="graphstrap-large-") if folder is None else nullcontext(str(folder)) as name:
        work = Path(name)
        write_tables(work, num_nodes=num_nodes, num_edges=num_edges, threads=threads)
        store, trained, vectors = (str(work / name) for name in ("store", "run", "embeddings"))
        tables = ["--edges", str(work / "edges.parquet"), "--nodes", str(work / "nodes.parquet"), "--to", store]
        # DuckDB's own cap leaves room for what the rest of the process owns.
        limits = ["--memory", f"{int(0.8 * cap) // 10**6}MB", "--threads", str(threads)]
        sets = options_of({**_SETTINGS, "train.steps": steps})
        record = Record(to, "large")
        record.add({"scale": scale, "num_nodes": num_nodes, "num_edges": num_edges, "steps": steps, "cap_bytes": cap})
        for words in (
            ["prepare", *tables, *limits, "--feature-dtype", feature_dtype],
            ["fit", store, "--run", trained, "--device", "cpu", *sets],
            ["embed", trained, "--to", vectors, "--how", "layers", "--rows-per-file", "1000000", "--device", "cpu"],
        ):
            forget_pages(work)
            record.add(run_verb([*words, "--quiet"], cap_bytes=cap, threads=threads))
        record.add({"verb": "all", "seconds": round(sum(row["seconds"] for row in record.rows[1:]), 1)})


if __name__ == "__main__":
    run(main)
