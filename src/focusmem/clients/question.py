"""A request to a chat endpoint: the body that is sent, and the form by which its reply is found again."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from focusmem.files import sha256_hex
from focusmem.schemas import Prompt, Screenshot

_FORM: Final = 1
"""Increased when the same request would be written differently, so that no reply of the older form is taken for it."""
_CHARACTERS_PER_TOKEN: Final = 3
_PIXELS_PER_TOKEN: Final = 28 * 28


@dataclass(frozen=True)
class Question:
    """Everything that decides the reply, as it is asked for. What an endpoint refuses is left out when it is sent."""

    url: str
    model: str
    prompt: Prompt
    max_tokens: int
    fields: Mapping[str, Any]
    """Further fields of the request, such as a temperature."""
    seed: int | None = None
    """Tells apart requests that are equal otherwise. It is sent only if the reply is sampled."""

    @property
    def body(self) -> dict[str, Any]:
        """The request without its limit on tokens, whose name depends on the endpoint."""
        messages = [{"role": turn.role, "content": _content(turn.parts)} for turn in self.prompt]
        return {"model": self.model, "messages": messages, **self.fields}

    @property
    def record(self) -> dict[str, Any]:
        """The request with pictures named by their digests."""
        return {
            "form": _FORM,
            "url": self.url,
            "model": self.model,
            "messages": [
                {
                    "role": turn.role,
                    "content": [part if isinstance(part, str) else [part.digest] for part in turn.parts],
                }
                for turn in self.prompt
            ],
            "max_tokens": self.max_tokens,
            "seed": self.seed,
            **{f"field:{name}": value for name, value in self.fields.items()},
        }

    @property
    def digest(self) -> str:
        """Equal for equal requests."""
        return sha256_hex(json.dumps(self.record, sort_keys=True, separators=(",", ":")).encode())

    def estimated_tokens(self) -> int:
        """Roughly how many tokens the prompt and the longest reply have together."""
        total = self.max_tokens
        for turn in self.prompt:
            for part in turn.parts:
                if isinstance(part, str):
                    total += len(part) // _CHARACTERS_PER_TOKEN
                else:
                    total += part.width * part.height // _PIXELS_PER_TOKEN
        return total


def _content(parts: tuple[str | Screenshot, ...]) -> str | list[dict[str, Any]]:
    """Text alone stays a string, because some servers accept nothing else in a system message. Neighbouring texts are
    joined, because some servers put a line break between them.
    """
    if all(isinstance(part, str) for part in parts):
        return "".join(map(str, parts))
    joined: list[str | Screenshot] = []
    for part in parts:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += part
        else:
            joined.append(part)
    return [_part(part) for part in joined]


def _part(part: str | Screenshot) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{base64.b64encode(part.png).decode()}"}}
