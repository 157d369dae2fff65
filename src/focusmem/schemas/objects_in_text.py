"""JSON objects in a model's reply: alone, in prose, in fenced blocks, in lists, and repeated."""

import json
import re
from dataclasses import dataclass
from typing import Final, Literal

from focusmem.schemas.record import STRICT_DECODER, storable

# An object begins with a key and a colon: `{x}`, `{}` and `{"x"}` in running text are not JSON objects.
_OBJECT_START: Final = re.compile(r'\{\s*"(?:[^"\\]|\\.)*+"\s*:', re.DOTALL)
_TRAILING_COMMA: Final = re.compile(r",\s*(?=[}\]])")


@dataclass(frozen=True)
class FoundObject:
    text: str
    """The object as it was written, without trailing commas."""
    canonical: str
    """A normalised form that is equal for equal objects."""


@dataclass(frozen=True)
class BrokenObject:
    """The object at which reading stopped, because it could not be read."""

    reason: Literal["cut off", "malformed"]
    message: str


def objects_in(text: str, *, takes_trailing_commas: bool = False) -> tuple[list[FoundObject], BrokenObject | None]:
    """Returns all outermost JSON objects before the first unreadable object, and what is wrong with that object.

    With `takes_trailing_commas`, a comma after the last entry of an object or a list is removed.
    """
    objects = list[FoundObject]()
    start = _OBJECT_START.search(text)
    while start:
        try:
            value, end = STRICT_DECODER.raw_decode(text, start.start())
            canonical = storable(json.dumps(value, ensure_ascii=False, sort_keys=True))
        except json.JSONDecodeError as error:
            comma = _trailing_comma(error) if takes_trailing_commas else None
            if comma is None:
                return objects, _broken(error)
            text = text[:comma] + text[comma + 1 :]
            continue
        except RecursionError:
            return objects, BrokenObject("malformed", "The JSON object is nested too deeply.")
        except ValueError as error:
            return objects, BrokenObject("malformed", f"The JSON object {error}.")
        objects.append(FoundObject(text[start.start() : end], canonical))
        start = _OBJECT_START.search(text, end)
    return objects, None


def shortened(value: object) -> str:
    """A value as JSON, short enough for a message."""
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def _trailing_comma(error: json.JSONDecodeError) -> int | None:
    """The position of the trailing comma at which the decoder stopped, if it stopped at one."""
    comma = error.doc.rfind(",", 0, error.pos + 1)
    found = _TRAILING_COMMA.match(error.doc, comma) if comma >= 0 else None
    return comma if found is not None and found.end() >= error.pos else None


def _broken(error: json.JSONDecodeError) -> BrokenObject:
    if error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated string"):
        return BrokenObject("cut off", "The JSON object is not closed; the reply seems to be cut off.")
    near = shortened(error.doc[error.pos : error.pos + 20])
    return BrokenObject("malformed", f"The JSON object is malformed: {error.msg} near {near}.")
