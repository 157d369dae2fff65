"""DeepShop: 150 shopping tasks on live Amazon, each with up to three parts: attribute, filter, sort.

    {"web_name": "Amazon", "id": "Amazon--31", "ques": "...", "web": "https://www.amazon.com/?language=en_US&...",
     "attribute": "...", "filter": "None", "sort": "None", "category": "Books", "difficulty": "easy"}

A part that is the word `None` is absent. The 600 tasks from which the 150 were drawn have no `difficulty`.
"""

from typing import Final

from focusmem.schemas import Task
from focusmem.schemas.record import NonEmptyText, Text
from focusmem.suites.benchmark import Found, Loaded, Row, Source, live_task, open_file, row_as

NAME: Final = "deepshop"
FILES: Final = ("deepshop_test.jsonl", "deepshop.jsonl")
HELP: Final = (
    "DeepShop's tasks are data/deepshop_test.jsonl in github.com/youganglyu/DeepShop (MIT): give the file or its "
    "folder with --data."
)


class _Row(Row):
    id: NonEmptyText
    ques: NonEmptyText
    web: NonEmptyText
    attribute: Text
    filter: Text
    sort: Text
    difficulty: NonEmptyText | None = None


def load(source: Source) -> Loaded:
    _, rows, loaded = open_file(source, FILES, HELP)
    loaded.add(rows, _task, lambda found: found.values.get("difficulty"))
    return loaded


def _task(found: Found) -> Task:
    row: _Row = row_as(_Row, found)
    parts = {"attribute": row.attribute, "filter": row.filter, "sort": row.sort}
    return live_task(f"{NAME}/{row.id}", row.ques, row.web, found.place, references=parts)
