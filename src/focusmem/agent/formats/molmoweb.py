"""MolmoWeb: a JSON object with a thought and an action, with points in percent of the screenshot.

Format: github.com/allenai/molmoweb at 6a841b4, `agent/multimodal_agent.py` and `agent/actions.py`.
"""

import json
from pathlib import Path
from typing import Any, Final

from focusmem.agent.decision import Decision
from focusmem.agent.formats.base import Choice, chosen, clicked, number, scrolled, typed, unsupported
from focusmem.agent.formats.texts import FormatTexts
from focusmem.browser.grounder import Point
from focusmem.errors import UnreadableActionError
from focusmem.schemas import Observation, Prompt, Turn
from focusmem.schemas.action import MAX_REPLY_LENGTH
from focusmem.thinking import set_thinking_aside

NUM_STEPS: Final = 3
"""The prompt lists this many of the latest steps, in words only."""
_SHOWN_CHARACTERS: Final = 100
_ANSWER, _EXIT = "[ANSWER]", "[EXIT]"


class MolmoWeb:
    def __init__(self, prompts: Path | None = None, *, shows_errors: bool = True) -> None:
        slots = {"task": {"task", "history", "title", "url"}}
        self._texts = FormatTexts("molmoweb", slots, prompts, shows_errors=shows_errors)

    @property
    def digest(self) -> str:
        return self._texts.digest

    def prompt(self, decision: Decision) -> Prompt:
        first = max(0, len(decision.steps) - NUM_STEPS)
        history = "".join(self._step(decision, number) for number in range(first, len(decision.steps)))
        text = self._texts.fill(
            "task",
            task=decision.task.instruction,
            history=history,
            title=_shortened(decision.seen.title),
            url=_shortened(decision.seen.url),
        )
        return (Turn("user", (text, decision.seen.screenshot)),)

    def _step(self, decision: Decision, index: int) -> str:
        answer = set_thinking_aside(decision.steps[index].reply or "").answer
        try:
            thought, action = _parts(answer)
        except UnreadableActionError:
            thought, action = "", {"name": answer.strip()}
        problem = self._texts.problem(decision, index + 1)
        note = f"{problem}\n" if problem else ""
        return f"## Step {index + 1}\nTHOUGHT: {thought}\nACTION: {action}\n{note}"  # as Python writes a dict

    def read(self, answer: str, seen: Observation) -> Choice:
        thought, action = _parts(answer)
        name = action.get("name")
        match name:
            case "click" | "mouse_click":
                is_plain = action.get("button", "left") == "left" and action.get("click_type", "single") == "single"
                if not is_plain:
                    raise unsupported(f"{name} {action}")
                return clicked(_point(action), seen, reasoning=thought)
            case "type" | "keyboard_type":
                return typed(_text(action, "text"), None, seen, reasoning=thought)
            case "gemini_type_text_at":  # in thousandths, unlike all others
                return typed(_text(action, "text"), _point(action, share=1000), seen, reasoning=thought)
            case "scroll" | "scroll_at":
                down = number(action.get("delta_y", 0), "delta_y")
                if not down:
                    raise unsupported(f"{name} to the side")
                point = _point(action) if name == "scroll_at" else None
                return scrolled("down" if down > 0 else "up", point, seen, reasoning=thought)
            case "keypress" | "keyboard_press":
                key = _text(action, "key").replace("ControlOrMeta", "Control")
                return chosen("press_key", key=key, reasoning=thought)
            case "goto":
                return chosen("goto", url=_text(action, "url"), reasoning=thought)
            case "noop":
                return chosen("wait", reasoning=thought)
            case "send_msg_to_user":
                return _message(_text(action, "msg"), thought)
            case "report_infeasible":
                return chosen("stop", answer=_text(action, "infeasibility_reason"), reasoning=thought)
            case _:
                raise unsupported(f"{name} {action.get('nav_type', '')}".strip())


def _parts(answer: str) -> tuple[str, dict[str, Any]]:
    """The thought, which may be missing, and the action."""
    if len(answer) > MAX_REPLY_LENGTH:
        raise UnreadableActionError(f"The reply is too long: {len(answer)} characters.")
    try:
        document = json.loads(answer)
    except (ValueError, RecursionError):
        raise UnreadableActionError(f"The reply is not one JSON object: {answer[:100]!r}.") from None
    action = document.get("action", document) if isinstance(document, dict) else None
    if not isinstance(action, dict) or not isinstance(action.get("name"), str):
        raise UnreadableActionError("The JSON object holds no action with a name.")
    thought = document.get("thought")
    return thought if isinstance(thought, str) else "", action


def _message(message: str, thought: str) -> Choice:
    text = message.strip()
    if text.startswith(_ANSWER):
        return chosen("stop", answer=text.removeprefix(_ANSWER).strip(), reasoning=thought)
    if text.startswith(_EXIT):
        return chosen("stop", answer=text.removeprefix(_EXIT).strip(), reasoning=thought)
    raise unsupported(f"send_msg_to_user without {_ANSWER} or {_EXIT}")


def _point(action: dict[str, Any], share: int = 100) -> Point:
    x, y = (number(action.get(name), name) * 1000 / share for name in ("x", "y"))
    return Point(x, y, "per_mille")


def _text(action: dict[str, Any], name: str) -> str:
    value = action.get(name, "")
    if not isinstance(value, str):
        raise UnreadableActionError(f"The argument {name!r} should be a text, but it is {str(value)[:40]!r}.")
    return value


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 15] + "... (truncated)"
