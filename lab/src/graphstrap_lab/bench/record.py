"""What a measurement leaves behind: rows, and where they came from, as one JSON file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch

from graphstrap.errors import InputError
from graphstrap.io.files import atomic_write
from graphstrap.run.environment import describe_environment, describe_git


def describe_hardware() -> dict[str, Any]:
    hardware: dict[str, Any] = {"num_cores": os.cpu_count(), "memory_bytes": _memory_bytes()}
    if torch.cuda.is_available():
        gpu = torch.cuda.get_device_properties(torch.cuda.current_device())
        hardware |= {"gpu": gpu.name, "gpu_memory_bytes": gpu.total_memory, "gpu_cache_bytes": gpu.L2_cache_size}
    return hardware


def command_line(bench: str, **options: Any) -> str:
    """The command that asks for these options; those without a value, or switched off, are left out."""
    words = ["graphstrap", "bench", bench]
    for name, value in options.items():
        if value is None or value is False or value == []:
            continue
        words.append(f"--{name.replace('_', '-')}")
        if value is not True:
            words.append(",".join(value) if isinstance(value, list) else str(value))
    return " ".join(words)


def write_record(path: Path, *, bench: str, command: str, rows: list[dict[str, Any]], **rest: Any) -> None:
    """The file is there as a whole or not at all."""
    content = {
        "bench": bench,
        "command": command,
        "environment": describe_environment(),
        "hardware": describe_hardware(),
        "git": describe_git(),
        **rest,
        "rows": rows,
    }
    with atomic_write(path) as temporary:
        temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def read_record(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is no result of `graphstrap bench`: {error}") from error
    if not isinstance(record, dict) or not isinstance(record.get("rows"), list):
        raise InputError(f"{path} is no result of `graphstrap bench`: it has no rows")
    return record


def kept_rows(path: Path, *, options: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of an earlier run that was given the same options: what was measured need not be measured again."""
    record = read_record(path) if path.exists() else {}
    rows: list[dict[str, Any]] = record["rows"] if record.get("options") == options else []
    return rows


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
