"""Online-Mind2Web's result folders: `<task id>/result.json` beside `trajectory/<number>....png`.

Format: github.com/OSU-NLP-Group/Online-Mind2Web at 37412f9, `data/README.md`, `data/example` and `src/run.py`. The
benchmark defines the layout of results, but not the wording of actions. A line `<element> -> NAME: value` is read; any
other wording is refused.
"""

import re
from pathlib import Path
from typing import Any, Final

from focusmem.data.importers.base import (
    BAD_SCREENSHOT,
    MALFORMED,
    NO_SCREENSHOT,
    OUTSIDE,
    UNEVEN,
    Choice,
    Imported,
    Recording,
    RejectedError,
    as_instruction,
    as_list,
    as_object,
    as_text,
    converted,
    folders_with,
    no_equivalent,
    read_json,
    read_picture,
    text_or_none,
)
from focusmem.schemas import Screenshot
from focusmem.schemas.action import AnyAction
from focusmem.schemas.record import storable_text

RESULT_FILE: Final = "result.json"
PICTURE_FOLDER: Final = "trajectory"
PAGE: Final = "page"
FAILED: Final = " (did not work)"

_LINE: Final = re.compile(r"(.*?)\s*->\s*([A-Za-z_]+(?: (?i:KEY|UP|DOWN))?)(?:: ?(.*))?", re.DOTALL)
_NUMBER: Final = re.compile(r"\d+")


class OnlineMind2WebImporter:
    suite = "online-mind2web"

    def find(self, path: Path) -> list[Path]:
        return folders_with(path, RESULT_FILE, or_looks_like=PICTURE_FOLDER)

    def read(self, place: Path, choice: Choice) -> Imported:
        result = as_object(read_json(place / RESULT_FILE), RESULT_FILE)
        instruction = as_instruction(result.get("task", result.get("confirmed_task")))
        lines = [as_text(line, "An action") for line in as_list(result.get("action_history"), "action_history")]
        task_id = text_or_none(result.get("task_id")) or place.name
        pages = _pages(place / PICTURE_FOLDER)
        answer = result.get("final_result_response")
        recording = _recording(pages, lines, _thoughts(result), answer if isinstance(answer, str) else None)
        return recording.imported(f"{choice.suite}/{task_id}", instruction)


def _pages(folder: Path) -> list[Screenshot]:
    """The pictures in the order of the first number in their names, as the benchmark's script sorts them."""
    if folder.is_symlink():
        raise RejectedError(OUTSIDE, f"{folder} is a symbolic link.")
    if not folder.is_dir():
        raise RejectedError(NO_SCREENSHOT, f"{folder} does not exist.")
    numbered = []
    for name in sorted(entry.name for entry in folder.iterdir()):
        number = _NUMBER.search(name)
        if number is None or len(number[0]) > 9:
            raise RejectedError(BAD_SCREENSHOT, f"{folder} holds {name!r}, which has no number.")
        numbered.append((int(number[0]), name))
    return [read_picture(folder, name) for _, name in sorted(numbered)]


def _thoughts(result: dict[str, Any]) -> list[str]:
    thoughts = result.get("thoughts")
    return [thought if isinstance(thought, str) else "" for thought in thoughts] if isinstance(thoughts, list) else []


def _recording(pages: list[Screenshot], lines: list[str], thoughts: list[str], answer: str | None) -> Recording:
    """Each action has the screenshot before it. One additional screenshot is the page of the answer, or the last "
    "page."""
    if len(pages) != len(lines) + 1 and (answer is not None or len(pages) != len(lines)):
        raise RejectedError(
            UNEVEN,
            f"{len(pages)} screenshots do not fit {len(lines)} actions{'' if answer is None else ' and an answer'}.",
        )
    if len(thoughts) not in (len(lines), len(lines) + 1):  # then nobody knows which thought belongs to which action
        thoughts = []
    recording = Recording()
    for index, line in enumerate(lines):
        action, error = _action(line, thoughts[index] if thoughts else "")
        recording.add(pages[index], action, error=error)
    if answer is not None:
        last = thoughts[-1] if len(thoughts) > len(lines) else ""
        recording.add(pages[-1], converted("stop", answer=storable_text(answer), reasoning=last))
    elif len(pages) > len(lines):
        recording.close(pages[-1])
    return recording


def _action(line: str, thought: str) -> tuple[AnyAction, str | None]:
    """The action, and the error if the line says that it did not work."""
    error = "The action did not work." if line.endswith(FAILED) else None
    found = _LINE.fullmatch(line.removesuffix(FAILED))
    if found is None:
        raise RejectedError(MALFORMED, f"The action {line[:100]!r} is not worded as <element> -> NAME: value.")
    element, name, value = found[1].strip(), found[2].upper().replace(" ", "_"), found[3]
    element = element[1:-1] if element.startswith("<") and element.endswith(">") else element
    field = None if element in (PAGE, "") else element
    match name:
        case "CLICK":
            action = converted("click", description=element, reasoning=thought)
        case "TYPE":
            action = converted("type", text=value, description=field, reasoning=thought)
        case "SELECT":  # typing into a list of options chooses one
            action = converted("type", text=value, description=field, reasoning=thought)
        case "SCROLL":
            action = converted("scroll", direction=(value or "").lower(), reasoning=thought)
        case "SCROLL_UP" | "SCROLL_DOWN":
            action = converted("scroll", direction=name.removeprefix("SCROLL_").lower(), reasoning=thought)
        case "PRESS_KEY":
            action = converted("press_key", key=value, reasoning=thought)
        case "GOTO":
            action = converted("goto", url=value, reasoning=thought)
        case "WAIT":
            action = converted("wait", reasoning=thought)
        case _:
            raise no_equivalent(name)
    return action, error
