"""Files and folders are there as a whole or not at all; locks end with their holder; half a line is no line."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest

from forked import CONTEXT
from graphstrap.errors import InputError
from graphstrap.io.files import (
    DoneBlocks,
    append_lines,
    atomic_folder,
    atomic_write,
    lock_file,
    make_array_file,
    read_lines,
)


def test_the_file_appears_at_the_end_under_its_own_name(tmp_path: Path) -> None:
    path = tmp_path / "data.npy"
    path.write_text("old")
    with atomic_write(path) as temporary:
        assert (temporary.parent, temporary.suffix) == (tmp_path, ".npy")
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["data.npy"]


def write_half(path: Path, error: BaseException) -> None:
    with atomic_write(path) as temporary:
        temporary.write_text("half")
        raise error


@pytest.mark.parametrize("error", [RuntimeError("bug"), KeyboardInterrupt()])
def test_a_failure_leaves_what_was_there(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "data.txt"
    path.write_text("old")
    with pytest.raises(type(error)):
        write_half(path, error)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["data.txt"]


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", no_space)
    with (
        pytest.raises(InputError, match=r"data\.txt: No space left on device"),
        atomic_write(tmp_path / "data.txt") as path,
    ):
        path.write_text("half")
    assert os.listdir(tmp_path) == []


def test_the_content_is_flushed_before_the_name_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    flush, rename = os.fsync, os.replace

    def record_flush(descriptor: int) -> None:
        calls.append("fsync")
        flush(descriptor)

    def record_rename(source: Path, target: Path) -> None:
        calls.append("replace")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", record_flush)
    monkeypatch.setattr(os, "replace", record_rename)
    with atomic_write(tmp_path / "data.txt") as path:
        path.write_text("new")
    assert calls == ["fsync", "replace", "fsync"]


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    with (
        pytest.raises(InputError, match=r"the folder .*missing does not exist"),
        atomic_write(tmp_path / "missing" / "x"),
    ):
        pass
    with pytest.raises(InputError, match="it is a folder"), atomic_write(tmp_path):
        pass
    with pytest.raises(InputError, match=r"cannot write .*x: No such file"), atomic_write(tmp_path / "x"):
        pass  # nothing was written
    assert os.listdir(tmp_path) == []


def test_files_follow_the_umask(tmp_path: Path) -> None:
    with atomic_write(tmp_path / "x.bin") as temporary:
        temporary.write_bytes(b"1")
        temporary.chmod(0o600)
    (tmp_path / "plain").write_bytes(b"1")
    assert (tmp_path / "x.bin").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_disk_that_cannot_even_be_cleaned_gives_the_first_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(*arguments: object, **rest: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "unlink", read_only)
    with pytest.raises(InputError, match="Read-only"), atomic_write(tmp_path / "x.bin"):
        read_only()


def anything_goes() -> None:
    """A place that may be taken, whatever is there."""


def test_a_folder_appears_whole_and_replaces_the_one_that_was_there(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    for content in ("old", "new"):
        with atomic_folder(path, check=anything_goes) as temporary:
            (temporary / "deep").mkdir()
            (temporary / "deep" / "file").write_text(content)
            assert path.exists() == (content == "new")
        assert (path / "deep" / "file").read_text() == content
        assert os.listdir(tmp_path) == ["folder"]
        assert os.listdir(path) == ["deep"]


def fill_half(path: Path, error: BaseException) -> None:
    with atomic_folder(path, check=anything_goes) as temporary:
        (temporary / "half").write_text("half")
        raise error


@pytest.mark.parametrize("error", [RuntimeError("bug"), KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left")])
def test_a_folder_that_fails_leaves_what_was_there(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "folder"
    path.mkdir()
    with pytest.raises(InputError if isinstance(error, OSError) else type(error)):
        fill_half(path, error)
    assert os.listdir(tmp_path) == ["folder"]
    assert os.listdir(path) == []


def hold(path: Path, said: Connection) -> None:
    with atomic_folder(path, check=anything_goes) as temporary:
        (temporary / "half").write_text("half")
        said.send("held")
        signal.pause()


def test_a_lock_ends_with_its_holder_however_it_ends(tmp_path: Path) -> None:
    heard, said = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=hold, args=(tmp_path / "folder", said))
    process.start()
    said.close()
    assert heard.recv() == "held"
    with (
        pytest.raises(InputError, match=f"folder is in use by process {process.pid} on "),
        atomic_folder(tmp_path / "folder", check=anything_goes),
    ):
        pass
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert os.listdir(tmp_path) == [".folder.building"]
    with atomic_folder(tmp_path / "folder", check=anything_goes) as temporary:
        assert os.listdir(temporary) == [".lock"]  # what was left is gone
    assert os.listdir(tmp_path) == ["folder"]


def test_where_there_are_no_locks_work_goes_on_but_cleans_up_after_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*arguments: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", no_locks)
    with lock_file(tmp_path / "lock", what="it") as is_locked:
        assert not is_locked
    append_lines(tmp_path / "lines", [{"a": 1}])
    assert read_lines(tmp_path / "lines") == [{"a": 1}]
    with atomic_folder(tmp_path / "folder", check=anything_goes) as temporary:
        (temporary / "file").write_text("1")
        with (
            pytest.raises(InputError, match=r"\.folder\.building exists.*no locks.*remove it unless"),
            atomic_folder(tmp_path / "folder", check=anything_goes),
        ):
            pass
    assert os.listdir(tmp_path / "folder") == ["file"]


def test_a_lock_whose_file_its_last_holder_removed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    def remove_first(file: int, kind: int, lock=fcntl.flock) -> None:  # type: ignore[no-untyped-def]
        (tmp_path / "lock").unlink()
        lock(file, kind)

    monkeypatch.setattr("fcntl.flock", remove_first)
    with pytest.raises(InputError, match="it was in use until a moment ago"), lock_file(tmp_path / "lock", what="it"):
        pass


def test_what_is_appended_is_read_without_half_a_line(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    assert read_lines(path) == []
    records: list[dict[str, object]] = [{"step": 1, "loss": 0.5}, {"name": "ü\n"}, {}]
    for record in records:
        append_lines(path, [record])
    assert read_lines(path) == records
    with path.open("a", encoding="utf-8") as file:
        file.write('[1]\n{"step": 2')  # no object, and the line that the power was cut in
    assert read_lines(path) == records
    append_lines(path, [{"step": 3}])  # it went on afterwards
    append_lines(path, [{"step": 4}], flush=True)
    assert read_lines(path) == [*records, {"step": 3}, {"step": 4}]
    path.write_bytes(path.read_bytes()[:-1])  # as some editors leave it
    append_lines(path, [{"step": 5}, {"step": 6}])
    assert [one["step"] for one in read_lines(path)[-4:]] == [3, 4, 5, 6]


def test_lines_that_cannot_be_written_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written: Is a directory"):
        append_lines(tmp_path, [{}])
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="a pipe, which nobody reads"):
        append_lines(tmp_path / "pipe", [{}])


@pytest.mark.parametrize("shape", [(0, 5), (3, 4), (50_000, 10)])
def test_an_array_file_is_zeros_and_keeps_what_is_written(tmp_path: Path, shape: tuple[int, int]) -> None:
    array = make_array_file(tmp_path / "array.npy", shape)
    assert array.shape == shape
    assert not array.any()
    array[-1:] = 7
    array.flush()
    again = np.load(tmp_path / "array.npy")
    assert np.array_equal(again, array)


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="this system takes no room before it is written to")
def test_its_room_is_taken_at_once(tmp_path: Path) -> None:
    make_array_file(tmp_path / "array.npy", (100_000, 10))
    assert (tmp_path / "array.npy").stat().st_blocks * 512 >= 4_000_000


def test_a_disk_without_room_is_told(tmp_path: Path) -> None:
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(tmp_path)], capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root")
    try:
        with pytest.raises(InputError, match=r"array\.npy: No space left"):
            make_array_file(tmp_path / "array.npy", (100_000, 10))
        assert list(tmp_path.iterdir()) == []
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_what_any_worker_adds_is_found_and_half_a_line_is_not(tmp_path: Path) -> None:
    done = DoneBlocks(tmp_path, 1, [3, "a"])
    done.begin()
    done.add(0, 0, 10)
    done.add(1, 10, 20)
    done.add(0, 20, 30)
    assert done.blocks() == {(0, 10), (10, 20), (20, 30)}
    assert DoneBlocks(tmp_path, 2, [3, "a"]).blocks() == set()
    with (tmp_path / "done-1-0.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"first": 30, "la')  # the power is cut here
    assert done.blocks() == {(0, 10), (10, 20), (20, 30)}
    done.add(0, 40, 50)
    assert done.blocks() == {(0, 10), (10, 20), (20, 30), (40, 50)}
    done.begin()
    assert done.blocks() == set()


def test_a_table_is_begun_when_it_is_there_and_its_identity_is_the_same(tmp_path: Path) -> None:
    table, done = tmp_path / "table-1.npy", DoneBlocks(tmp_path, 1, [3, "a"])
    done.begin()
    assert not done.is_begun(table)
    table.touch()
    assert done.is_begun(table)
    assert not DoneBlocks(tmp_path, 1, [4, "a"]).is_begun(table)
    (tmp_path / "table-1.json").write_text("[3", encoding="utf-8")
    assert not done.is_begun(table)


def test_a_block_that_cannot_be_noted_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"done-1-0\.jsonl cannot be written: No such file"):
        DoneBlocks(tmp_path / "gone", 1, []).add(0, 0, 10)
