"""A request to a chat endpoint: the body that is sent, and the key under which its reply is stored."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from focusmem.files import sha256_hex
from focusmem.schemas import Prompt, Screenshot

_FORM: Final = 1
"""Increased when the same request would be written differently, so that no reply to the older form is reused."""
_CHARACTERS_PER_TOKEN: Final = 3
_PIXELS_PER_TOKEN: Final = 28 * 28


@dataclass(frozen=True)
class Question:
    """All requested parameters that influence the reply. Parameters that an endpoint refuses are left out when the
    request is sent.
    """

    url: str
    model: str
    prompt: Prompt
    max_tokens: int
    fields: Mapping[str, Any]
    """Further fields of the request, such as a temperature."""
    seed: int | None = None
    """Distinguishes otherwise equal requests. It is sent only if the reply is sampled."""

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
        """A digest that is equal for equal requests."""
        return sha256_hex(json.dumps(self.record, sort_keys=True, separators=(",", ":")).encode())

    def estimated_tokens(self) -> int:
        """A rough estimate of the tokens of the prompt and the longest reply together."""
        total = self.max_tokens
        for turn in self.prompt:
            for part in turn.parts:
                if isinstance(part, str):
                    total += len(part) // _CHARACTERS_PER_TOKEN
                else:
                    total += part.width * part.height // _PIXELS_PER_TOKEN
        return total


def _content(parts: tuple[str | Screenshot, ...]) -> str | list[dict[str, Any]]:
    """A message of text only is sent as a string, because some servers accept nothing else in a system message.
    Neighbouring texts are joined, because some servers put a line break between them.
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
