"""DeepShop: 150 shopping tasks on live Amazon, each with up to three parts: attribute, filter, sort.

    {"web_name": "Amazon", "id": "Amazon--31", "ques": "...", "web": "https://www.amazon.com/?language=en_US&...",
     "attribute": "...", "filter": "None", "sort": "None", "category": "Books", "difficulty": "easy"}

A part that is the word `None` is absent. The 600 tasks from which the 150 were drawn have no `difficulty`.
"""

from typing import Final

from focusmem.schemas import Task
from focusmem.schemas.record import NonEmptyText, Text
from focusmem.suites.benchmark import (
    LIVE,
    Found,
    Loaded,
    Row,
    Source,
    digest_of,
    find_data,
    read_rows,
    row_as,
    site_of,
    start_address,
)

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
    path = find_data(source.data, FILES, HELP)
    rows, broken = read_rows(path)
    loaded = Loaded(refused=broken, digest=digest_of([path]))
    loaded.add(rows, _task, lambda found: found.values.get("difficulty"))
    return loaded


def _task(found: Found) -> Task:
    row: _Row = row_as(_Row, found)
    url = start_address(row.web, found.place)
    return Task(
        task_id=f"{NAME}/{row.id}",
        instruction=row.ques,
        start_url=url,
        site=site_of(url),
        references={"attribute": row.attribute, "filter": row.filter, "sort": row.sort},
        allowed_sites=LIVE,
        presses_enter=True,
    )
