"""DuckDB as a reader and writer of tables: in memory, without extensions from elsewhere, with errors of one line.

DuckDB is imported inside the functions, because the package must import without it.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from graphstrap.errors import InputError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


_SETTINGS = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}


@contextmanager
def connect(
    path: str = ":memory:", *, memory_bytes: int | None = None, threads: int | None = None
) -> Iterator[DuckDBPyConnection]:
    """An empty database that cannot fetch extensions, and reads times as UTC.

    Args:
        path: a file for tables larger than memory; what is spilled goes beside it.
        memory_bytes, threads: limits; DuckDB's own without them.
    """
    try:
        import duckdb
    except ImportError as error:
        raise InputError("tables need DuckDB, which is not installed: pip install duckdb") from error
    spill_folder = os.path.join(tempfile.gettempdir(), f"graphstrap-{os.getpid()}")
    settings: dict[str, Any] = {**_SETTINGS, "temp_directory": spill_folder if path == ":memory:" else f"{path}.spill"}
    if memory_bytes is not None:
        settings["memory_limit"] = f"{memory_bytes // 10**6}MB"
    if threads is not None:
        settings["threads"] = threads
    connection = duckdb.connect(path, config=settings)
    try:
        connection.execute("SET TimeZone = 'UTC'")
        with _stopped_by_signals(connection):
            yield connection
    finally:
        connection.close()


@contextmanager
def _stopped_by_signals(connection: DuckDBPyConnection) -> Iterator[None]:
    """Ctrl-C and SIGTERM end a query at once: by itself DuckDB looks for them now and then, up to ten seconds later.

    Python's own handler only runs when the query has ended, so a thread waits for the byte that a signal leaves.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    if before != -1:  # a notebook's event loop waits for these bytes
        signal.set_wakeup_fd(before)

    def watch() -> None:
        while number := reader.recv(1):
            if number[0] in (signal.SIGINT, signal.SIGTERM):
                connection.interrupt()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        if before == -1:
            signal.set_wakeup_fd(-1)
        writer.close()
        watcher.join()
        reader.close()


@contextmanager
def one_line_errors(path: str, action: str = "read") -> Iterator[None]:
    """Turn what DuckDB says about a file into an InputError of one sentence."""
    import duckdb

    try:
        yield
    except duckdb.InterruptException:  # Ctrl-C, which DuckDB notices by itself
        raise KeyboardInterrupt from None
    except RuntimeError as error:
        if "interrupted" in str(error).lower():
            raise KeyboardInterrupt from None
        raise InputError(_explain(str(error), path=path, action=action)) from error
    except duckdb.Error as error:
        raise InputError(_explain(str(error), path=path, action=action)) from error


def execute_long(connection: DuckDBPyConnection, query: str, stage: str, report: Callable[[str, float], None]) -> None:
    """Run a statement that takes long, and report how far it is about twice a second."""
    finished = threading.Event()

    def watch() -> None:
        while not finished.wait(0.5):
            report(stage, min(1.0, max(0.0, connection.query_progress() / 100.0)))

    connection.execute("SET enable_progress_bar = true")
    connection.execute("SET enable_progress_bar_print = false")
    report(stage, 0.0)
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        connection.execute(query)
    finally:
        finished.set()
        watcher.join()
    report(stage, 1.0)


def quote_name(name: str) -> str:
    """A column or table name in SQL, whatever characters it has."""
    return '"' + name.replace('"', '""') + '"'


def quote_text(text: str) -> str:
    """A string in SQL, whatever characters it has."""
    return "'" + text.replace("'", "''") + "'"


def fetch_one(connection: DuckDBPyConnection, query: str) -> tuple[Any, ...]:
    """The only row of a query that has one."""
    row = connection.execute(query).fetchone()
    assert row is not None
    return tuple(row)


def _explain(message: str, *, path: str, action: str) -> str:
    line = re.search(r"CSV Error on Line: (\d+)", message)
    if line is None and "reached an invalid state" in message:
        return f"cannot read {path}: its lines end in two ways, as in Windows and as in Unix: save it with one of them"
    if line is None:
        fix = " (if the file is damaged, write or download it again)" if action == "read" else ""
        return f"cannot {action} {path}: {_first_line(message)}{fix}"
    file = re.search(r"^ *file = (.+)$", message, re.MULTILINE)
    place = f"{file[1].strip() if file else path}, line {line[1]}"
    cells = re.search(r"Expected Number of Columns: (\d+) Found: (\d+)", message)
    if cells is not None:
        return f"{place} has {cells[2]} where the first line has {cells[1]} cells: fix that line"
    if "unicode" in message:
        return f"{place}: not UTF-8 text: save the file as UTF-8"
    if "unterminated quote" in message:
        return f"{place}: a quote opens and never closes: fix that line"
    return f"{place}: not a row of a CSV table: fix that line"


def _first_line(message: str) -> str:
    lines = [line for line in message.splitlines() if line.strip() and "pending query result" not in line]
    line = lines[0] if lines else "unknown error"
    return re.sub(r"^((Error|[\w -]+ Error): )+", "", line).strip()
