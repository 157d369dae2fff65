"""Stores notes of what a writer is about to do. The next writer finishes the work of a writer that was killed.

A note that cannot be used is renamed, so that it does not stop later writers and a person can look at it.
"""

import json
import logging
import os
import secrets
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from focusmem.bank.vectors import rows_from_bytes, rows_to_bytes
from focusmem.errors import StorageError
from focusmem.files import is_safe_name, read_plain_file, write_whole

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)

_ADD, _DELETE, _SET_ASIDE = ".add", ".delete", ".set-aside"
_MAX_NOTE_BYTES = 2**32


@dataclass(frozen=True)
class Note:
    path: Path
    to_add: "pa.Table | None" = None
    to_delete: tuple[str, ...] = ()


class Journal:
    """Notes are written and read under the bank's lock only."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def note_adding(self, rows: "pa.Table") -> Path:
        return self._write(_ADD, rows_to_bytes(rows))

    def note_deleting(self, ids: Sequence[str]) -> Path:
        return self._write(_DELETE, json.dumps(list(ids)).encode())

    def cross_out(self, path: Path) -> None:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(f"Could not remove the note {path}: {error.strerror}.") from error

    def is_empty(self) -> bool:
        return not self._paths()

    def notes(self, width: int) -> list[Note]:
        """All notes that can be used; `width` is the width of the bank's vectors."""
        return [note for note in (self._read(path, width) for path in self._paths()) if note is not None]

    def remove_set_aside(self) -> None:
        """Removes renamed notes, because they hold vectors, which must not outlive a deletion. Somebody may have put a
        folder there. What cannot be removed is reported, but it does not stop the caller.
        """
        for path in self._paths(_SET_ASIDE):
            try:
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)
            except OSError as error:
                _log.warning("could not remove %s, which may hold vectors of deleted trajectories: %s", path, error)

    def _read(self, path: Path, width: int) -> Note | None:
        try:
            data = read_plain_file(path, _MAX_NOTE_BYTES)
            if path.suffix == _ADD:
                return Note(path, to_add=rows_from_bytes(data, width))
            return Note(path, to_delete=_ids_from(data))
        except (StorageError, ValueError, RecursionError) as error:
            # Notes are written whole and for this bank, so this note was damaged later, or somebody put it here.
            self._set_aside(path, error)
            return None

    def _set_aside(self, path: Path, error: Exception) -> None:
        kept = path.with_name(path.name + _SET_ASIDE)
        if os.path.lexists(kept):
            kept = path.with_name(f"{path.name}.{secrets.token_hex(8)}{_SET_ASIDE}")
        try:
            path.replace(kept)
        except OSError as problem:
            raise StorageError(f"Could not rename the note {path}, which is damaged: {problem.strerror}.") from problem
        _log.warning(
            "a note about unfinished work in the bank cannot be used and was renamed to %s: %s. Trajectories that this "
            "work should have added may lack a vector, and trajectories that it should have deleted may still be in "
            "the bank; see focusmem bank stats",
            kept,
            str(error).rstrip("."),
        )

    def _write(self, kind: str, data: bytes) -> Path:
        path = self._folder / f"{secrets.token_hex(8)}{kind}"
        write_whole(path, data)
        return path

    def _paths(self, *kinds: str) -> list[Path]:
        try:
            return sorted(path for path in self._folder.iterdir() if path.suffix in (kinds or (_ADD, _DELETE)))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StorageError(f"Could not look into {self._folder}: {error.strerror}.") from error


def _ids_from(data: bytes) -> tuple[str, ...]:
    found = json.loads(data)
    if not isinstance(found, list) or not all(isinstance(name, str) and is_safe_name(name) for name in found):
        raise ValueError("it is not a list of trajectories")
    return tuple(found)
