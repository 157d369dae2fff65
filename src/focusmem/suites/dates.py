"""Moves the dates in an instruction by a number of days, so that tasks about future dates stay possible.

All dates of a benchmark move by one whole number of weeks, so lengths of stay and days of the week do not change. A
date keeps its format: `Dec. 26th`, `20 December`, `March 1-7, 2024`, `20/12/2023`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final

_MONTHS: Final = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
_NUMBER_OF: Final = (
    {name: number for number, name in enumerate(_MONTHS, start=1)}
    | {name[:3]: number for number, name in enumerate(_MONTHS, start=1)}
    | {"Sept": 9}
)
_MONTH: Final = rf"(?P<month>{'|'.join(sorted(_NUMBER_OF, key=len, reverse=True))})(?P<dot>\.?)"
_DAY: Final = r"(?P<day>\d{1,2})(?P<suffix>st|nd|rd|th)?"
_YEAR: Final = r"(?P<comma>,?) (?P<year>20\d\d)"
_FORMS: Final = (
    re.compile(r"(?<![\d/])(?P<day>\d{1,2})/(?P<number>\d{1,2})/(?P<year>20\d\d)(?![\d/])"),
    re.compile(
        rf"\b{_MONTH} {_DAY}(?:(?P<to> ?[-\u2013] ?| to )(?P<last>\d{{1,2}})(?P<last_suffix>st|nd|rd|th)?)?\b(?!:)"
        rf"(?:{_YEAR}\b)?"
    ),
    re.compile(rf"\b{_DAY} {_MONTH}(?!\w)(?:{_YEAR}\b)?"),
)
_FIXED: Final = re.compile(r"\b(?:Valentine|Christmas|New Year|Thanksgiving|Easter|Halloween|Hanukkah|Labor Day)", re.I)
_TODAY: Final = re.compile(r"\btoday \((?=\w+ \d|\d)(?P<date>[^()]*)\)")


@dataclass(frozen=True)
class Shifted:
    text: str
    num_dates: int
    problem: str | None = None
    """Why the dates cannot be moved; the text is then unchanged."""


def num_days_to(start: date, earliest: date) -> int:
    """The smallest whole number of weeks, in days, that moves `earliest` to `start` or later."""
    return 7 * -(-(start - earliest).days // 7)


def dates_in(text: str, *, written: date) -> list[date]:
    """The dates in an instruction, as `shift_dates` finds them."""
    return [one for found in _found(text) for one in _read(found, written)]


def shift_dates(text: str, num_days: int, *, written: date) -> Shifted:
    """`written` is the day on which the benchmark was written. A date without a year means the next such day after "
    "it."""
    if num_days == 0:
        return Shifted(text, 0)
    holiday = _FIXED.search(text)
    if holiday is not None:
        return Shifted(text, 0, f"It is about {holiday[0]}, which has a date of its own.")
    text = _TODAY.sub(lambda found: f"on {found['date']}", text)  # on another day it would not be today
    parts, end, num_dates = [], 0, 0
    for found in _found(text):
        try:
            moved, num = _moved(found, num_days, written)
        except ValueError:
            return Shifted(text, 0, f"{found[0]!r} is not a date.")
        parts += [text[end : found.start()], moved]
        end, num_dates = found.end(), num_dates + num
    return Shifted("".join([*parts, text[end:]]), num_dates)


def _found(text: str) -> Iterator[re.Match[str]]:
    """All dates from left to right. A longer match is preferred to a match that begins inside it."""
    place = 0
    while True:
        found = [match for form in _FORMS if (match := form.search(text, place)) is not None]
        if not found:
            return
        first = min(found, key=lambda match: (match.start(), -match.end()))
        yield first
        place = first.end()


def _read(found: re.Match[str], written: date) -> list[date]:
    """The one or two dates of a match. Raises ValueError for a day that does not exist in the month."""
    parts = found.groupdict()
    month = int(parts["number"]) if parts.get("number") else _NUMBER_OF[parts["month"]]
    year = int(parts["year"]) if parts["year"] else _next_year(written, month, int(parts["day"]))
    return [date(year, month, int(parts[name])) for name in ("day", "last") if parts.get(name)]


def _moved(found: re.Match[str], num_days: int, written: date) -> tuple[str, int]:
    parts, moved = found.groupdict(), [one + timedelta(days=num_days) for one in _read(found, written)]
    first, last = moved[0], moved[-1]
    if parts.get("number"):
        return f"{first.day:02}/{first.month:02}/{first.year}", 1
    year_words = f"{parts['comma']} {first.year}" if parts["year"] else ""
    if found.re is _FORMS[2]:
        return f"{_day(first, parts['suffix'])} {_month(first, parts)}{year_words}", 1
    if parts["last"] is None:
        return f"{_month(first, parts)} {_day(first, parts['suffix'])}{year_words}", 1
    last_words = _day(last, parts["last_suffix"])
    if last.month != first.month:
        last_words = f"{_month(last, parts)} {last_words}"
    first_words = f"{_month(first, parts)} {_day(first, parts['suffix'])}"
    if parts["year"] and last.year != first.year:
        return f"{first_words}{year_words}{parts['to']}{last_words}{parts['comma']} {last.year}", 2
    return f"{first_words}{parts['to']}{last_words}{year_words}", 2


def _next_year(written: date, month: int, day: int) -> int:
    """The year of the next such day."""
    return written.year + ((month, day) < (written.month, written.day))


def _day(one: date, suffix: str | None) -> str:
    if suffix is None:
        return str(one.day)
    is_teen = 10 < one.day < 14
    return f"{one.day}{'th' if is_teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(one.day % 10, 'th')}"


def _month(one: date, parts: dict[str, str | None]) -> str:
    """The month in the format of the original: its full name, its short name, or its short name with a dot. May has no
    short name. A dot after a full name ends the sentence.
    """
    name, original, dot = _MONTHS[one.month - 1], parts["month"] or "", parts["dot"] or ""
    if original in _MONTHS:
        return name + dot
    return name if name == "May" else f"{name[:3]}{dot}"
