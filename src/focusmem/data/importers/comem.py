"""CoMEM's trajectories: `<dataset>/<domain>/<model>/<run>/{success,positive,negative}/<id>.jsonl`.

Format: github.com/WenyiWU0111/CoMEM-Agent at 008808c, `utils/training_data_collector.py` and `agent/agent.py`. Each
file holds one JSON object, with all screenshots inside it at two thirds of their size. A failed attempt may be split at
its first error. The part before the error is imported as a failure. The part after it begins in the middle of the
attempt and is refused.
"""

import json
import re
from pathlib import Path
from typing import Any, Final

from focusmem.data.importers.base import (
    NOT_WHOLE,
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
    files_like,
    no_equivalent,
    picture_in_text,
    read_json,
    text_or_none,
)
from focusmem.schemas import Screenshot
from focusmem.schemas.action import AnyAction
from focusmem.schemas.objects_in_text import objects_in

MAX_FILE_BYTES: Final = 256 * 2**20

_ACTION: Final = re.compile(r"Action:\s*(?=\{)")
_FENCE: Final = re.compile(r"```json\s*")
_PARTS: Final = ("success", "positive", "negative")


class ComemImporter:
    suite = "comem"

    def find(self, path: Path) -> list[Path]:
        return files_like(path, "*.jsonl")

    def read(self, place: Path, choice: Choice) -> Imported:
        document = as_object(read_json(place, max_bytes=MAX_FILE_BYTES), place.name)
        if document.get("split_type") == "negative_part" or (_part(place) == "negative" and "split_type" in document):
            raise RejectedError(NOT_WHOLE, "The part after the first error does not begin where the attempt began.")
        recording = Recording()
        for number, item in enumerate(as_list(document.get("rounds"), "rounds"), start=1):
            one = as_object(item, "A round")
            recording.typing |= _add(recording, _screenshot(one, number), as_text(one.get("response"), "A response"))
        domain = place.parts[-5] if len(place.parts) >= 5 and _part(place) else ""
        task_id = text_or_none(document.get("conversation_id")) or place.stem
        return recording.imported(
            f"{choice.suite}/{task_id}",
            as_instruction(document.get("task_description")),
            site=domain,
            **_verdict(document),
        )


def _part(place: Path) -> str | None:
    return place.parent.name if place.parent.name in _PARTS else None


def _screenshot(one: dict[str, Any], number: int) -> Screenshot:
    """The last picture of the round's messages. Pictures of earlier searches come before it."""
    pictures: list[Any] = []
    for item in as_list(one.get("messages"), "messages"):
        content = as_object(item, "A message").get("content")
        for part in content if isinstance(content, list) else []:
            if isinstance(part, dict) and isinstance(part.get("image_url"), dict):
                pictures.append(part["image_url"].get("url"))
    if not pictures:
        raise RejectedError(UNEVEN, f"Round {number} has no screenshot.")
    return picture_in_text(pictures[-1], f"The screenshot of round {number}")


def _add(recording: Recording, screenshot: Screenshot, reply: str) -> set[bool]:
    """Returns {True} if a text was typed, because Enter always follows in this harness; otherwise an empty set."""
    found = _object_in(reply)
    if found is None:
        recording.add(screenshot, None, reply=reply, error="The reply holds no action in JSON.")
        return set()
    action = _action(found)
    recording.add(screenshot, action, reply=reply)
    return {True} if action.name == "type" else set()


def _object_in(reply: str) -> dict[str, Any] | None:
    """The first JSON object after `Action:`, in a fenced block, or anywhere."""
    for mark in (_ACTION, _FENCE):
        start = mark.search(reply)
        objects, _ = objects_in(reply[start.end() :]) if start else ([], None)
        if objects:
            return _decoded(objects[0].canonical)
    objects, _ = objects_in(reply)
    return _decoded(objects[0].canonical) if objects else None


def _decoded(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)
    return found


def _action(found: dict[str, Any]) -> AnyAction:
    name = as_text(found.get("name"), "An action's name")
    values = as_object(found.get("arguments") or {}, "An action's arguments")
    thought = text_or_none(values.get("reasoning"))
    match name:
        case "click":
            return converted("click", description=as_text(values.get("description"), "description"), reasoning=thought)
        case "type":
            field = text_or_none(values.get("field_description", values.get("description")))
            return converted("type", text=as_text(values.get("text"), "text"), description=field, reasoning=thought)
        case "scroll":
            return converted("scroll", direction=as_text(values.get("direction"), "direction"), reasoning=thought)
        case "press_key":
            key = as_text(values.get("key", values.get("key_comb")), "key")
            return converted("press_key", key=key, reasoning=thought)
        case "goto_url" | "goto":
            url = text_or_none(values.get("url")) or text_or_none(values.get("page_name")) or ""
            if not url.startswith(("http://", "https://")):
                raise no_equivalent("goto_url with a name instead of an address")
            return converted("goto", url=url, reasoning=thought)
        case "wait":
            return converted("wait", reasoning=thought)
        case "stop":
            return converted("stop", answer=as_text(values.get("answer"), "answer"), reasoning=thought)
        case _:
            raise no_equivalent(name)


def _verdict(document: dict[str, Any]) -> dict[str, Any]:
    """The verdict of the harness's own model. Only failed attempts are split into parts."""
    outer = document.get("evaluation")
    inner = outer.get("evaluation") if isinstance(outer, dict) else None
    correct = inner.get("Correctness") if isinstance(inner, dict) else None
    if document.get("split_type") is not None:
        reason = "The part of a failed attempt before its first error."
        return {"outcome": "failure", "judge": "CoMEM", "reason": reason}
    if not isinstance(correct, bool):
        return {}
    outcome = "success" if correct else "failure"
    return {"outcome": outcome, "judge": "CoMEM", "reason": "Taken over from the evaluation in the file."}
