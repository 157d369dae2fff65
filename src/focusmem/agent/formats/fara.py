"""Fara: thoughts and a tool call in JSON, with points in pixels.

Format: github.com/microsoft/fara at 3f3f1fd, `src/fara/_prompts.py` and `src/fara/fara_agent.py`. Pixels are those of
the screenshot as the model sees it, with sides that are multiples of 28.
"""

import json
import re
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote_plus

from focusmem.agent.decision import Decision
from focusmem.agent.formats.base import (
    Choice,
    chosen,
    clicked,
    number,
    resized_pixel,
    scrolled,
    seen_size,
    typed,
    unsupported,
)
from focusmem.agent.formats.texts import FormatTexts
from focusmem.browser.grounder import Point
from focusmem.errors import UnreadableActionError
from focusmem.schemas import Observation, Prompt, Turn
from focusmem.schemas.action import MAX_REPLY_LENGTH

NUM_SCREENSHOTS: Final = 3
_SHOWN_CHARACTERS: Final = 100
_TOOL_CALL: Final = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
_SEARCH: Final = "https://www.bing.com/search?q="


class Fara:
    def __init__(self, prompts: Path | None = None, *, shows_errors: bool = True) -> None:
        slots = {"system": {"width", "height"}, "task": {"task"}, "next": {"url"}}
        self._texts = FormatTexts("fara", slots, prompts, shows_errors=shows_errors)

    @property
    def digest(self) -> str:
        return self._texts.digest

    def prompt(self, decision: Decision) -> Prompt:
        width, height = seen_size(decision.seen)
        turns = [Turn("system", (self._texts.fill("system", width=width, height=height),))]
        screenshots = [decision.screenshots[step.screenshot.sha256] for step in decision.steps]
        screenshots.append(decision.seen.screenshot)
        urls = [*(step.url or "" for step in decision.steps), decision.seen.url]
        first_shown = len(screenshots) - NUM_SCREENSHOTS
        for index, (screenshot, url) in enumerate(zip(screenshots, urls, strict=True)):
            text = (
                self._texts.fill("next", url=url[:_SHOWN_CHARACTERS])
                if index
                else self._texts.fill("task", task=decision.task.instruction)
            )
            problem = self._texts.problem(decision, index)
            text = f"{problem}\n{text}" if problem else text
            if index >= first_shown:
                turns.append(Turn("user", (screenshot, text)))
            elif index == 0:  # the task is told even when its screenshot has become too old
                turns.append(Turn("user", (text,)))
            if index < len(decision.steps):
                turns.append(Turn("assistant", (decision.steps[index].reply or "",)))
        return tuple(turns)

    def read(self, answer: str, seen: Observation) -> Choice:
        thoughts, arguments = _tool_call(answer)
        action = arguments.get("action")
        match action:
            case "left_click" | "click":
                return clicked(_point(arguments, seen), seen, reasoning=thoughts)
            case "type" | "input_text":
                point = _point(arguments, seen) if arguments.get("coordinate") else None
                text = arguments.get("text", arguments.get("text_value"))
                return typed(str(text or ""), point, seen, reasoning=thoughts)
            case "scroll":
                up = number(arguments.get("pixels", 0), "pixels")
                return scrolled("up" if up > 0 else "down" if up < 0 else "nowhere", None, seen, reasoning=thoughts)
            case "key" | "keypress":
                keys = arguments.get("keys")
                key = "+".join(map(str, keys)) if isinstance(keys, list) else str(keys or "")
                return chosen("press_key", key=key, reasoning=thoughts)
            case "visit_url":
                return chosen("goto", url=str(arguments.get("url", "")), reasoning=thoughts)
            case "web_search":  # its own agent opens this address
                return chosen("goto", url=_SEARCH + quote_plus(str(arguments.get("query", ""))), reasoning=thoughts)
            case "wait" | "sleep" | "pause_and_memorize_fact":  # the fact stays in the conversation
                return chosen("wait", reasoning=thoughts)
            case "terminate" | "stop":  # the answer is what the model says beside it
                return chosen("stop", answer=thoughts)
            case _:
                raise unsupported(str(action))


def _tool_call(answer: str) -> tuple[str, dict[str, Any]]:
    """The text before the call, and the call's arguments."""
    if len(answer) > MAX_REPLY_LENGTH:
        raise UnreadableActionError(f"The reply is too long: {len(answer)} characters.")
    calls = _TOOL_CALL.findall(answer)
    if len(calls) != 1:
        raise UnreadableActionError(f"The reply contains {len(calls)} calls in <tool_call> tags; write exactly one.")
    try:
        call = json.loads(calls[0])
        arguments = call["arguments"]
    except (ValueError, LookupError, TypeError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        raise UnreadableActionError(f"The tool call is no JSON object with arguments: {calls[0][:100]!r}.")
    return answer.partition("<tool_call>")[0].strip(), arguments


def _point(arguments: dict[str, Any], seen: Observation) -> Point:
    place = arguments.get("coordinate")
    if not isinstance(place, list) or len(place) != 2:
        raise UnreadableActionError(f"The argument 'coordinate' should be [x, y], but it is {str(place)[:40]!r}.")
    return resized_pixel(number(place[0], "coordinate"), number(place[1], "coordinate"), seen)
