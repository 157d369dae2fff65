"""UI-TARS: a thought and one call, with points in pixels (UI-TARS-1.5) or in thousandths of the screenshot (UI-TARS).

Format: github.com/bytedance/UI-TARS, `codes/ui_tars/prompt.py`, `action_parser.py` and `README_coordinates.md` at
582f3a7. Pixels are those of the screenshot as the model sees it, with sides that are multiples of 28.
"""

import re
from pathlib import Path
from typing import Final

from focusmem.agent.decision import Decision
from focusmem.agent.formats.base import (
    Choice,
    chosen,
    clicked,
    resized_pixel,
    scrolled,
    typed,
    unsupported,
)
from focusmem.agent.formats.calls import read_call, read_place
from focusmem.agent.formats.texts import FormatTexts
from focusmem.browser.grounder import Point
from focusmem.errors import UnreadableActionError
from focusmem.schemas import Observation, Prompt, Screenshot, Turn

NUM_SCREENSHOTS: Final = 5
"""Number of screenshots in the prompt, including the current one. Older steps are shown in words only."""

_PLACES: Final = ("start_box", "point")
_PLAIN_BOX: Final = re.compile(r"(start_box|end_box)='(\(-?\d+,\s*-?\d+\))'")

_AROUND: Final = re.compile(r"\s*(?:```|</\w+>)\s*\Z")
"""The wrapper that some versions of the model put around an action: a fence, or a tag such as <computer_env>."""


class UiTars:
    def __init__(self, prompts: Path | None = None, *, has_pixels: bool, shows_errors: bool = True) -> None:
        """With `has_pixels`, points are in pixels; otherwise in thousandths."""
        self._has_pixels = has_pixels
        self._texts = FormatTexts("ui_tars", {"task": {"task"}}, prompts, shows_errors=shows_errors)

    @property
    def digest(self) -> str:
        return self._texts.digest

    def prompt(self, decision: Decision) -> Prompt:
        turns = [Turn("user", (self._texts.fill("task", task=decision.task.instruction),))]
        first_shown = len(decision.steps) + 1 - NUM_SCREENSHOTS
        for number, step in enumerate(decision.steps):
            if number >= first_shown:
                turns.append(self._look(decision, number, decision.screenshots[step.screenshot.sha256]))
            # The tokens around a box are special ones, which servers leave out of the text of a reply.
            turns.append(Turn("assistant", (_PLAIN_BOX.sub(r"\1='<|box_start|>\2<|box_end|>'", step.reply or ""),)))
        turns.append(self._look(decision, len(decision.steps), decision.seen.screenshot))
        return tuple(turns)

    def _look(self, decision: Decision, number: int, screenshot: Screenshot) -> Turn:
        problem = self._texts.problem(decision, number)
        return Turn("user", (problem, screenshot) if problem else (screenshot,))

    def read(self, answer: str, seen: Observation) -> Choice:
        before, mark, after = answer.rpartition("Action:")
        if not mark:
            raise UnreadableActionError("The reply contains no line that begins with 'Action:'.")
        thought = re.sub(r"\A\s*(?:```)?\s*Thought:", "", before).strip()
        call = read_call(_AROUND.sub("", after))
        place = next((call.arguments[name] for name in _PLACES if call.arguments.get(name)), None)
        match call.name:
            case "click" | "left_single":
                return clicked(self._point(place, seen), seen, reasoning=thought)
            case "type":
                text = call.arguments.get("content", call.arguments.get("text", ""))
                return typed(text, self._point(place, seen) if place else None, seen, reasoning=thought)
            case "scroll":
                direction = call.arguments.get("direction", "")
                return scrolled(direction, self._point(place, seen) if place else None, seen, reasoning=thought)
            case "hotkey" | "press":
                keys = call.arguments.get("key") or call.arguments.get(call.name, "")
                return chosen("press_key", key="+".join(keys.split()), reasoning=thought)
            case "wait":
                return chosen("wait", reasoning=thought)
            case "finished":
                return chosen("stop", answer=call.arguments.get("content", ""), reasoning=thought)
            case "call_user":  # the model gives up
                return chosen("stop", answer="", reasoning=thought)
            case _:
                raise unsupported(call.name)

    def _point(self, place: str | None, seen: Observation) -> Point:
        x, y = read_place(place)
        return resized_pixel(x, y, seen) if self._has_pixels else Point(x, y, "per_mille")
