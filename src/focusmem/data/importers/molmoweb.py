"""MolmoWeb's result folders: `<task>/trajectory.json`, `metadata.json` and `images/screenshot_<NNN>.png`.

Format: github.com/allenai/molmoweb at 6a841b4, `benchmarks/traj_logging.py`, `benchmarks/evaluate.py` and
`agent/actions.py`. A broken attempt is stored in a folder `errors` inside its task's folder, and is not imported.
"""

import re
from pathlib import Path
from typing import Any, Final

from focusmem.data.importers.base import (
    MALFORMED,
    NOT_WHOLE,
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
    folders_with,
    inside,
    no_equivalent,
    picture_of,
    read_bytes,
    read_json,
    text_or_none,
)
from focusmem.schemas import Screenshot
from focusmem.schemas.action import AnyAction

TRAJECTORY_FILE: Final = "trajectory.json"
METADATA_FILE: Final = "metadata.json"
PICTURE_FOLDER: Final = "images"
ANSWER, EXIT = "[ANSWER]", "[EXIT]"
ERRORS: Final = "errors"

_VERDICTS: Final = "*_verdict.json"
_MADE_UP: Final = re.compile(r"(left|right|middle) (dbl|mouse_|mouse_dbl)?click (at|on) |type '|type \"|scroll |press ")
"""The descriptions that the harness itself generates for actions."""
_ON_ELEMENT: Final = re.compile(r"left click on (?!element with bid=)(.+) \((?:not )?clickable\)", re.DOTALL)

Place = tuple[int, int]


class MolmoWebImporter:
    suite = "molmoweb"

    def find(self, path: Path) -> list[Path]:
        return folders_with(path, TRAJECTORY_FILE, or_looks_like=f"{PICTURE_FOLDER}|{METADATA_FILE}|{ERRORS}")

    def read(self, place: Path, choice: Choice) -> Imported:
        if not (place / TRAJECTORY_FILE).exists() and (place / ERRORS).is_dir():
            raise RejectedError(NOT_WHOLE, "The attempt broke; what there is of it lies in the folder errors.")
        metadata = as_object(read_json(place / METADATA_FILE), METADATA_FILE)
        steps = _in_order(as_object(read_json(place / TRAJECTORY_FILE), TRAJECTORY_FILE))
        reader = _Reader(place)
        for number, step in enumerate(steps, start=1):
            reader.step(step, number, is_last=number == len(steps))
        task_id = text_or_none(metadata.get("eps_name")) or place.name
        return reader.recording.imported(
            f"{choice.suite}/{task_id}",
            as_instruction(metadata.get("goal")),
            start_url=reader.start_url or "",
            **_verdict(place),
        )


def _in_order(trajectory: dict[str, Any]) -> list[dict[str, Any]]:
    """The steps, whose keys are numbers from 1, written as texts."""
    if not all(key.isdecimal() and key.isascii() and len(key) < 10 for key in trajectory):
        raise RejectedError(MALFORMED, f"The keys of {TRAJECTORY_FILE} should be numbers.")
    return [as_object(trajectory[key], "A step") for key in sorted(trajectory, key=int)]


class _Reader:
    def __init__(self, place: Path) -> None:
        self.place, self.recording = place, Recording()
        self.start_url: str | None = None

    def step(self, step: dict[str, Any], number: int, *, is_last: bool) -> None:
        told = as_object(step.get("action") or {}, "An action")
        output = as_object(told.get("action_output") or {}, "action_output")
        values, name = output.get("action"), output.get("action_name")
        url = _url(step)
        self.start_url = url if self.start_url is None else self.start_url
        error = _error(step.get("error"))
        if self._is_exit(name, values):
            return
        screenshot = self._screenshot(step, number)
        if values is None:
            if is_last and error is None:
                self.recording.close(screenshot, url)
            else:
                reply = text_or_none(step.get("raw_output"))
                self.recording.add(screenshot, None, url=url, reply=reply, error=error or "The reply holds no action.")
            return
        values = as_object(values, "An action's values")
        thought, words = text_or_none(output.get("thought")), text_or_none(told.get("action_description"))
        action, place = self._action(str(name), values, thought, words)
        self.recording.add(
            screenshot,
            action,
            url=url,
            error=error,
            reply=text_or_none(step.get("raw_output")),
            click_point=_within(place, screenshot),
        )

    def _screenshot(self, step: dict[str, Any], number: int) -> Screenshot:
        name = step.get("screenshot", f"screenshot_{number:03}.png")
        folder = self.place / PICTURE_FOLDER
        if folder.is_symlink():
            raise RejectedError(MALFORMED, f"{folder} is a symbolic link.")
        return picture_of(read_bytes(inside(folder, name)), str(name))

    def _is_exit(self, name: Any, values: Any) -> bool:
        """Whether the step follows the answer and only marks the end of the attempt."""
        is_message = name == "send_msg_to_user" and isinstance(values, dict)
        return is_message and str(values.get("msg")).strip().startswith(EXIT) and self.recording.has_stopped

    def _action(
        self, name: str, values: dict[str, Any], thought: str | None, words: str | None
    ) -> tuple[AnyAction, Place | None]:
        match name:
            case "click" | "mouse_click":
                return _click(name, values, thought, words)
            case "keyboard_type":
                text = as_text(values.get("text"), "text")
                if text and not text.strip("\n"):
                    return converted("press_key", key="Enter", reasoning=thought), None
                self.recording.typing.add(text.endswith("\n"))
                field = _own_words(words)
                return converted("type", text=text.removesuffix("\n"), description=field, reasoning=thought), None
            case "gemini_type_text_at":
                if values.get("clear_before_typing") is False:
                    raise no_equivalent("typing behind what a field holds")
                self.recording.typing.add(values.get("press_enter", True) is not False)
                place = _place(values)
                field = None if words is None else _own_words(words) or f"the field at ({place[0]}, {place[1]})"
                text = as_text(values.get("text"), "text")
                return converted("type", text=text, description=field, reasoning=thought), place
            case "scroll" | "scroll_at":
                down = as_number(values.get("delta_y", 0), "delta_y")
                if not down or values.get("delta_x"):
                    raise no_equivalent(f"{name} to the side")
                at = _place(values) if name == "scroll_at" else None
                return converted("scroll", direction="down" if down > 0 else "up", reasoning=thought), at
            case "keyboard_press":
                key = as_text(values.get("key"), "key").replace("ControlOrMeta", "Control")
                return converted("press_key", key=key, reasoning=thought), None
            case "goto":
                return converted("goto", url=as_text(values.get("url"), "url"), reasoning=thought), None
            case "noop":
                return converted("wait", reasoning=thought), None
            case "send_msg_to_user":
                return converted("stop", answer=_answer(as_text(values.get("msg"), "msg")), reasoning=thought), None
            case "browser_nav":
                raise no_equivalent(values.get("nav_type", name))
            case _:
                raise no_equivalent(name)


