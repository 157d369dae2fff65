"""The seam: a reader of other agents' results, with the code that all readers share.

Files may come from anywhere, so a reader does not trust them: no path in a file may lead out of its folder, sizes are
limited, and a result that cannot be converted faithfully is refused with a reason.
"""

import base64
import binascii
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from pydantic import ValidationError

from focusmem.errors import RecordError, StorageError
from focusmem.files import read_plain_file
from focusmem.schemas import Closing, Outcome, Screenshot, Step, Task, make_action
from focusmem.schemas.action import MAX_ARGUMENT_LENGTH, AnyAction
from focusmem.schemas.record import MAX_DOCUMENT_BYTES, describe_problem, storable_text
from focusmem.schemas.screenshot import MAX_PNG_BYTES
from focusmem.schemas.trajectory import MAX_STEPS

_NAME_LENGTH: Final = 60
_DATA_URI: Final = re.compile(r"data:image/[a-z.+-]+;base64,")

UNREADABLE: Final = "unreadable file"
MALFORMED: Final = "fields missing or wrong"
NO_SCREENSHOT: Final = "screenshot missing"
BAD_SCREENSHOT: Final = "not a usable screenshot"
OUTSIDE: Final = "path leads out of the folder"
UNEVEN: Final = "actions and screenshots do not fit together"
NO_INSTRUCTION: Final = "no instruction"
NOT_WHOLE: Final = "not a whole attempt"
NO_STEP: Final = "no step"


class RejectedError(RecordError):
    """A result that is not imported. `reason` is the same for equal causes, so that causes can be counted."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


def no_equivalent(action: object) -> RejectedError:
    """The trajectory has an action without an equivalent among our seven."""
    name = _printable(str(action))[:_NAME_LENGTH]
    return RejectedError(f"no equivalent of {name}", f"The action {name!r} has no equivalent among the seven.")


@dataclass(frozen=True)
class Choice:
    """The user's options for the import."""

    suite: str
    """The first part of task ids."""
    instructions: Mapping[str, str] = field(default_factory=dict)
    """Instructions by the name of a result, for formats that do not store them."""


@dataclass(frozen=True)
class Imported:
    """One attempt of another agent."""

    task: Task
    steps: tuple[Step, ...]
    screenshots: Mapping[str, Screenshot]
    """The screenshots of the steps and of the closing, by digest."""
    closing: Closing | None = None
    outcome: Outcome = "not_judged"
    reason: str = "The files hold no verdict."
    """The source of the outcome."""
    judge: str | None = None
    """The judge's name in the files; None if there was no judge."""


class Importer(Protocol):
    @property
    def suite(self) -> str:
        """The suite of the results if the user names none."""

    def find(self, path: Path) -> list[Path]:
        """The files or folders at or below a path that each look like one result, including damaged ones."""

    def read(self, place: Path, choice: Choice) -> Imported:
        """Raises RejectedError, or another error of the user's, for a result that is not imported."""


# Finding


def folders_with(path: Path, marker: str, *, or_looks_like: str | None = None) -> list[Path]:
    """Folders at or below a path that hold the file `marker`, or an entry that matches `or_looks_like`. A folder with
    only the latter is damaged. Links are not followed. The search does not enter folders that it has found.
    """
    found = []
    for folder, subfolders, files in os.walk(path):
        names = {*files, *subfolders}
        if marker in names or (or_looks_like is not None and any(re.fullmatch(or_looks_like, name) for name in names)):
            found.append(Path(folder))
            subfolders.clear()
        subfolders.sort()
    return found


def files_like(path: Path, pattern: str) -> list[Path]:
    """Files with such a name at or below a path. If the path is a file, it is returned whatever its name is."""
    return [path] if path.is_file() else sorted(file for file in path.rglob(pattern) if not file.is_dir())


# Reading


def read_json(path: Path, *, max_bytes: int = MAX_DOCUMENT_BYTES) -> Any:
    if os.path.lexists(path) and path.lstat().st_size > max_bytes:
        raise RejectedError(UNREADABLE, f"{path} is too large: at most {max_bytes} bytes are read.")
    try:
        return json.loads(read_plain_file(path, max_bytes))
    except StorageError as error:
        raise RejectedError(UNREADABLE, str(error)) from None
    except RecursionError:
        raise RejectedError(UNREADABLE, f"{path} is nested too deeply.") from None
    except ValueError as error:  # also what is not UTF-8
        raise RejectedError(UNREADABLE, f"{path} is not valid JSON: {error}.") from None


def read_picture(folder: Path, name: object) -> Screenshot:
    """A PNG in a folder. `name` may come from a file, so it must not lead out of the folder."""
    return picture_of(read_bytes(inside(folder, name)), str(name))


def read_bytes(path: Path) -> bytes:
    if not os.path.lexists(path):
        raise RejectedError(NO_SCREENSHOT, f"{path} does not exist.")
    try:
        return read_plain_file(path, MAX_PNG_BYTES)
    except StorageError as error:
        raise RejectedError(BAD_SCREENSHOT, str(error)) from None


