"""Grounding by a model that was trained for it, such as UGround: a screenshot and a description in, a point out.

The whole reply has to be one pair of numbers, relative to the screenshot that was sent. It is neither searched for
something that looks like a point nor evaluated.
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
        """Always a point: such a model never says that the element is absent. It does not use `is_field`."""
        screenshot = await view.screenshot()
        reply = await self._ask(self._question(description, screenshot))
        point = parse_point(reply, self._space)
        if 0 < point.x < 1 and 0 < point.y < 1:  # as pixels or thousandths it would always be the corner
            raise GroundingError(
                f"The grounding model replied {reply[:200]!r}, shares of the picture where {self._space} were expected."
            )
        try:
            point.pixel(screenshot.width, screenshot.height)
        except GroundingError as error:
            raise GroundingError(f"{error} The model replied {reply[:200]!r} for {description[:80]!r}.") from error
        return point

    async def _ask(self, question: Prompt) -> str:
        """In a thread, so that the browsers' event loop goes on."""
        try:
            reply = await asyncio.to_thread(self._client.ask, question)
        except WorldError as error:
            raise GroundingError(str(error)) from error
        if reply.is_cut_off:  # the start of an answer might still look like a whole one
            raise GroundingError(f"The grounding model's reply was cut off: {reply.text[:200]!r}.")
        return reply.text

    def _question(self, description: str, screenshot: Screenshot) -> Prompt:
        """The picture first, as these models were trained."""
        return (Turn("user", (screenshot, self._templates.fill("ground", description=description))),)


def parse_point(reply: str, space: Space) -> Point:
    """The one pair that a reply consists of, such as `(512, 334)`; anything else is an error."""
    for form in _FORMS:
        found = form.fullmatch(reply.strip())
        if found:
            return Point(float(found[1]), float(found[2]), space)
    raise GroundingError(f"The grounding model replied {reply[:200]!r}; it should be one pair such as (512, 334).")
