"""UI-Venus-1.5: thoughts, one call, and a conclusion, each in its tags, with points in thousandths of the screenshot.

Format: github.com/inclusionAI/UI-Venus at c3a1442, `models/navigation/utils.py` (the actions on web pages) and
`Venus_framework/policy/ui_venus_policy.py` (the scale of places).
"""

import re
from pathlib import Path
from typing import Final

from focusmem.agent.decision import Decision
from focusmem.agent.formats.base import Choice, chosen, clicked, scrolled, typed, unsupported
from focusmem.agent.formats.calls import Call, read_call, read_place
from focusmem.agent.formats.texts import FormatTexts
from focusmem.browser.grounder import Point
from focusmem.errors import UnreadableActionError
from focusmem.schemas import Observation, Prompt, Turn
from focusmem.thinking import set_thinking_aside

_ACTION: Final = re.compile(r"<action>(.*?)</action>", re.DOTALL)
_CONCLUSION: Final = re.compile(r"<conclusion>(.*?)(?:</conclusion>|\Z)", re.DOTALL)
_WORDS: Final = re.compile(r"['\"]([^'\"]+)['\"]")


class UiVenus:
    def __init__(self, prompts: Path | None = None, *, shows_errors: bool = True) -> None:
        slots = {"task": {"task", "history"}}
        self._texts = FormatTexts("ui_venus", slots, prompts, shows_errors=shows_errors)

    @property
    def digest(self) -> str:
        return self._texts.digest

    def prompt(self, decision: Decision) -> Prompt:
        history = "\n".join(self._step(decision, number) for number in range(len(decision.steps)))
        text = self._texts.fill("task", task=decision.task.instruction, history=history)
        return (Turn("user", (text, decision.seen.screenshot)),)

    def _step(self, decision: Decision, number: int) -> str:
        thinking = set_thinking_aside(decision.steps[number].reply or "")
        action = _ACTION.search(thinking.answer)
        words = (action[1] if action else thinking.answer).strip()
        line = f"Step {number}: <think>{thinking.thoughts}</think><action>{words}</action>"
        problem = self._texts.problem(decision, number + 1)
        return f"{line} {problem}" if problem else line

    def read(self, answer: str, seen: Observation) -> Choice:
        actions = _ACTION.findall(answer)
        if len(actions) != 1:
            raise UnreadableActionError(
                f"The reply contains {len(actions)} actions in <action> tags; write exactly one."
            )
        found = _CONCLUSION.search(answer)
        return _choice(read_call(actions[0]), seen, found[1].strip() if found else "")


def _choice(call: Call, seen: Observation, conclusion: str) -> Choice:
    arguments = call.arguments
    match call.name:
        case "Click":
            return clicked(_point(arguments.get("box")), seen, reasoning=conclusion)
        case "Type":
            return typed(arguments.get("content", ""), None, seen, reasoning=conclusion)
        case "Scroll":
            return _scroll(arguments, seen, conclusion)
        case "Launch" if arguments.get("url"):
            return chosen("goto", url=arguments["url"], reasoning=conclusion)
        case "PressEnter":
            return chosen("press_key", key="Enter", reasoning=conclusion)
        case "Hotkey":
            keys = _WORDS.findall(arguments.get("keys", "")) or [arguments.get("keys", "")]
            return chosen("press_key", key="+".join(keys), reasoning=conclusion)
        case "Wait":
            return chosen("wait", reasoning=conclusion)
        case "Finished" | "CallUser":  # on web pages, answers are given by CallUser
            return chosen("stop", answer=arguments.get("content", ""), reasoning=conclusion)
        case _:
            raise unsupported(call.name)


def _scroll(arguments: dict[str, str], seen: Observation, conclusion: str) -> Choice:
    """Reads a direction, or a swipe over the screen, which scrolls the page the opposite way."""
    if "direction" in arguments:
        return scrolled(arguments["direction"], None, seen, reasoning=conclusion)
    start, end = read_place(arguments.get("start")), read_place(arguments.get("end"))
    if abs(end[1] - start[1]) <= abs(end[0] - start[0]):
        raise unsupported("Scroll to the side")
    return scrolled("down" if end[1] < start[1] else "up", Point(*start, "per_mille"), seen, reasoning=conclusion)


def _point(place: str | None) -> Point:
    return Point(*read_place(place), "per_mille")
