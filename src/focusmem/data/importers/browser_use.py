"""browser-use's histories: the JSON file that `AgentHistoryList.save_to_file` writes, with its screenshots beside it.

Format: github.com/browser-use/browser-use at 85ddbfe, `browser_use/agent/views.py`, `browser_use/browser/views.py` and
`browser_use/tools/views.py`; the names of actions in its earlier versions are read too. A step with several actions has
only one screenshot, so the page before the later actions is unknown. Such a history is refused.

A history names its screenshots by their path on the machine where it was made. Only the file name of that path is used.
The file is searched beside the history, and in the folder `screenshots` beside it.
"""

import os
import re
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Final
from urllib.parse import quote_plus, urlsplit

from focusmem.data.importers.base import (
    NO_INSTRUCTION,
    NO_SCREENSHOT,
    UNEVEN,
    Choice,
    Imported,
    Recording,
    RejectedError,
    as_instruction,
    as_list,
    as_number,
    as_object,
    as_text,
    converted,
    files_like,
    no_equivalent,
    picture_in_text,
    read_json,
    read_picture,
    text_or_none,
)
from focusmem.schemas import Screenshot
from focusmem.schemas.action import AnyAction

MAX_HISTORY_BYTES: Final = 256 * 2**20
"""Earlier versions stored screenshots inside the history."""
SCREENSHOT_FOLDER: Final = "screenshots"

_REQUEST: Final = re.compile(r"<user_request>\s*(.*?)\s*</user_request>", re.DOTALL)
_SEARCH: Final = {
    "google": "https://www.google.com/search?q=",
    "bing": "https://www.bing.com/search?q=",
    "duckduckgo": "https://duckduckgo.com/?q=",
}
_EARLIER_NAMES: Final = {
    "go_to_url": "navigate",
    "open_url": "navigate",
    "click_element": "click",
    "click_element_by_index": "click",
    "input_text": "input",
    "select_dropdown_option": "select_dropdown",
    "search_google": "search",
}
_LABELS: Final = ("aria-label", "placeholder", "title", "alt", "name", "value", "id")
"""The attributes of an element that name it, the best first."""


class BrowserUseImporter:
    suite = "browser-use"

    def find(self, path: Path) -> list[Path]:
        return files_like(path, "*.json")

    def read(self, place: Path, choice: Choice) -> Imported:
        history = as_list(
            as_object(read_json(place, max_bytes=MAX_HISTORY_BYTES), place.name).get("history"), "history"
        )
        steps = [as_object(step, "A step") for step in history]
        recording = Recording()
        for number, step in enumerate(steps, start=1):
            _read_step(recording, place, step, number)
        start_url = next((url for step in steps if (url := text_or_none(_state(step).get("url")))), "")
        return recording.imported(
            f"{choice.suite}/{place.stem}",
            _instruction(steps, choice.instructions.get(place.stem)),
            start_url=start_url,
            site=_host(start_url),
            **_verdict(steps),
        )


def _instruction(steps: list[dict[str, Any]], told: str | None) -> str:
    """The user's instruction for this history, or the task that the agent got at its first step."""
    if told is not None:
        return as_instruction(told)
    for step in steps:
        message = step.get("state_message")
        found = _REQUEST.search(message) if isinstance(message, str) else None
        if found:
            return as_instruction(found[1])
    raise RejectedError(NO_INSTRUCTION, "The history does not tell its task; give it with --instructions.")


def _state(step: dict[str, Any]) -> dict[str, Any]:
    return as_object(step.get("state"), "A step's state")


def _read_step(recording: Recording, place: Path, step: dict[str, Any], number: int) -> None:
    state = _state(step)
    screenshot = _screenshot(place, state, number)
    about: dict[str, Any] = {"url": text_or_none(state.get("url")), "error": _error(step)}
    output = as_object(step.get("model_output") or {"action": []}, "model_output")
    actions = as_list(output.get("action"), "action")
    if not actions:
        recording.add(screenshot, None, **about | {"error": about["error"] or "The model gave no action."})
        return
    if len(actions) > 1:
        raise RejectedError(UNEVEN, f"Step {number} has {len(actions)} actions for one screenshot.")
    thought = "\n".join(filter(None, (text_or_none(output.get(key)) for key in ("thinking", "next_goal"))))
    element = state.get("interacted_element")
    element = element[0] if isinstance(element, list) and element else None
    action, point = _action(recording, as_object(actions[0], "An action"), element, thought)
    if point is not None and point[0] < screenshot.width and point[1] < screenshot.height:
        about["click_point"] = point
    recording.add(screenshot, action, **about)


