"""Fences around text that a page or a policy wrote, so that a judge model can tell it from its instructions.

The mark of a fence is computed from the text inside, so no text can contain the mark of its own fence.
"""

import re
from typing import Final

from focusmem.files import sha256_hex
from focusmem.schemas import Prompt

_MARK_LENGTH: Final = 16
_OPENING: Final = re.compile(r'<data id="([0-9a-f]{16})">')


def fenced(text: str) -> str:
    mark = sha256_hex(text.encode(errors="replace"))[:_MARK_LENGTH]
    return f'<data id="{mark}">\n{text}\n</data id="{mark}">'


def is_echo(reply: str, prompt: Prompt) -> bool:
    """Whether the reply repeats a fence of the prompt."""
    texts = (part for turn in prompt for part in turn.parts if isinstance(part, str))
    return any(mark in reply for text in texts for mark in _OPENING.findall(text))
