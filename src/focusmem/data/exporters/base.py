"""The seam: a writer of result folders. It gets the judges' view of an attempt, so it knows neither run nor method."""

from pathlib import Path
from typing import Any, Final, Protocol

from focusmem.errors import RecordError
from focusmem.files import write_whole
from focusmem.judges.base import Attempt

_MAX_NAME_BYTES: Final = 200
_FORBIDDEN: Final = frozenset("/\\\0")


class Exporter(Protocol):
    @property
    def cannot_hold(self) -> tuple[str, ...]:
        """Information that every export in this format loses."""

    def folder(self, task_id: str) -> str:
        """The name of an attempt's folder, made from the task's id in its benchmark."""

    def write(self, attempt: Attempt, folder: Path) -> tuple[str, ...]:
        """Writes an attempt with at least one step into a new folder. Returns the changes that the format required."""


def native_id(task_id: str) -> str:
    """The task's id in its benchmark, without the suite's name. It must be usable as a folder name."""
    name = task_id.partition("/")[2] or task_id
    is_usable = name.isprintable() and not _FORBIDDEN & set(name) and name.strip(". ")
    if not is_usable or len(name.encode()) > _MAX_NAME_BYTES:
        raise RecordError(f"The task's id {name[:60]!r} cannot be the name of a folder.")
    return name


def reasoning_of(action: Any) -> str:
    return "" if action is None else action.arguments.reasoning or ""


def write_pages(attempt: Attempt, folder: Path, name: str, *, first: int) -> None:
    """The screenshots that judges see, byte for byte. `name` has a slot for the number."""
    for number, page in enumerate(attempt.pages, start=first):
        write_whole(folder / name.format(number), page.png)
