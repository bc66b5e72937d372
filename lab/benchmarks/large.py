"""A graph of Parquet tables that is larger than memory: prepared, trained on samples and embedded under a cap.

    python lab/benchmarks/large.py                    # 20 million nodes, 200 million edges: needs about 40 GB of disk
    python lab/benchmarks/large.py --scale 0.05       # a twentieth of it

The tables are synthetic: 32 feature columns, sources at random, targets with a power-law tail. `prepare`, `fit` (200
sampled steps) and `embed` (layer by layer, 64 columns) run one after the other as commands of their own, each under the
cap: in a control group of its own, as a container has, where the system lets one be made (root), else by a limit on
what a process may own (RLIMIT_DATA). The second is stricter: it counts addresses that an allocator keeps without memory
behind them, of which DuckDB leaves gigabytes. The pages of files that a command left in memory are dropped before the
next one starts: a group is charged only for what it brings in itself. Reported for each: seconds, the most that it
owned (VmData), had in memory of its own (RssAnon) and had in memory with pages of files, which the system may drop at
any time (VmHWM).
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from graphstrap.ops.memory import parse_bytes
from graphstrap_lab.bench.record import write_record

RESULTS = Path(__file__).parent / "results" / "large.json"
NUM_NODES, NUM_EDGES, NUM_COLUMNS = 20_000_000, 200_000_000, 32
_SETTINGS = {
    "sampling.fan_outs": "[10,10]",
    "sampling.batch_size": "1024",
    "encoder.hidden_sizes": "[64]",
    "encoder.embedding_size": "64",
    "encoder.own_features": "0",
    "encoder.batch_norm_statistics": "running",
    "method.predictor_hidden_size": "64",
    "views.edge_drop_probs": "[0.3,0.3]",
}
_WATCH_SECONDS = 0.2
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


class MemoryGroup(NamedTuple):
    """A control group for memory: its folder, and how the kernel's version of it calls the limit."""

    folder: Path
    limit_file: str

    @classmethod
    def make(cls, cap_bytes: int) -> MemoryGroup | None:
        """One with the cap, or None where the system does not let us."""
        for root, limit_file in _MEMORY_GROUPS:
            group = cls(root / f"graphstrap-large-{os.getpid()}", limit_file)
            try:
                group.folder.mkdir()
                (group.folder / limit_file).write_text(str(cap_bytes))
            except OSError:
                group.remove()
                continue
            return group
        return None

    def join(self) -> None:
        (self.folder / "cgroup.procs").write_text("0")  # the process that writes

    def remove(self) -> None:
        if self.folder.exists():
            self.folder.rmdir()


def run_verb(words: list[str], *, cap_bytes: int, threads: int) -> dict[str, Any]:
    """A command of Graphstrap's under the cap, watched while it runs."""
    group = MemoryGroup.make(cap_bytes)

    def limit() -> None:
        if group is not None:
            group.join()
        else:
            resource.setrlimit(resource.RLIMIT_DATA, (cap_bytes, cap_bytes))

    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MALLOC_ARENA_MAX": "2"}
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "graphstrap", *words],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=limit,
    )
    peaks = {"VmData": 0, "RssAnon": 0, "VmHWM": 0}
    watch = threading.Thread(target=_watch, args=(process, peaks), daemon=True)
    watch.start()
    output = process.communicate()[0]
    watch.join()
    if group is not None:
        group.remove()
    if process.returncode:
        raise SystemExit(f"graphstrap {words[0]} failed with {process.returncode}")
    print(output.strip(), file=sys.stderr)
    return {
        "verb": words[0],
        "seconds": round(time.perf_counter() - start, 1),
        "capped_by": "RLIMIT_DATA" if group is None else "control group",
        "owned_bytes": peaks["VmData"],
        "resident_own_bytes": peaks["RssAnon"],
        "resident_bytes": peaks["VmHWM"],
    }


def _watch(process: subprocess.Popen[str], peaks: dict[str, int]) -> None:
    status = Path(f"/proc/{process.pid}/status")
    while process.poll() is None:
        try:
            lines = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
        except OSError:
            return
        for name in peaks:
            peaks[name] = max(peaks[name], 1024 * int(lines.get(name, "0 kB").split()[0]))
        time.sleep(_WATCH_SECONDS)


def _forget_pages(folder: Path) -> None:
    """Have the system drop what it holds of the files' contents."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measure(folder: Path, *, scale: float, memory: str, threads: int, steps: int, dtype: str) -> list[dict[str, Any]]:
    num_nodes, num_edges = round(NUM_NODES * scale), round(NUM_EDGES * scale)
    start = time.perf_counter()
    write_tables(folder, num_nodes=num_nodes, num_edges=num_edges, threads=threads)
    print(f"tables written in {time.perf_counter() - start:.0f} s", file=sys.stderr)
    store, run, to = (str(folder / name) for name in ("store", "run", "embeddings"))
    cap = parse_bytes(memory)
    sets = [word for name, value in _SETTINGS.items() for word in ("--set", f"{name}={value}")]
    sets += ["--set", f"train.steps={steps}"]
    tables = ["--edges", str(folder / "edges.parquet"), "--nodes", str(folder / "nodes.parquet")]
    # DuckDB's own cap leaves room for what the rest of the process owns.
    budget = f"{int(0.8 * cap) // 10**6}MB"
    verbs = [
        ["prepare", *tables, "--to", store, "--memory", budget, "--threads", str(threads), "--feature-dtype", dtype],
        ["fit", store, "--run", run, "--device", "cpu", *sets],
        ["embed", run, "--to", to, "--how", "layers", "--rows-per-file", "1000000", "--device", "cpu"],
    ]
    rows = [{"scale": scale, "num_nodes": num_nodes, "num_edges": num_edges, "steps": steps, "cap_bytes": cap}]
    for words in verbs:
        _forget_pages(folder)
        rows.append(run_verb([*words, "--quiet"], cap_bytes=cap, threads=threads))
        print(rows[-1], file=sys.stderr, flush=True)
    total = sum(row["seconds"] for row in rows[1:])
    return [*rows, {"verb": "all", "seconds": round(total, 1)}]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--memory", default="6GB")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--feature-dtype", default="fp16")
    parser.add_argument("--folder", type=Path, help="Where to work and to leave everything [default: removed]")
    parser.add_argument("--to", type=Path, default=RESULTS)
    given = parser.parse_args()
    command = (
        f"python lab/benchmarks/large.py --scale {given.scale:g} --memory {given.memory} --threads {given.threads}"
    )
    how: dict[str, Any] = {"scale": given.scale, "memory": given.memory, "threads": given.threads}
    how |= {"steps": given.steps, "dtype": given.feature_dtype}
    if given.folder is not None:
        given.folder.mkdir(parents=True)
        rows = measure(given.folder, **how)
    else:
        with TemporaryDirectory(prefix="graphstrap-large-") as name:
            rows = measure(Path(name), **how)
    write_record(given.to, bench="large", command=command, rows=rows)
    print(f"{rows[-1]['seconds']} s in all; {shutil.disk_usage(given.to.parent).free >> 30} GB free on the disk")


if __name__ == "__main__":
    main()