def _screenshot(place: Path, state: dict[str, Any], number: int) -> Screenshot:
    if isinstance(state.get("screenshot"), str):  # earlier versions
        return picture_in_text(state["screenshot"], f"The screenshot of step {number}")
    path = state.get("screenshot_path")
    if not isinstance(path, str) or not path:
        raise RejectedError(NO_SCREENSHOT, f"Step {number} has no screenshot.")
    name = PureWindowsPath(path).name if "\\" in path else PurePosixPath(path).name
    for folder in (place.parent, place.parent / SCREENSHOT_FOLDER, place.parent / place.stem):
        if name and "\0" not in name and os.path.lexists(folder / name):
            return read_picture(place.parent, f"{folder.relative_to(place.parent)}/{name}")
    raise RejectedError(NO_SCREENSHOT, f"The screenshot {name[:100]!r} of step {number} is not beside the history.")


def _error(step: dict[str, Any]) -> str | None:
    results = step.get("result")
    for result in results if isinstance(results, list) else []:
        if isinstance(result, dict) and text_or_none(result.get("error")):
            return text_or_none(result["error"])
    return None


def _action(
    recording: Recording, action: dict[str, Any], element: Any, thought: str
) -> tuple[AnyAction, tuple[int, int] | None]:
    """The action, and the point that it names on the screenshot."""
    given = next(iter(action), "")
    name = _EARLIER_NAMES.get(given, given)
    values = as_object(action.get(given) or {}, "An action's values")
    match name:
        case "click":
            words, point = _clicked(values, element)
            return converted("click", description=words, reasoning=thought), point
        case "input":
            if values.get("clear") is False:
                raise no_equivalent("typing behind what a field holds")
            recording.typing.add(False)
            text = as_text(values.get("text"), "text")
            return converted("type", text=text, description=_words(values, element), reasoning=thought), None
        case "select_dropdown":  # typing into a list of options chooses one
            text = as_text(values.get("text"), "text")
            return converted("type", text=text, description=_words(values, element), reasoning=thought), None
        case "scroll" | "scroll_down" | "scroll_up":
            down = name == "scroll_down" or (name == "scroll" and values.get("down", True) is not False)
            return converted("scroll", direction="down" if down else "up", reasoning=thought), None
        case "send_keys":
            return converted("press_key", key=as_text(values.get("keys"), "keys"), reasoning=thought), None
        case "navigate":
            if values.get("new_tab") is True:
                raise no_equivalent("navigate in a new tab")
            return converted("goto", url=as_text(values.get("url"), "url"), reasoning=thought), None
        case "search":
            engine = values.get("engine", "google" if given == "search_google" else "duckduckgo")
            if engine not in _SEARCH:
                raise no_equivalent(f"search with {engine}")
            query = quote_plus(as_text(values.get("query"), "query"))
            return converted("goto", url=_SEARCH[engine] + query, reasoning=thought), None
        case "wait":
            return converted("wait", reasoning=thought), None
        case "done":
            return converted("stop", answer=as_text(values.get("text"), "text"), reasoning=thought), None
        case _:
            raise no_equivalent(name)


def _clicked(values: dict[str, Any], element: Any) -> tuple[str, tuple[int, int] | None]:
    if values.get("index") is not None or values.get("coordinate_x") is None:
        return _words(values, element), None
    x, y = (round(as_number(values.get(f"coordinate_{axis}"), f"coordinate_{axis}")) for axis in "xy")
    if min(x, y) < 0:
        raise no_equivalent("click outside the page")
    return f"the point ({x}, {y})", (x, y)


def _words(values: dict[str, Any], element: Any) -> str:
    """The element in words: its name for screen readers, or the attribute that names it best."""
    if not isinstance(element, dict):
        return f"the element with index {values.get('index')}"
    kind = str(element.get("node_name") or "element").lower()
    attributes = element.get("attributes")
    attributes = attributes if isinstance(attributes, dict) else {}
    named = (element.get("ax_name"), *(attributes.get(label) for label in _LABELS))
    name = next((text for text in map(text_or_none, named) if text), None)
    return f"the {kind} with index {values.get('index')}" if name is None else f"{name} ({kind})"


def _verdict(steps: list[dict[str, Any]]) -> dict[str, Any]:
    """The verdict of browser-use's own judge, if it was asked. The agent's own claim is not a verdict."""
    results = steps[-1].get("result") if steps else None
    last = results[-1] if isinstance(results, list) and results else None
    judgement = last.get("judgement") if isinstance(last, dict) else None
    if not isinstance(judgement, dict) or not isinstance(judgement.get("verdict"), bool):
        return {}
    reason = text_or_none(judgement.get("failure_reason") or judgement.get("reasoning"))
    return {
        "outcome": "success" if judgement["verdict"] else "failure",
        "judge": "browser-use",
        "reason": reason or "Taken over from the judgement in the history.",
    }


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
