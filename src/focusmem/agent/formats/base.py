"""The seam: the action format of a model. Our own format is JSON with descriptions; other agents write calls with
coordinates.

A foreign format has the prompt that its model was trained for, and a parser that turns a reply into one of our seven
actions and a point on the screenshot. An action without an equivalent among the seven becomes an unreadable action with
an explanation.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from pydantic import ValidationError

from focusmem.agent.decision import Decision
from focusmem.browser.grounder import Point
from focusmem.errors import GroundingError, UnreadableActionError
from focusmem.schemas import Observation, Prompt, make_action, parse_action
from focusmem.schemas.action import MAX_ARGUMENT_LENGTH, AnyAction
from focusmem.schemas.observation import ControlInfo
from focusmem.schemas.record import describe_problem

FormatName = Literal["json", "ui-tars-pixels", "ui-tars-thousandths", "ui-venus", "molmoweb", "fara"]


@dataclass(frozen=True)
class Choice:
    """An action, and the point that the model gave."""

    action: AnyAction
    point: tuple[int, int] | None = None
    """A pixel of the screenshot; None if the element is described in words, or the action needs no point."""


Reader = Callable[[str, Observation], Choice]
"""Reads a model's answer, without its thoughts. Raises UnreadableActionError."""


class ActionFormat(Protocol):
    @property
    def digest(self) -> str:
        """A digest that is equal for equal wordings of the prompt."""

    def prompt(self, decision: Decision) -> Prompt:
        """The prompt for a decision."""

    def read(self, answer: str, seen: Observation) -> Choice:
        """The action in the model's reply. Raises UnreadableActionError."""


def read_json(answer: str, seen: Observation) -> Choice:
    """Our own format: one JSON object, which names elements in words."""
    return Choice(parse_action(answer))


# For adapters.


def unsupported(name: str) -> UnreadableActionError:
    return UnreadableActionError(
        f"The action {name[:60]!r} has no equivalent here; the actions are a left click, typing, scrolling up or down, "
        "pressing keys, opening an address, waiting, and finishing with an answer."
    )


def chosen(name: str, *, reasoning: str = "", point: tuple[int, int] | None = None, **arguments: str) -> Choice:
    """Builds one of our actions. An invalid value makes the reply unreadable."""
    thoughts = {"reasoning": reasoning[:MAX_ARGUMENT_LENGTH]} if reasoning else {}
    try:
        return Choice(make_action(name, **arguments, **thoughts), point)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
    raise UnreadableActionError(f"The argument {problem['loc'][-1]!r} of {name} {describe_problem(problem)}.")


def clicked(point: Point, seen: Observation, *, reasoning: str = "") -> Choice:
    pixel = pixel_of(point, seen)
    return chosen("click", description=describe(pixel, seen.controls), point=pixel, reasoning=reasoning)


def typed(text: str, point: Point | None, seen: Observation, *, reasoning: str = "") -> Choice:
    """Drops a line break at the end, which asks for Enter, because the suite decides about Enter. A text that is only a
    line break becomes the Enter key.
    """
    written = text.rstrip("\n")
    if text and not written:
        return chosen("press_key", key="Enter", reasoning=reasoning)
    if point is None:
        return chosen("type", text=written, reasoning=reasoning)
    pixel = pixel_of(point, seen)
    return chosen("type", text=written, description=describe(pixel, seen.controls), point=pixel, reasoning=reasoning)


def scrolled(direction: str, point: Point | None, seen: Observation, *, reasoning: str = "") -> Choice:
    if direction not in ("up", "down"):
        raise unsupported(f"scroll {direction}")
    pixel = None if point is None else pixel_of(point, seen)
    return chosen("scroll", direction=direction, point=pixel, reasoning=reasoning)


def pixel_of(point: Point, seen: Observation) -> tuple[int, int]:
    """The pixel of the screenshot that a point refers to. A point far outside the screenshot is the model's error, not
    the world's.
    """
    try:
        return point.pixel(seen.screenshot.width, seen.screenshot.height)
    except GroundingError as error:
        raise UnreadableActionError(str(error)) from None


def resized_pixel(x: float, y: float, seen: Observation) -> Point:
    """A point in the pixels of the screenshot as models of the Qwen2.5-VL family see it: both sides are rounded to
    multiples of 28.
    """
    width, height = seen.screenshot.width, seen.screenshot.height
    return Point(x * width / _seen_side(width), y * height / _seen_side(height), "pixels")


def seen_size(seen: Observation) -> tuple[int, int]:
    """Width and height of the screenshot as such a model sees it."""
    return _seen_side(seen.screenshot.width), _seen_side(seen.screenshot.height)


def describe(pixel: tuple[int, int], controls: Sequence[ControlInfo]) -> str:
    """Describes the element at a pixel in words, so that records and memory can be read without the coordinates."""
    x, y = pixel
    under = [
        one for one in controls if 0 <= x - one.left < one.width and 0 <= y - one.top < one.height and one.name.strip()
    ]
    if not under:
        return f"the point ({x}, {y})"
    return min(under, key=lambda one: one.width * one.height).name[:MAX_ARGUMENT_LENGTH]


_SIDE = 28


def _seen_side(length: int) -> int:
    # Screenshots are far from the limits on a picture's total size (about 12.8 million pixels, and 3136).
    return max(_SIDE, round(length / _SIDE) * _SIDE)


def number(value: Any, name: str) -> float:
    """A number that a model wrote in JSON."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UnreadableActionError(f"The argument {name!r} should be a number, but it is {str(value)[:40]!r}.")
    return float(value)
