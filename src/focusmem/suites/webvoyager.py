"""WebVoyager: 643 tasks on 15 live sites. Tasks on Booking and Google Flights contain dates, which can be moved.

    {"web_name": "Allrecipes", "id": "Allrecipes--0", "ques": "Find a ...", "web": "https://www.allrecipes.com/"}

`reference_answer.json` beside the file is read if it is there.
"""

from datetime import date
from pathlib import Path
from typing import Any, Final

from focusmem.errors import RecordError
from focusmem.schemas import Task
from focusmem.schemas.record import NonEmptyText
from focusmem.schemas.task import DateShift
from focusmem.suites.benchmark import (
    Found,
    Loaded,
    Row,
    Source,
    digest_of,
    leave_out,
    live_task,
    open_file,
    read_object,
    row_as,
)
from focusmem.suites.dates import dates_in, num_days_to, shift_dates

NAME: Final = "webvoyager"
FILES: Final = ("WebVoyager_data.jsonl", "webvoyager.jsonl")
HELP: Final = (
    "WebVoyager's tasks are data/WebVoyager_data.jsonl in github.com/MinorJerry/WebVoyager (Apache-2.0), with "
    "reference_answer.json beside it: give the file or its folder with --data."
)
REFERENCES: Final = "reference_answer.json"

WRITTEN: Final = date(2023, 12, 1)
"""Approximately the day on which the tasks were written. A date without a year means the next such day."""
EARLIEST: Final = date(2023, 12, 18)
"""The earliest date in a dated task."""
LATEST: Final = date(2024, 4, 4)
DATED: Final = ("Booking", "Google Flights")
"""Sites that sell for future dates only. Dates in tasks of other sites are about the past, and stay."""


class _Row(Row):
    web_name: NonEmptyText
    id: NonEmptyText
    ques: NonEmptyText
    web: NonEmptyText


def load(source: Source) -> Loaded:
    path, rows, loaded = open_file(source, FILES, HELP)
    key, references = path.with_name(REFERENCES), dict[str, Any]()
    if key.is_file():
        references, loaded.digest = _references(key), digest_of([path, key])
    num_days = 0 if source.dates_from is None else num_days_to(source.dates_from, EARLIEST)
    loaded.add(rows, lambda found: _task(found, num_days, references), lambda found: str(found.values["web_name"]))
    return loaded


def _task(found: Found, num_days: int, references: dict[str, Any]) -> Task:
    row: _Row = row_as(_Row, found)
    task_id, instruction, shift = f"{NAME}/{row.id}", row.ques, None
    if row.web_name in DATED:
        if num_days:
            _check_dates(row.ques, found.place)
        shifted = shift_dates(row.ques, num_days, written=WRITTEN)
        if shifted.problem is not None:
            raise leave_out(task_id, f"Its dates cannot be moved. {shifted.problem}")
        if shifted.num_dates:
            instruction, shift = shifted.text, DateShift(num_days=num_days, original=row.ques)
    known = references.get(row.id)
    return live_task(task_id, instruction, row.web, found.place, references=known, date_shift=shift)


def _check_dates(text: str, place: str) -> None:
    """Refuses files with edited dates, because no single distance fits both the edited and the original dates."""
    try:
        dates = dates_in(text, written=WRITTEN)
    except ValueError:  # `shift_dates` reports it
        return
    for one in dates:
        if not EARLIEST <= one <= LATEST:
            raise RecordError(
                f"{place}: the date {one} is not one of the original tasks, so dates of this file are not moved; leave "
                "out suite.dates_from, or use the original file."
            )


def _references(path: Path) -> dict[str, Any]:
    """The reference answers by task id. They are for readers of a run; the official judge does not use them."""
    by_id: dict[str, Any] = {}
    for site, entry in read_object(path).values.items():
        answers = entry.get("answers") if isinstance(entry, dict) else None
        if not isinstance(answers, list):
            raise RecordError(f"{path}: {site} has no list of answers.")
        for answer in answers:
            if not isinstance(answer, dict) or "id" not in answer or not isinstance(answer.get("ans"), str):
                raise RecordError(f"{path}: an answer of {site} has no id or no text.")
            by_id[f"{site}--{answer['id']}"] = {"type": str(answer.get("type")), "ans": answer["ans"]}
    return by_id
