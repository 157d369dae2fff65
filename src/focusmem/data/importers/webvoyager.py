"""WebVoyager's result folders: `task<id>/interact_messages.json` beside `screenshot<N>.png`, with N from 1.

Format: github.com/MinorJerry/WebVoyager at 5a78967, `run.py`, `prompts.py` and `utils.py`. The messages are those of
one chat, with pictures replaced by a placeholder. An action names an element by the number that is drawn on the
screenshot; where the message still lists the element's text, that text becomes a part of the description.
"""

import re
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from focusmem.data.importers.base import (
    MALFORMED,
    NO_STEP,
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
)
from focusmem.schemas import Screenshot
from focusmem.schemas.action import AnyAction

MESSAGES_FILE: Final = "interact_messages.json"
FOLDER_PREFIX: Final = "task"
ANSWER: Final = "ANSWER"
WINDOW: Final = "WINDOW"
GOOGLE_URL: Final = "https://www.google.com/"
OBSERVATION: Final = "Observation:"
LOOK: Final = " please analyze the attached screenshot"
"""Follows what the harness has to say about the last action."""

_TASK: Final = re.compile(r"Now given a task:(.+?)Please interact with(.*?)and get the answer", re.DOTALL)
_REPLY: Final = re.compile(r"Thought:(.*?)Action:(.*)", re.DOTALL)
_TROUBLE: Final = re.compile(f"{OBSERVATION}(.*?){LOOK}", re.DOTALL)
_ELEMENT: Final = re.compile(r"\[(\d+)\]: (.*?);(?=\t\[\d+\]: |\s*\Z)", re.DOTALL)

# Actions as our exporter writes them, each value in brackets.
_OURS: Final = re.compile(rf"(Click|Type|PressKey|Goto|{ANSWER});? \[([^\[\]]*)\](?:; \[([^\[\]]*)\])?\s*", re.DOTALL)
# Actions as the harness searches for them in a reply, in its order.
_THEIRS: Final = {
    "click": re.compile(r"Click \[?(\d+)\]?"),
    "type": re.compile(r"Type \[?(\d+)\]?[; ]+\[?(.[^\]]*)\]?"),
    "scroll": re.compile(r"Scroll \[?(\d+|WINDOW)\]?[; ]+\[?(up|down)\]?"),
    "wait": re.compile(r"^(Wait)"),
    "go back": re.compile(r"^(GoBack)"),
    "google": re.compile(r"^(Google)"),
    "answer": re.compile(r"ANSWER[; ]+\[?(.[^\]]*)\]?"),
}


class WebVoyagerImporter:
    suite = "webvoyager"

    def find(self, path: Path) -> list[Path]:
        return folders_with(path, MESSAGES_FILE, or_looks_like=r"screenshot\d+\.png")

    def read(self, place: Path, choice: Choice) -> Imported:
        messages = [_message(item) for item in as_list(read_json(place / MESSAGES_FILE), MESSAGES_FILE)]
        told = _TASK.search(messages[1][1]) if len(messages) > 1 else None
        if told is None:
            if len(messages) < 2:
                raise RejectedError(NO_STEP, f"{MESSAGES_FILE} holds no message after the first.")
            raise RejectedError(MALFORMED, f"The second message of {MESSAGES_FILE} does not state a task.")
        recording = _recording(place, messages[1:])
        start_url = told[2].strip()
        return recording.imported(
            f"{choice.suite}/{place.name.removeprefix(FOLDER_PREFIX)}",
            as_instruction(told[1]),
            start_url=start_url,
            site=_site(start_url),
        )


def _message(item: Any) -> tuple[str, str]:
    """The role and the text of a message."""
    message = as_object(item, "A message")
    content = message.get("content")
    if isinstance(content, list):
        parts = [as_object(part, "A part of a message") for part in content]
        content = "\n".join(as_text(part["text"], "A text") for part in parts if "text" in part)
    return as_text(message.get("role"), "A role"), as_text(content, "A message's content")


def _recording(place: Path, messages: list[tuple[str, str]]) -> Recording:
    recording, number = Recording(), 0
    screenshot: Screenshot | None = None
    elements: dict[str, str] = {}
    for index, (role, text) in enumerate(messages):
        if role == "assistant":
            if screenshot is None:
                raise RejectedError(UNEVEN, "A reply comes before the first screenshot.")
            _add(recording, screenshot, text, elements)
            continue
        trouble = _trouble(text, is_first=index == 0)
        if trouble:
            recording.blame(trouble)
        number += 1
        if index > 0 and OBSERVATION not in text:  # after a failed action the harness takes no new screenshot
            continue
        shown = read_picture(place, f"screenshot{number}.png")
        if index == len(messages) - 1:
            recording.close(shown)
        screenshot, elements = shown, dict(_ELEMENT.findall(text.partition("\n")[2]))
    return recording


def _add(recording: Recording, screenshot: Screenshot, text: str, elements: dict[str, str]) -> None:
    reply = _REPLY.search(text)
    if reply is None:
        error = "The reply has no Thought and Action."
        recording.add(screenshot, None, reply=text, error=error)
        return
    thought, words = reply[1].strip(), reply[2].strip()
    action = _action(words, thought, elements)
    if action is None:
        recording.add(screenshot, None, reply=text, error=f"The action cannot be read: {words[:100]!r}.")
        return
    if action.name == "type":
        recording.typing.add(True)
    recording.add(screenshot, action, reply=text)


def _action(words: str, thought: str, elements: dict[str, str]) -> AnyAction | None:
    """None if the harness could not have read the action either. A known action without an equivalent is refused."""
    name, first, second = _read(words)
    match name:
        case "click":
            return converted("click", description=_described(first, elements), reasoning=thought)
        case "type":
            field = None if first == WINDOW else _described(first, elements)
            return converted("type", text=second, description=field, reasoning=thought)
        case "scroll":
            return converted("scroll", direction=second, reasoning=thought)
        case "wait":
            return converted("wait", reasoning=thought)
        case "go back":
            raise no_equivalent("GoBack")
        case "google":
            return converted("goto", url=GOOGLE_URL, reasoning=thought)
        case "goto":
            return converted("goto", url=first, reasoning=thought)
        case "presskey":
            return converted("press_key", key=first, reasoning=thought)
        case "answer":
            return converted("stop", answer=first.strip(), reasoning=thought)
        case _:
            return None


def _read(words: str) -> tuple[str | None, str, str]:
    """The action's name, or None, and its values."""
    if ours := _OURS.fullmatch(words):
        return ours[1].lower(), ours[2], ours[3] or ""
    order = ["answer", *_THEIRS] if words.startswith(ANSWER) else list(_THEIRS)
    for name in order:
        if found := _THEIRS[name].search(words):
            first, *others = found.groups()
            return name, first, others[0] if others else ""
    return None, "", ""


def _described(label: str, elements: dict[str, str]) -> str:
    """Words for an element that is given by its number. Any other text is already a description."""
    if not label.isdecimal():
        return label
    text = elements.get(label)
    return f"the element labelled {label}" + (f": {text}" if text else "")


def _trouble(text: str, *, is_first: bool) -> str | None:
    """The harness's message about the previous action; None if there is none."""
    if is_first:
        return None
    if OBSERVATION not in text:
        return text.strip() or None
    found = _TROUBLE.search(text)
    return (found[1].strip() or None) if found else None


def _site(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").removeprefix("www.")
    except ValueError:
        return ""