def picture_of(data: bytes, name: str) -> Screenshot:
    try:
        return Screenshot.from_png(data)
    except RecordError as error:
        raise RejectedError(BAD_SCREENSHOT, f"{_printable(name)}: {error}") from None


def picture_in_text(text: object, name: str) -> Screenshot:
    """Reads a PNG in base 64, with or without the prefix of a data URI."""
    if not isinstance(text, str) or len(text) > MAX_PNG_BYTES * 4 // 3 + 100:
        raise RejectedError(BAD_SCREENSHOT, f"{name} is no picture in base 64, or it is too large.")
    start = _DATA_URI.match(text)
    try:
        return picture_of(base64.b64decode(text[start.end() if start else 0 :], validate=True), name)
    except (binascii.Error, ValueError):
        raise RejectedError(BAD_SCREENSHOT, f"{name} is no picture in base 64.") from None


def inside(folder: Path, name: object) -> Path:
    """The path of an entry of a folder, links resolved."""
    if not isinstance(name, str) or not name:
        raise RejectedError(NO_SCREENSHOT, "A step names no screenshot.")
    try:
        path, root = (folder / name).resolve(), folder.resolve()
    except (OSError, ValueError, RuntimeError):  # a NUL character, a name that is too long, a circle of links
        raise RejectedError(OUTSIDE, f"{_printable(name)[:200]!r} is no name of a file.") from None
    if not path.is_relative_to(root):
        raise RejectedError(OUTSIDE, f"{_printable(name)[:200]!r} leads out of {folder}.")
    return path


# Checking what was read


def as_object(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise RejectedError(MALFORMED, f"{what} should be a JSON object.")
    return value


def as_list(value: object, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise RejectedError(MALFORMED, f"{what} should be a list.")
    return value


def as_text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise RejectedError(MALFORMED, f"{what} should be a text.")
    return storable_text(value)


def text_or_none(value: object) -> str | None:
    return storable_text(value) if isinstance(value, str) and value.strip() else None


def as_number(value: object, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e9:
        raise RejectedError(MALFORMED, f"{what} should be a number.")
    return float(value)


def as_instruction(text: object) -> str:
    if not isinstance(text, str) or not text.strip():
        raise RejectedError(NO_INSTRUCTION, "The task is not told.")
    return storable_text(text.strip())


# Making records


def converted(name: str, *, reasoning: str | None = None, **arguments: str | None) -> AnyAction:
    """Builds one of our actions; arguments that are None are left out."""
    values = {key: value for key, value in arguments.items() if value is not None}
    thoughts = (
        {} if not (reasoning or "").strip() else {"reasoning": storable_text(reasoning or "")[:MAX_ARGUMENT_LENGTH]}
    )
    try:
        return make_action(name, **values, **thoughts)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
    raise RejectedError(MALFORMED, f"The argument {problem['loc'][-1]!r} of {name} {describe_problem(problem)}.")


class Recording:
    """Collects the steps of one attempt while they are read."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.screenshots: dict[str, Screenshot] = {}
        self.closing: Closing | None = None
        self.typing: set[bool] = set()
        """For each typed text, whether Enter followed."""

    def add(self, screenshot: Screenshot, action: AnyAction | None, **about: Any) -> None:
        """`about` holds additional fields of the step."""
        if len(self.steps) == MAX_STEPS:
            raise RejectedError(UNREADABLE, f"The attempt has more than {MAX_STEPS} steps.")
        if self.has_stopped:
            raise RejectedError(MALFORMED, "The attempt goes on after its answer.")
        self.screenshots[screenshot.digest] = screenshot
        self.steps.append(Step(screenshot=screenshot.ref(), action=action, **about))

    def close(self, screenshot: Screenshot, url: str | None = None) -> None:
        self.screenshots[screenshot.digest] = screenshot
        self.closing = Closing(screenshot=screenshot.ref(), url=url)

    def blame(self, error: str) -> None:
        """Records the error of the last action."""
        if self.steps:
            self.steps[-1] = self.steps[-1].model_copy(update={"error": error})

    @property
    def has_stopped(self) -> bool:
        last = self.steps[-1].action if self.steps else None
        return last is not None and last.name == "stop"

    @property
    def presses_enter(self) -> bool | None:
        """Whether typing pressed Enter, by one rule for all texts; None if nothing was typed, or if it is not known."""
        if len(self.typing) > 1:
            raise no_equivalent("typing that only sometimes presses Enter")
        return next(iter(self.typing), None)

    def imported(
        self, task_id: str, instruction: str, *, start_url: str = "", site: str = "", **verdict: Any
    ) -> Imported:
        if not self.steps:
            raise RejectedError(NO_STEP, "The attempt has no step.")
        try:
            task = Task(
                task_id=task_id,
                instruction=instruction,
                start_url=start_url,
                site=site,
                presses_enter=self.presses_enter,
                max_steps=max(Task.model_fields["max_steps"].default, len(self.steps)),
            )
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            raise RejectedError(MALFORMED, f"{problem['loc'][0]} {describe_problem(problem)}.") from None
        return Imported(task, tuple(self.steps), self.screenshots, self.closing, **verdict)


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)
