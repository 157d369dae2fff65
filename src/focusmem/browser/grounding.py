"""Grounding without a model: compares the policy's description with the names that the page gives its controls.

A wrong click costs more than "not found", so similarity alone is not enough: a control is rejected unless one text
contains the other, or both share most words and have no different numbers.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from focusmem.browser.grounder import Point, View
from focusmem.schemas.observation import ControlInfo, ControlKind

ALL_KINDS: Final[tuple[ControlKind, ...]] = ("link", "button", "field")
MIN_OVERLAP: Final = 0.75
"""More than this share of the shorter text's words has to occur in the longer one."""

_ARTICLES: Final = frozenset({"the", "a", "an"})
# Words that name the kind of a control and do not distinguish controls.
_KIND_WORDS: Final[dict[str, ControlKind | None]] = {
    "link": "link",
    "button": "button",
    "icon": None,
    "tab": None,
    "option": None,
    "item": None,
    "menu": None,
    "field": "field",
    "box": "field",
    "bar": "field",
    "input": "field",
    "textbox": "field",
}


@dataclass(frozen=True)
class Wording:
    """A description or a name, without the words that do not distinguish controls."""

    words: tuple[str, ...]
    kind: ControlKind | None
    """The kind that the last word suggests, as in "search box"."""

    @classmethod
    def of(cls, text: str) -> "Wording":
        plain = unicodedata.normalize("NFKC", text).casefold()
        words = [word for word in re.findall(r"\w+", plain.replace("_", " ")) if word not in _ARTICLES]
        kind: ControlKind | None = None
        while len(words) > 1 and words[-1] in _KIND_WORDS:
            kind = kind or _KIND_WORDS[words.pop()]
        return cls(tuple(words), kind)

    def holds(self, other: "Wording") -> bool:
        """Whether the words of `other` occur in this wording as a contiguous sequence."""
        length = len(other.words)
        starts = range(len(self.words) - length + 1)
        return length > 0 and any(self.words[start : start + length] == other.words for start in starts)

    def numbers(self) -> set[str]:
        return {word for word in self.words if any(letter.isdigit() for letter in word)}


class NameGrounder:
    """A `Grounder` that needs no model."""

    async def find(self, description: str, view: View, *, is_field: bool = False) -> Point | str:
        kinds: Sequence[ControlKind] = ("field",) if is_field else ALL_KINDS
        control = find_control(description, await view.controls(), kinds)
        if control is None:
            return not_found(description, "No field" if is_field else "Nothing")
        return Point(*control.centre, "pixels")


def find_control(
    description: str, controls: Sequence[ControlInfo], kinds: Collection[ControlKind] = ALL_KINDS
) -> ControlInfo | None:
    """The control that a description means: the one with exactly that name, otherwise the one that shares most words
    with it.

    Among equally good controls, the kind that the description suggests comes first, then the one higher on the page.
    """
    wanted = Wording.of(description)
    if not wanted.words:
        return None
    rated = [(_likeness(wanted, Wording.of(control.name)), control) for control in controls if control.kind in kinds]
    likely = [(rating, control) for rating, control in rated if rating is not None]
    if not likely:
        return None

    def rank(pair: tuple[tuple[float, ...], ControlInfo]) -> tuple[object, ...]:
        rating, control = pair
        return *(-number for number in rating), control.kind != wanted.kind, control.top, control.left

    return min(likely, key=rank)[1]


def _likeness(wanted: Wording, name: Wording) -> tuple[float, ...] | None:
    """The similarity of a name; larger is better, and None rejects the name. Its parts are compared in this order:
    equality, number of shared words, whether they are contiguous, their share of all words.
    """
    if not name.words:
        return None
    if wanted.words == name.words:
        return 1, 0, 0, 0
    shared = (Counter(wanted.words) & Counter(name.words)).total()
    is_contained = wanted.holds(name) or name.holds(wanted)
    overlap = shared / min(len(wanted.words), len(name.words))
    has_other_number = bool(wanted.numbers() - name.numbers() and name.numbers() - wanted.numbers())
    if not is_contained and (overlap <= MIN_OVERLAP or has_other_number):
        return None
    return 0, shared, is_contained, 2 * shared / (len(wanted.words) + len(name.words))


def find_field(
    description: str | None, controls: Sequence[ControlInfo], *, has_focus: bool
) -> ControlInfo | str | None:
    """Chooses the field to type into: the described field, otherwise the focused field (returned as None), otherwise
    the only field. If there is none, returns the reason.
    """
    fields = [control for control in controls if control.kind == "field"]
    if description is not None:
        return find_control(description, fields) or not_found(description, "No field")
    if has_focus:
        return None
    if len(fields) == 1:
        return fields[0]
    if fields:
        return f"There are {len(fields)} fields in view; say which one to type into."
    return "There is no field in view to type into."


def not_found(description: str, what: str = "Nothing") -> str:
    """The message to the policy if no control matches its description."""
    return f"{what} in view is called {description[:80]!r}; use the words on the page, or scroll."