def _click(name: str, values: dict[str, Any], thought: str | None, words: str | None) -> tuple[AnyAction, Place | None]:
    if values.get("button", "left") != "left" or values.get("click_type", "single") != "single":
        raise no_equivalent(f"{values.get('button')} {values.get('click_type')} click")
    place = _place(values) if name == "mouse_click" else _middle(values.get("bbox"))
    words = _element(values.get("node_properties")) or _own_words(words)
    if words is None and place is None:
        raise no_equivalent("click on an element that nothing describes")
    words = words or f"the point ({place[0]}, {place[1]})"  # type: ignore[index]
    return converted("click", description=words, reasoning=thought), place


def _element(properties: Any) -> str | None:
    """The element by its role and name in the accessibility tree."""
    if not isinstance(properties, dict):
        return None
    return text_or_none(" ".join(str(properties.get(key) or "") for key in ("role", "value")).strip())


def _own_words(words: str | None) -> str | None:
    """A written description. A description that the harness generated is used only if it names the element."""
    if words is None or not _MADE_UP.match(words):
        return words
    found = _ON_ELEMENT.fullmatch(words)
    return found[1] if found else None


def _answer(message: str) -> str:
    text = message.strip()
    for tag in (ANSWER, EXIT):
        if text.startswith(tag):
            return text.removeprefix(tag).strip()
    return text  # people gave their answer without a tag


def _place(values: dict[str, Any]) -> Place:
    return round(as_number(values.get("x"), "x")), round(as_number(values.get("y"), "y"))


def _middle(box: Any) -> Place | None:
    """The middle of x, y, width and height in pixels."""
    if box is None:
        return None
    numbers = [as_number(value, "bbox") for value in as_list(box, "bbox")]
    if len(numbers) != 4:
        raise RejectedError(MALFORMED, "A bbox should hold four numbers.")
    left, top, width, height = numbers
    return round(left + width / 2), round(top + height / 2)


def _within(place: Place | None, screenshot: Screenshot) -> Place | None:
    """A place below the fold is not on the screenshot."""
    if place is None or not (0 <= place[0] < screenshot.width and 0 <= place[1] < screenshot.height):
        return None
    return place


def _url(step: dict[str, Any]) -> str | None:
    seen = step.get("other_obs")
    return text_or_none(seen.get("url")) if isinstance(seen, dict) else None


def _error(error: Any) -> str | None:
    if isinstance(error, dict):  # the harness stores the kind and the message
        error = ": ".join(str(value) for value in error.values())
    return text_or_none(error)


def _verdict(place: Path) -> dict[str, Any]:
    """The outcome, if the judges that left a verdict agree."""
    found: dict[str, str] = {}
    for path in sorted(place.glob(_VERDICTS)):
        verdict = as_object(read_json(path), path.name).get("verdict")
        if verdict in ("SUCCESS", "FAILURE"):
            found[path.name.removesuffix("_verdict.json")] = verdict.lower()
    if not found:
        return {}
    if len(set(found.values())) > 1:
        return {"reason": f"The judges {', '.join(found)} disagree."}
    judge, outcome = next(iter(found.items()))
    return {"outcome": outcome, "judge": judge, "reason": f"Taken over from {judge}_verdict.json."}
