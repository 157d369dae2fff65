"""Writes WebVoyager's result folders, as `evaluation/auto_eval.py` and DeepShop's scripts read them.

An element is named in words where the benchmark's agent writes a number. `PressKey` and `Goto` are our own names; the
benchmark's evaluation reads only the task, the answer and the screenshots.
"""

import json
from pathlib import Path
from typing import Any, Final

from focusmem.data.exporters.base import native_id, reasoning_of, write_pages
from focusmem.data.importers.webvoyager import (
    ANSWER,
    FOLDER_PREFIX,
    GOOGLE_URL,
    LOOK,
    MESSAGES_FILE,
    OBSERVATION,
    WINDOW,
)
from focusmem.files import write_whole
from focusmem.judges.base import Attempt
from focusmem.schemas import Step
from focusmem.schemas.action import AnyAction

_PICTURE: Final = {"type": "image_url", "image_url": {"url": "data:image/png;base64,{b64_img}"}}
_SYSTEM: Final = "You act on web pages. Elements are named in words."
_ROUND: Final = str.maketrans("[]", "()")


class WebVoyagerExporter:
    cannot_hold = (
        "addresses of pages after the first, places of clicks, raw replies that could be read, and the page after the "
        "answer",
    )

    def folder(self, task_id: str) -> str:
        return FOLDER_PREFIX + native_id(task_id)

    def write(self, attempt: Attempt, folder: Path) -> tuple[str, ...]:
        slots = _Slots()
        messages: list[dict[str, Any]] = [{"role": "system", "content": _SYSTEM}]
        task = attempt.task
        instruction = slots.task(task.instruction)
        opening = f"Now given a task: {instruction}  Please interact with {task.start_url} and get the answer. \n"
        if task.presses_enter is not True and any(step.action and step.action.name == "type" for step in attempt.steps):
            slots.changes["typing presses Enter in this format, and did not in the run"] = None
        said = ""
        for step in attempt.steps:
            messages.append(_look(f"{opening}{OBSERVATION}{said}"))
            messages.append({"role": "assistant", "content": _reply(step, slots)})
            opening, said = "", "" if step.error is None else f" {step.error}"
        if len(attempt.pages) > len(attempt.steps):
            messages.append(_look(f"{OBSERVATION}{said}"))
        elif said and attempt.answer is None:  # as the harness does when it takes no new screenshot
            messages.append({"role": "user", "content": said.replace(OBSERVATION, OBSERVATION.lower()).strip()})
        write_whole(folder / MESSAGES_FILE, json.dumps(messages, indent=2).encode())
        write_pages(attempt, folder, "screenshot{}.png", first=1)
        return tuple(slots.changes)


class _Slots:
    """Changes texts to fit the format, and records the changes."""

    def __init__(self) -> None:
        self.changes: dict[str, None] = {}

    def task(self, text: str) -> str:
        """The instruction as one line, because the evaluation reads only one, and without the words that would end it
        there.
        """
        found = " ".join(text.split()).replace("Please interact with", "please interact with")
        return self._noted(text.strip(), found, "the task was put on one line")

    def value(self, text: str) -> str:
        found = self.prose(text).translate(_ROUND)
        return self._noted(text, found, "square brackets became round ones")

    def element(self, text: str) -> str:
        """A description. A number alone would be read as the element's number."""
        found = self.value(text)
        is_label = found.strip().isdecimal() or found == WINDOW
        return (
            self._noted(found, f"'{found}'", "a description that looks like a label was quoted") if is_label else found
        )

    def answer(self, text: str) -> str:
        found = text.strip().translate(_ROUND)
        self._noted(text, found, "square brackets or spaces around the answer were changed")
        return found or " "  # the evaluation would read an empty answer as a bracket

    def prose(self, text: str) -> str:
        """Writes ANSWER and Action: in small letters. The evaluation reads the first ANSWER in the last message as the
        start of the answer, and Action: as the start of an action.
        """
        found = text.replace(ANSWER, ANSWER.lower()).replace("Action:", "action:")
        return self._noted(text, found, f"{ANSWER} or Action: was written in small letters")

    def _noted(self, before: str, after: str, change: str) -> str:
        if before != after:
            self.changes[change] = None
        return after


def _look(text: str) -> dict[str, Any]:
    return {
        "role": "user",
        "content": [{"type": "text", "text": f"{text}{LOOK} and give the Thought and Action."}, _PICTURE],
    }


def _reply(step: Step, slots: _Slots) -> str:
    if step.action is None:
        return slots.prose(step.reply or "")
    thought = slots.prose(reasoning_of(step.action))
    return f"Thought: {thought}\n\nAction: {_words(step.action, slots)}"


def _words(action: AnyAction, slots: _Slots) -> str:
    match action.name:
        case "click":
            return f"Click [{slots.element(action.arguments.description)}]"
        case "type":
            field = action.arguments.description
            return f"Type [{WINDOW if field is None else slots.element(field)}]; [{slots.value(action.arguments.text)}]"
        case "scroll":
            return f"Scroll [{WINDOW}]; [{action.arguments.direction}]"
        case "press_key":
            return f"PressKey [{slots.value(action.arguments.key)}]"
        case "goto":
            url = action.arguments.url
            return "Google" if url == GOOGLE_URL else f"Goto [{slots.value(url)}]"
        case "wait":
            return "Wait"
        case "stop":
            return f"{ANSWER}; [{slots.answer(action.arguments.answer)}]"
