"""The parameters that an endpoint refuses, and their replacements. They are learnt from its refusals and kept for later
requests.

Endpoints differ: OpenAI's reasoning models refuse `max_tokens` and every temperature, older servers do not know
`max_completion_tokens`, some models know no JSON output.
"""

import re
import threading
from dataclasses import dataclass
from typing import Any, Final

from focusmem.clients.completion import error_fields

_LIMITS: Final = ("max_completion_tokens", "max_tokens")
_OPTIONAL: Final = ("temperature", "top_p", "seed", "response_format")
_REFUSAL: Final = re.compile(
    r"unsupported|not support|only supports?|unrecogni[sz]ed|unknown|unexpected|not permitted|not allowed|deprecated"
    r"|extra_forbidden|invalid (?:parameter|argument|field)"
)
_STATUSES: Final = (400, 422)


@dataclass(frozen=True)
class Spoken:
    """The form in which a request was sent."""

    body: dict[str, Any]
    limit_name: str | None
    departures: tuple[str, ...]


class Dialect:
    """Several threads may use and change it at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._refused: set[str] = set()

    def put(self, body: dict[str, Any], max_tokens: int) -> Spoken:
        """The request in the form that this endpoint accepts, as far as it is known."""
        with self._lock:
            refused = frozenset(self._refused)
        kept = {name: value for name, value in body.items() if name not in refused}
        departures = [
            f"{_described(name, body[name])} was refused" for name in _OPTIONAL if name in body.keys() & refused
        ]
        limit_name = next((name for name in _LIMITS if name not in refused), None)
        if limit_name is None:
            departures.append(f"a limit of {max_tokens} tokens was refused")
        else:
            kept[limit_name] = max_tokens
        return Spoken(kept, limit_name, tuple(departures))

    def learn(self, spoken: Spoken, status: int, answer: bytes) -> bool:
        """Whether the answer refuses a field that can be left out or replaced, so that another request may succeed."""
        if status not in _STATUSES:
            return False
        fields = [name for name in (*_OPTIONAL, spoken.limit_name) if name is not None and name in spoken.body]
        refused = _refused_field(fields, answer)
        if refused is None:
            return False
        with self._lock:
            self._refused.add(refused)
        return True


def _refused_field(fields: list[str], answer: bytes) -> str | None:
    """Only fields that were sent are considered, because a message may also name the field to use instead."""
    text = answer.decode(errors="replace").lower()
    if not _REFUSAL.search(text):
        return None
    _, parameter = error_fields(answer)
    if parameter in fields:
        return parameter
    return next((name for name in fields if re.search(rf"(?<![a-z_]){name}(?![a-z_])", text)), None)


def _described(name: str, value: Any) -> str:
    match name:
        case "temperature" | "top_p":
            return f"{name} {value:g}"
        case "response_format":
            return "JSON output"
        case _:
            return f"the {name}"
