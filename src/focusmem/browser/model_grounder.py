"""Grounding by a model that was trained for it, as UGround was: a screenshot and a description in, a point out.

The answer is numbers relative to the picture that was sent, whatever the model makes of its size, and is read as
numbers: it is neither searched for something that looks like a point nor evaluated.
"""

import base64
import re
from pathlib import Path
from typing import Any, Final

from focusmem.browser.endpoint import Endpoint
from focusmem.browser.grounder import Point, Space, View
from focusmem.errors import GroundingError
from focusmem.schemas.screenshot import Screenshot
from focusmem.templates import Templates

_OWN_PROMPTS = Path(__file__).parent / "prompts"
_NUMBER: Final = r"(-?[0-9]{1,6}(?:\.[0-9]{1,9})?)"
_PAIR: Final = rf"\s*{_NUMBER}\s*,\s*{_NUMBER}\s*"
_FORMS: Final = tuple(re.compile(form) for form in (rf"\({_PAIR}\)", rf"\[{_PAIR}\]", _PAIR))


class ModelGrounder:
    """`prompts` is a folder with another wording; `space` says what the model's numbers count."""

    def __init__(self, endpoint: Endpoint, *, space: Space = "per_mille", prompts: Path | None = None) -> None:
        self._endpoint, self._space = endpoint, space
        self._templates = Templates(prompts or _OWN_PROMPTS, slots={"ground": {"description"}})

    async def find(self, description: str, view: View, *, is_field: bool = False) -> Point | str:
        """Always a point: such a model does not say that there is nothing, and fields look like fields to it."""
        screenshot = await view.screenshot()
        reply = await self._endpoint.ask(self._question(description, screenshot))
        point = parse_point(reply, self._space)
        if 0 < point.x < 1 and 0 < point.y < 1:  # of a picture it would be the corner pixel, whatever was meant
            raise GroundingError(
                f"The grounding model replied {reply[:200]!r}, shares of the picture where {self._space} were expected."
            )
        try:
            point.pixel(screenshot.width, screenshot.height)
        except GroundingError as error:
            raise GroundingError(f"{error} The model replied {reply[:200]!r} for {description[:80]!r}.") from error
        return point

    def _question(self, description: str, screenshot: Screenshot) -> list[dict[str, Any]]:
        """The picture first, as these models were trained."""
        data = base64.b64encode(screenshot.png).decode()
        return [
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}},
            {"type": "text", "text": self._templates.fill("ground", description=description)},
        ]


def parse_point(reply: str, space: Space) -> Point:
    """The one pair that a reply consists of, such as `(512, 334)`; anything else is an error."""
    for form in _FORMS:
        found = form.fullmatch(reply.strip())
        if found:
            return Point(float(found[1]), float(found[2]), space)
    raise GroundingError(f"The grounding model replied {reply[:200]!r}; it should be one pair such as (512, 334).")
