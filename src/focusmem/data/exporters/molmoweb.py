"""Writes MolmoWeb's result folders, as `benchmarks/evaluate.py` reads them, without `trajectory.html`.

Actions are those of `agent/actions.py`. A click at an unknown point becomes a `click` without an element, with our
words as its description.
"""

import json
from pathlib import Path
from typing import Any, Final

from focusmem.data.exporters.base import native_id, write_pages
from focusmem.data.importers.molmoweb import ANSWER, METADATA_FILE, PICTURE_FOLDER, TRAJECTORY_FILE
from focusmem.files import write_whole
from focusmem.judges.base import Attempt
from focusmem.schemas import Step

_PICTURE: Final = "screenshot_{:03}.png"


class MolmoWebExporter:
    cannot_hold = (
        "where the episode began if the first page has no address, places of other actions than clicks and typing, and "
        "the page after the answer",
    )

    def folder(self, task_id: str) -> str:
        return native_id(task_id)

    def write(self, attempt: Attempt, folder: Path) -> tuple[str, ...]:
        presses_enter = attempt.task.presses_enter is True
        steps = [_step(step, number, presses_enter) for number, step in enumerate(attempt.steps, start=1)]
        closing = None if attempt.trajectory is None else attempt.trajectory.closing
        if closing is not None and len(attempt.pages) > len(steps):
            steps.append(_look(len(steps) + 1, closing.url))
        trajectory = {str(number): step for number, step in enumerate(steps, start=1)}
        metadata = {"goal": attempt.task.instruction, "eps_name": native_id(attempt.task.task_id)}
        write_whole(folder / METADATA_FILE, json.dumps(metadata, indent=2).encode())
        write_whole(folder / TRAJECTORY_FILE, json.dumps(trajectory, indent=2).encode())
        write_pages(attempt, folder / PICTURE_FOLDER, _PICTURE, first=1)
        return ()


def _look(number: int, url: str | None) -> dict[str, Any]:
    """A step without an action."""
    return {
        "screenshot": _PICTURE.format(number),
        "user_message": "",
        "other_obs": None if url is None else {"url": url, "open_pages_urls": [url], "page_index": 0},
        "action": {
            "action_str": None,
            "action_description": None,
            "action_output": {"thought": None, "action": None, "action_name": None},
        },
        "error": None,
        "action_timestamp": None,
        "raw_output": None,
    }


def _step(step: Step, number: int, presses_enter: bool) -> dict[str, Any]:
    name, values, description = (None, None, None) if step.action is None else _action(step, presses_enter)
    thought = None if step.action is None else step.action.arguments.reasoning or ""
    told = None if name is None else f"{name}({', '.join(f'{key}={value!r}' for key, value in (values or {}).items())})"
    return _look(number, step.url) | {
        "action": {
            "action_str": told,
            "action_description": description,
            "action_output": {"thought": thought, "action": values, "action_name": name},
        },
        "error": step.error,
        "raw_output": step.reply,
    }


def _action(step: Step, presses_enter: bool) -> tuple[str, dict[str, Any], str | None]:
    """The action's name and values, and our words for the element."""
    action = step.action
    assert action is not None
    place = None if step.click_point is None else {"x": float(step.click_point[0]), "y": float(step.click_point[1])}
    match action.name:
        case "click":
            button = {"button": "left", "click_type": "single"}
            if place is None:
                nothing = {"bid": "", **button, "bbox": None, "node_properties": None}
                return "click", nothing, action.arguments.description
            return "mouse_click", {**place, **button}, action.arguments.description
        case "type":
            text = action.arguments.text
            if place is None:
                return "keyboard_type", {"text": f"{text}\n" if presses_enter else text}, action.arguments.description
            values = {**place, "text": text, "press_enter": presses_enter, "clear_before_typing": True}
            return "gemini_type_text_at", values, action.arguments.description
        case "scroll":
            sign = 1 if action.arguments.direction == "down" else -1
            return "scroll", {"delta_x": 0.0, "delta_y": float(sign * step.screenshot.height)}, None
        case "press_key":
            return "keyboard_press", {"key": action.arguments.key}, None
        case "goto":
            return "goto", {"url": action.arguments.url}, None
        case "wait":
            return "noop", {"noop_reason": "loading"}, None
        case "stop":
            return "send_msg_to_user", {"msg": f"{ANSWER} {action.arguments.answer}"}, None
