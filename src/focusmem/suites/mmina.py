"""MMInA: the single-hop domains wikipedia (308 tasks) and shopping (200), one file per task.

    {"sites": ["shopping"], "task_id": 1, "start_url": "http://localhost:7770/", "intent": "Is the ... red?",
     "eval": {"eval_types": ["string_match"], "reference_answers": {"fuzzy_match": ["Yes"]}}, ...}

`sites` is `["shopping"]` in both domains, so the folder decides. The encyclopedia is a Kiwix server, and the shop is
WebArena's OneStopMarket; both are served by the user, so their addresses in start pages and intents are replaced.
"""

import re
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field

from focusmem.errors import RecordError, StorageError
from focusmem.schemas import Task
from focusmem.schemas.record import NonEmptyText
from focusmem.suites.benchmark import (
    Found,
    Loaded,
    Row,
    Source,
    digest_of,
    files_in,
    read_object,
    row_as,
    site_of,
    start_address,
)

DOMAINS: Final = ("wikipedia", "shopping")
SHOP: Final = "localhost:7770"
"""The shop's address in the benchmark's files."""
HELP: Final = (
    "MMInA's tasks are the folders wikipedia and shopping of the data set shulin16/mmina of huggingface.co (for "
    "non-commercial use): give the folder that holds both with --data."
)
# The start pages of WebArena and MMInA, on either kind of Kiwix server, and one with a letter missing.
_KIWIX: Final = re.compile(
    r"https?://[\w.-]+(?::\d+)?/(?:v?iewer#|content/)?(?:wikipedia_en_[\w.-]+)/(?:A/)?(?P<path>[^\s\"'<>]*)"
)


class _Eval(Row):
    eval_types: Annotated[tuple[NonEmptyText, ...], Field(min_length=1)]
    reference_answers: dict[str, Any]


class _Row(Row):
    task_id: Annotated[int, Field(ge=0)]
    start_url: NonEmptyText
    intent: NonEmptyText
    eval: _Eval
    hop_cnt: int | None = None
    cnt_hop: int | None = None
    """Present only in files of tasks with several hops."""


def load(source: Source, domain: str) -> Loaded:
    folder = domain_folder(source.data, domain)
    if folder is None:
        raise StorageError(f"{source.data} is not a folder with MMInA's folder {domain}. {HELP}")
    paths = list(files_in(folder, "*.json"))
    if not paths:
        raise StorageError(f"{folder} holds no task files. {HELP}")
    loaded, found = Loaded(digest=digest_of(paths)), []
    for path in paths:
        try:
            found.append(read_object(path))
        except RecordError as error:
            loaded.refused.append(str(error))
    loaded.add(found, lambda one: _task(one, domain, source.wikipedia), lambda one: None)
    return loaded


def name_of(domain: str) -> str:
    return f"mmina-{domain}"


def domain_folder(data: Path, domain: str) -> Path | None:
    """The folder of a domain: `data` itself, or one inside it; None if there is none."""
    places = (data / domain, data / "mmina" / domain, data)
    return next((folder for folder in places if folder.is_dir() and folder.name == domain), None)


def _task(found: Found, domain: str, wikipedia: str | None) -> Task:
    if "cnt_hop" in found.values or "procedure" in found.values:
        raise RecordError(f"{found.place}: a task with several hops; only single-hop tasks can be attempted.")
    row: _Row = row_as(_Row, found)
    if row.hop_cnt not in (None, 1):
        raise RecordError(f"{found.place}: a task with {row.hop_cnt} hops; only single-hop tasks can be attempted.")
    if "|AND|" in row.start_url:
        raise RecordError(f"{found.place}: the task starts on several pages; one page can be opened.")
    if set(row.eval.eval_types) != {"string_match"}:
        kinds = ", ".join(row.eval.eval_types)
        raise RecordError(f"{found.place}: the task is judged by {kinds}; only string_match can be judged.")
    url, intent = row.start_url, row.intent
    if wikipedia is not None:
        url, intent = (on_wikipedia(text, wikipedia) for text in (url, intent))
    url = start_address(url, found.place)
    return Task(
        task_id=f"{name_of(domain)}/{row.task_id}",
        instruction=intent,
        start_url=url,
        site=site_of(url),
        references=row.eval.reference_answers,
        presses_enter=True,
    )


def on_wikipedia(text: str, wikipedia: str) -> str:
    """Text with the addresses of Kiwix's encyclopedia replaced. `wikipedia` is the address before a page's path."""
    return _KIWIX.sub(lambda found: f"{wikipedia.removesuffix('/')}/{found['path']}", text)
