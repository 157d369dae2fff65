"""The folder in which a browser process keeps its sockets, and what is removed with it.

Its owner holds a lock on it, which ends with the owner, however that ends. So the next one can tell what the dead have
left from what the living use.
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
"""The names of the profile folders that Playwright makes; nothing else is ever removed."""
_PROFILE_FILE: Final = "profile"
_MAX_PLACE: Final = 20
"""The address of a socket may have about a hundred characters; this folder's name and Chromium's own take the rest."""
_SHORT_PLACE: Final = "/tmp"


class BrowserFolder:
    """Create it with `make`; `path` is the folder for temporary files of one browser process."""

    def __init__(self, path: Path, lock: FolderLock) -> None:
        self.path, self._lock = path, lock

    @classmethod
    def make(cls) -> Self:
        """In the system's folder for temporary files, or in a shorter one if Chromium could not use it."""
        place = _place()
        unfinished = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=place))
        lock = FolderLock(unfinished, "The folder of a new browser is in use.")
        lock.take()
        # Named only when it is locked, so that nobody takes it for one of the dead.
        path = place / f"{_PREFIX}{unfinished.name.removeprefix(_UNFINISHED)}"
        unfinished.rename(path)
        return cls(path, lock)

    def keep_profile(self, command_line: str) -> None:
        """Notes the profile folder that Playwright made for this process, to remove it as well."""
        place = re.escape(tempfile.gettempdir())
        found = re.search(rf"--user-data-dir=({place}/{_PROFILE.pattern})(?:\s|$)", command_line)
        if found is not None:
            (self.path / _PROFILE_FILE).write_text(found[1])

    def remove(self) -> None:
        _remove(self.path)
        self._lock.let_go()


def remove_leftovers() -> None:
    """Removes folders and profiles of browsers whose owner has died, and nothing that somebody uses."""
    for path in _place().glob(f"{_PREFIX}*"):
        with suppress(OSError, StorageError):  # StorageError: its owner lives
            if path.is_symlink() or path.stat().st_uid != os.geteuid():
                continue
            with FolderLock(path, "The folder of a browser is in use."):
                log.info("Removing %s, which a killed process has left.", path)
                _remove(path)


def _remove(path: Path) -> None:
    """Removes a browser's folder, after the profile that it names."""
    with suppress(OSError):
        profile = Path((path / _PROFILE_FILE).read_text())
        if _PROFILE.fullmatch(profile.name):
            shutil.rmtree(profile, ignore_errors=True)
    shutil.rmtree(path, ignore_errors=True)


def _place() -> Path:
    usual = tempfile.gettempdir()
    return Path(usual if len(os.fsencode(usual)) <= _MAX_PLACE else _SHORT_PLACE)
