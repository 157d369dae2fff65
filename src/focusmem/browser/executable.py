"""Chooses the Chromium to drive: the one that FOCUSMEM_BROWSER names, otherwise the first that is installed."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from focusmem.errors import UserError

SYSTEM_BROWSERS: Final = ("chromium-headless-shell", "chromium", "google-chrome")
VARIABLE: Final = "FOCUSMEM_BROWSER"
"""The environment variable that holds one of these names, or the full path of another Chromium."""

_VERSION_S: Final = 60.0


def find_browser() -> str | None:
    """The path of the browser to drive; None selects the one that Playwright may have downloaded."""
    wanted = os.environ.get(VARIABLE)
    if not wanted:
        return next((path for path in map(shutil.which, SYSTEM_BROWSERS) if path), None)
    path = shutil.which(wanted) if wanted in SYSTEM_BROWSERS or Path(wanted).is_absolute() else None
    if path is None:
        raise UserError(_not_usable(wanted))
    return path


def browser_version() -> str:
    """The browser's name, version and path, for the record of a run."""
    path = find_browser()
    if path is None:
        return "the Chromium of Playwright"
    try:
        output = subprocess.run(
            [path, "--version"], capture_output=True, text=True, errors="replace", check=False, timeout=_VERSION_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return path
    version = output.stdout.strip()
    return f"{version} ({path})" if version else path


def _not_usable(wanted: str) -> str:
    installed = [name for name in SYSTEM_BROWSERS if shutil.which(name)]
    have = f"installed here: {', '.join(installed)}" if installed else "none of them is installed here"
    if wanted in SYSTEM_BROWSERS:
        return f"{VARIABLE} is {wanted!r}, which is not installed; {have}. Install it, or unset {VARIABLE}."
    if Path(wanted).is_absolute():
        return f"{VARIABLE} is {wanted!r}, which is not a program; {have}. Correct the path, or unset {VARIABLE}."
    return (
        f"{VARIABLE} is {wanted!r}; use one of {', '.join(SYSTEM_BROWSERS)} ({have}), or the full path of a Chromium."
    )
