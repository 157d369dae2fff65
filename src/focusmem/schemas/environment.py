"""Where a run takes place, found out from the machine itself."""

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

from focusmem.schemas.run import Environment

_PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "pillow", "pydantic", "playwright")


def collect_environment(seeds: dict[str, int], hardware: dict[str, str] | None = None) -> Environment:
    """Commit, package versions and machine; `hardware` adds what only the caller knows, such as the GPU."""
    return Environment(
        commit=_git("rev-parse", "HEAD"),
        has_uncommitted_changes=_has_changes(),
        packages={"python": platform.python_version(), **_versions()},
        hardware={"machine": platform.machine(), "num_cores": str(os.cpu_count()), **(hardware or {})},
        seeds=seeds,
    )


def _versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _has_changes() -> bool | None:
    status = _git("status", "--porcelain")
    return None if status is None else bool(status)


def _git(*words: str) -> str | None:
    """What git says about the checkout this code lies in; None when it is not in one."""
    try:
        result = subprocess.run(
            ["git", *words], cwd=Path(__file__).parent, capture_output=True, text=True, check=False, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() if result.returncode == 0 else None
