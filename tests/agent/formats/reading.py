"""Reading a reply on a screen of a given size."""

import pytest

from focusmem.errors import UnreadableActionError
from focusmem.schemas import Observation, Screenshot
from focusmem.schemas.observation import ControlInfo
from focusmem.thinking import set_thinking_aside


def screen(width, height, *controls):
    from PIL import Image

    return Observation(
        Screenshot.from_image(Image.new("RGB", (width, height))),
        "https://shop.example/mugs",
        "Mugs",
        tuple(
            ControlInfo(name=name, kind="button", left=left, top=top, width=w, height=h)
            for name, left, top, w, h in controls
        ),
    )


def read(action_format, reply, seen):
    """The action's name, its arguments without reasoning, and the point."""
    choice = action_format.read(set_thinking_aside(reply).answer, seen)
    arguments = choice.action.arguments.model_dump(exclude_none=True, exclude={"reasoning"})
    return choice.action.name, arguments, choice.point


def assert_unreadable(action_format, reply, seen, words):
    with pytest.raises(UnreadableActionError, match=words):
        action_format.read(set_thinking_aside(reply).answer, seen)
