"""A file that is written atomically is there as a whole, or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from graphstrap.errors import InputError
from graphstrap.io.files import atomic_write


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
