"""The folder for a browser process's sockets and temporary files, and how leftovers of killed browsers are removed.

The process that owns the folder holds a lock on it. The operating system releases the lock when the owner ends, even if
the owner is killed. The next process can therefore tell leftovers from folders that are in use.
"""

import logging
import os
import re
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from focusmem.errors import StorageError
from focusmem.files import FolderLock

log = logging.getLogger(__name__)

_PREFIX: Final = "focusmem-chromium-"
_UNFINISHED: Final = ".focusmem-chromium-"
_PROFILE: Final = re.compile(r"playwright_chromiumdev_profile-[A-Za-z0-9_-]+")
"""The names of the profile folders that Playwright makes. No other profile is removed."""
_PROFILE_FILE: Final = "profile"
_MAX_PLACE: Final = 20
"""Longest path of the temporary folder, in bytes. The path of a socket may have about a hundred bytes; the names of
this folder and of Chromium's files take the rest."""
_SHORT_PLACE: Final = "/tmp"


class BrowserFolder:
    """Create it with `make`; `path` is the folder for temporary files of one browser process."""

    def __init__(self, path: Path, lock: FolderLock) -> None:
        self.path, self._lock = path, lock

    @classmethod
    def make(cls) -> Self:
        """Makes the folder in the system's temporary folder, or in `/tmp` if that path is too long for Chromium."""
        place = _place()
        unfinished = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=place))
        lock = FolderLock(unfinished, "The folder of a new browser is in use.")
        lock.take()
        # Renamed only after it is locked, so that no other process takes it for a leftover.
        path = place / f"{_PREFIX}{unfinished.name.removeprefix(_UNFINISHED)}"
        unfinished.rename(path)
        return cls(path, lock)

    def keep_profile(self, command_line: str) -> None:
        """Records the profile folder that Playwright made for this process, so that it is removed too."""
        place = re.escape(tempfile.gettempdir())
        found = re.search(rf"--user-data-dir=({place}/{_PROFILE.pattern})(?:\s|$)", command_line)
        if found is not None:
            (self.path / _PROFILE_FILE).write_text(found[1])

    def remove(self) -> None:
        _remove(self.path)
        self._lock.let_go()


def remove_leftovers() -> None:
    """Removes folders and profiles of browsers whose owner has died. Folders in use are locked and stay."""
    for path in _place().glob(f"{_PREFIX}*"):
        with suppress(OSError, StorageError):  # StorageError: the owner is alive
            if path.is_symlink() or path.stat().st_uid != os.geteuid():
                continue
            with FolderLock(path, "The folder of a browser is in use."):
                log.info("removing %s, which a killed process left", path)
                _remove(path)


def _remove(path: Path) -> None:
    """Removes the profile that is recorded in a browser's folder, then the folder."""
    with suppress(OSError):
        profile = Path((path / _PROFILE_FILE).read_text())
        if _PROFILE.fullmatch(profile.name):
            shutil.rmtree(profile, ignore_errors=True)
    shutil.rmtree(path, ignore_errors=True)


def _place() -> Path:
    usual = tempfile.gettempdir()
    return Path(usual if len(os.fsencode(usual)) <= _MAX_PLACE else _SHORT_PLACE)
