"""Grounding by a model that was trained for it, such as UGround: it gets a screenshot and a description and returns a
point.

The whole reply has to be one pair of numbers, relative to the screenshot that was sent. A reply with any other text is
an error, and replies are never executed.
"""

import asyncio
import re
from pathlib import Path
from typing import Final

from focusmem.browser.grounder import Point, Space, View
from focusmem.clients.base import ChatClient
from focusmem.errors import GroundingError, WorldError
from focusmem.schemas import Prompt, Screenshot, Turn
from focusmem.templates import Templates
from focusmem.thinking import set_thinking_aside

_OWN_PROMPTS = Path(__file__).parent / "prompts"
_NUMBER: Final = r"(-?[0-9]{1,6}(?:\.[0-9]{1,9})?)"
_PAIR: Final = rf"\s*{_NUMBER}\s*,\s*{_NUMBER}\s*"
_FORMS: Final = tuple(re.compile(form) for form in (rf"\({_PAIR}\)", rf"\[{_PAIR}\]", _PAIR))


class ModelGrounder:
    """`prompts` is a folder with another wording; `space` is the unit of the model's numbers."""

    def __init__(self, client: ChatClient, *, space: Space = "per_mille", prompts: Path | None = None) -> None:
        self._client, self._space = client, space
        self._templates = Templates(prompts or _OWN_PROMPTS, slots={"ground": {"description"}})

    async def find(self, description: str, view: View, *, is_field: bool = False) -> Point | str:
        """Always returns a point: such models never report that an element is absent. `is_field` is ignored."""
        screenshot = await view.screenshot()
        reply = set_thinking_aside(await self._ask(self._question(description, screenshot))).answer
        point = parse_point(reply, self._space)
        # Such numbers are shares of the picture. In the expected unit they would always mean the corner.
        if 0 < point.x < 1 and 0 < point.y < 1:
            raise GroundingError(
                f"The grounding model replied {reply[:200]!r}, shares of the picture where {self._space} were expected."
            )
        try:
            point.pixel(screenshot.width, screenshot.height)
        except GroundingError as error:
            raise GroundingError(f"{error} The model replied {reply[:200]!r} for {description[:80]!r}.") from error
        return point

    async def _ask(self, question: Prompt) -> str:
        """Asks in a thread, so that the browsers' event loop is not blocked."""
        try:
            reply = await asyncio.to_thread(self._client.ask, question)
        except WorldError as error:
            raise GroundingError(str(error)) from error
        if reply.is_cut_off:  # a truncated answer might look complete
            raise GroundingError(f"The grounding model's reply was cut off: {reply.text[:200]!r}.")
        return reply.text

    def _question(self, description: str, screenshot: Screenshot) -> Prompt:
        """The question, with the picture first, as in the training of these models."""
        return (Turn("user", (screenshot, self._templates.fill("ground", description=description))),)


def parse_point(reply: str, space: Space) -> Point:
    """Reads a reply that is one pair of numbers, such as `(512, 334)`; any other reply is an error."""
    for form in _FORMS:
        found = form.fullmatch(reply.strip())
        if found:
            return Point(float(found[1]), float(found[2]), space)
    raise GroundingError(f"The grounding model replied {reply[:200]!r}; it should be one pair such as (512, 334).")
