"""Online-Mind2Web: 300 tasks on live sites. Ids of updated tasks end in the date of the update.

    {"task_id": "<32 hex digits>[_MMDDYY]", "confirmed_task": "Find ...", "website": "https://www.example.com/",
     "reference_length": 6, "level": "easy"}

The set keeps changing, so give the revision as `suite.revision`.
"""

import re
from typing import Annotated, Final, Literal

from pydantic import Field

from focusmem.errors import RecordError
from focusmem.schemas import Task
from focusmem.schemas.record import NonEmptyText
from focusmem.suites.benchmark import Found, Loaded, Row, Source, live_task, open_file, row_as

NAME: Final = "online-mind2web"
FILES: Final = ("Online_Mind2Web.json", "online_mind2web.json")
HELP: Final = (
    "Online-Mind2Web's tasks are Online_Mind2Web.json in the data set osunlp/Online-Mind2Web of huggingface.co "
    "(CC-BY-4.0): give the file or its folder with --data, and its revision with --set suite.revision=..."
)

_SUFFIX: Final = re.compile(r"_\d{6}$")


class _Row(Row):
    task_id: Annotated[NonEmptyText, Field(pattern=r"^[0-9a-f]{32}(_\d{6})?$")]
    confirmed_task: NonEmptyText | None = None
    task_description: NonEmptyText | None = None
    """The name of `confirmed_task` in older revisions."""
    website: NonEmptyText
    reference_length: Annotated[int, Field(ge=1)]
    level: Literal["easy", "medium", "hard"]


def load(source: Source) -> Loaded:
    _, rows, loaded = open_file(source, FILES, HELP)
    loaded.add(rows, _task, lambda found: str(found.values["level"]))
    return loaded


def same_task(name: str) -> str:
    """An id without the date of its update, so that lists of ids stay valid after an update."""
    return _SUFFIX.sub("", name)


def _task(found: Found) -> Task:
    row: _Row = row_as(_Row, found)
    instruction = row.confirmed_task or row.task_description
    if instruction is None:
        raise RecordError(f"{found.place}: confirmed_task is missing.")
    known = {"reference_length": row.reference_length, "level": row.level}
    return live_task(f"{NAME}/{row.task_id}", instruction, row.website, found.place, references=known)
