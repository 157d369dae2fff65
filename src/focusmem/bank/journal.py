"""Notes of what a writer is about to do: the next writer finishes the work of one that was killed."""

import json
import logging
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from focusmem.bank.vectors import rows_from_bytes, rows_to_bytes
from focusmem.errors import StorageError
from focusmem.files import is_safe_name, write_whole

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)

_ADD, _DELETE = ".add", ".delete"


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

    def notes(self) -> list[Note]:
        return [note for note in map(self._read, self._paths()) if note is not None]

    def _read(self, path: Path) -> Note | None:
        try:
            if path.suffix == _ADD:
                return Note(path, to_add=rows_from_bytes(path.read_bytes()))
            return Note(path, to_delete=tuple(filter(is_safe_name, json.loads(path.read_bytes()))))
        except (OSError, ValueError, TypeError) as error:
            # Notes are written whole, so this one was damaged later. Its work can be requested again.
            _log.warning("the note %s cannot be read and is dropped: %s", path, error)
            self.cross_out(path)
            return None

    def _write(self, kind: str, data: bytes) -> Path:
        path = self._folder / f"{secrets.token_hex(8)}{kind}"
        write_whole(path, data)
        return path

    def _paths(self) -> list[Path]:
        try:
            return sorted(path for path in self._folder.iterdir() if path.suffix in (_ADD, _DELETE))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StorageError(f"Could not look into {self._folder}: {error.strerror}.") from error
