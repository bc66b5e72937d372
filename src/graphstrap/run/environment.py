"""Where a number came from: versions, hardware, and the state of the source tree."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

_PACKAGES = ("numpy", "scipy", "scikit-learn", "torch-geometric", "duckdb", "safetensors", "triton")


def graphstrap_version() -> str:
    return _version("graphstrap") or "uninstalled"


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def describe_environment() -> dict[str, Any]:
    import torch  # here: `graphstrap --version` does without

    return {
        "graphstrap": graphstrap_version(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        **{name: version for name in _PACKAGES if (version := _version(name)) is not None},
        "platform": platform.platform(),
        "processor": _processor(),
        "num_threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def describe_git() -> dict[str, Any] | None:
    """Commit of the source tree that the code runs from, and whether it was changed; None outside of one."""
    here = Path(__file__).resolve().parent
    sha = _git(here, "rev-parse", "HEAD")
    tracked = _git(here, "ls-files", "--error-unmatch", __file__)
    if not sha or not tracked:
        return None
    return {"sha": sha, "changed": bool(_git(here, "status", "--porcelain", "--untracked-files=no"))}


def _git(folder: Path, *arguments: str) -> str:
    try:
        command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]  # a look leaves no lock where it is cut
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return f"{line.partition(':')[2].strip()}, {os.cpu_count()} cores"
    except OSError:
        pass
    return f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores"
