"""Reads calls such as `click(start_box='(197,525)')`, which several agents write. The text is parsed, never "
"executed."""

import re
from dataclasses import dataclass
from typing import Final

from focusmem.errors import UnreadableActionError
from focusmem.schemas.action import MAX_REPLY_LENGTH

_CALL: Final = re.compile(r"(\w+)\s*\((.*)\)", re.DOTALL)
_BETWEEN: Final = re.compile(r"(?<=\))\s*\n\s*(?=\w+\()")
# A quoted value ends at the quote that another argument or the end follows, so apostrophes in it need no escape.
_ARGUMENT: Final = re.compile(
    r"""\s*(\w+)\s*=\s*(?:'((?:\\.|[^\\])*?)'|"((?:\\.|[^\\])*?)"|(\([^()]*\)|\[[^\[\]]*\]|[^,()'"]+))"""
    r"""\s*(?:,(?=\s*\w+\s*=)|\Z)""",
    re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_TAGS: Final = re.compile(r"<\|box_start\|>|<\|box_end\|>|</?(?:point|bbox)>")
_NUMBER: Final = r"(-?\d{1,6}(?:\.\d{1,6})?)"
_NEXT: Final = rf"(?:\s*,\s*|\s+){_NUMBER}"
_PLACE: Final = re.compile(rf"[(\[]?\s*{_NUMBER}{_NEXT}(?:{_NEXT}{_NEXT})?\s*[)\]]?")


@dataclass(frozen=True)
class Call:
    name: str
    arguments: dict[str, str]
    """The arguments by name: texts without their quotes, other values unchanged."""


def read_call(text: str) -> Call:
    """The one call that a text consists of."""
    if len(text) > MAX_REPLY_LENGTH:
        raise UnreadableActionError(f"The action is too long: {len(text)} characters.")
    calls = _BETWEEN.split(text.strip())
    if len(calls) > 1:
        raise UnreadableActionError(f"The reply contains {len(calls)} actions; one is performed in each step.")
    call = _CALL.fullmatch(calls[0])
    if call is None:
        raise UnreadableActionError(f"The action {calls[0][:100]!r} is no call such as click(...).")
    arguments, at, inside = dict[str, str](), 0, call[2]
    while inside[at:].strip():
        found = _ARGUMENT.match(inside, at)
        if found is None:
            raise UnreadableActionError(f"The arguments of {call[1]} cannot be read: {inside[at : at + 100]!r}.")
        quoted = found[2] if found[2] is not None else found[3]
        arguments[found[1]] = found[4].strip() if quoted is None else _ESCAPE.sub(_unescaped, quoted)
        at = found.end()
    return Call(call[1], arguments)


def read_place(text: str | None) -> tuple[float, float]:
    """Reads a point, or the middle of a box, in the notations that models use."""
    found = None if text is None else _PLACE.fullmatch(_TAGS.sub(" ", text).strip())
    if found is None:
        raise UnreadableActionError(f"The place {(text or '')[:60]!r} is neither a point nor a box.")
    left, top, right, bottom = (None if value is None else float(value) for value in found.groups())
    assert left is not None
    assert top is not None
    return (left, top) if right is None or bottom is None else ((left + right) / 2, (top + bottom) / 2)


def _unescaped(match: re.Match[str]) -> str:
    return {"n": "\n", "t": "\t"}.get(match[1], match[1])
