"""The user's own tasks: a `tasks.jsonl` file with a task in each line, or a single task on a page.

    {"task_id": "blue-mug", "instruction": "How much is the blue mug?", "start_url": "https://shop.example/",
     "site": "shop.example", "answer": "12 euros", "max_steps": 15}

`answer`, `max_steps`, `allowed_sites`, `annotations` and `presses_enter` (whether `type` presses Enter after the text)
may be missing. An episode of a task without an answer is not
judged.
"""

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, ValidationError

from focusmem.browser.addresses import check_address, check_allowed
from focusmem.browser.base import Browser, BrowserLimits
from focusmem.browser.opening import BrowserChoice, open_chromium
from focusmem.errors import ConfigError, RecordError
from focusmem.files import is_safe_name, read_plain_file, sha256_hex
from focusmem.judges.base import Judge
from focusmem.judges.exact_answer import ExactAnswer
from focusmem.schemas import Annotations, Task, parse_record
from focusmem.schemas.record import MAX_DOCUMENT_BYTES, NonEmptyText, Record, Text, describe_problem
from focusmem.schemas.trajectory import MAX_STEPS
from focusmem.suites.base import MakeBrowser


def _site_of(url: str) -> str:
    """The host that a task may visit with all its subdomains; pages on www.shop.example belong to shop.example."""
    return urlsplit(url).netloc.lower().removeprefix("www.")


def _start_page(url: str) -> str:
    """Checks that a browser may open the address."""
    try:
        problem = check_address(url, check_allowed([_site_of(url)]))
    except (ConfigError, ValueError):
        problem = "It names no host, or names it in a way that is not accepted"
    if "://" not in url:
        problem = "Put http:// or https:// in front of it"
    if problem is not None:
        raise ValueError(f"is not the address of a page, such as https://shop.example/. {problem.removesuffix('.')}")
    return url


def _hosts(hosts: tuple[str, ...]) -> tuple[str, ...]:
    try:
        return check_allowed(hosts)
    except ConfigError as error:
        raise ValueError(f"is not a list of hosts. {error}") from None


class _Line(Record):
    """One line of a file of tasks."""

    task_id: NonEmptyText
    instruction: NonEmptyText
    start_url: Annotated[Text, AfterValidator(_start_page)]
    site: Text
    answer: Text | None = None
    max_steps: Annotated[int, Field(ge=1, le=MAX_STEPS)] | None = None
    presses_enter: bool | None = None
    allowed_sites: Annotated[tuple[NonEmptyText, ...], AfterValidator(_hosts)] = ()
    annotations: Annotations = Annotations()


class TaskSuite:
    """Tasks on any web pages, in Chromium."""

    def __init__(
        self,
        name: str,
        tasks: Sequence[Task],
        *,
        judge: Judge | None = None,
        limits: BrowserLimits | None = None,
        revision: str | None = None,
        left_out: Mapping[str, str] | None = None,
    ) -> None:
        """Without a judge, answers are compared with the tasks' right answers, if any task has one. `left_out` gives
        the reason for each task that cannot be attempted.
        """
        self.name, self.tasks = name, tuple(tasks)
        self.revision, self.left_out = revision, dict(left_out or {})
        self.judge = judge or (ExactAnswer() if any(task.answer is not None for task in tasks) else None)
        self.limits = limits or BrowserLimits()
        self._has_sites = len({task.site for task in tasks}) > 1

    @classmethod
    def from_file(
        cls,
        path: Path,
        *,
        name: str | None = None,
        max_steps: int | None = None,
        presses_enter: bool | None = None,
        limits: BrowserLimits | None = None,
    ) -> Self:
        """Without a name, the suite is named after the file. `max_steps` and `presses_enter` replace those of every
        task.
        """
        if name is None:
            name = path.stem if is_safe_name(path.stem) else f"tasks-{sha256_hex(path.stem.encode())[:8]}"
        lines = _read_lines(path)
        return cls(name, [_task(name, line, max_steps, presses_enter) for line in lines], limits=limits)

    @classmethod
    def from_page(
        cls,
        url: str,
        instruction: str,
        *,
        max_steps: int | None = None,
        presses_enter: bool | None = None,
        limits: BrowserLimits | None = None,
    ) -> Self:
        """One task without a known answer."""
        name = sha256_hex(f"{url} {instruction}".encode())[:12]
        try:
            line = _Line(task_id=name, instruction=instruction, start_url=url, site="")
        except ValidationError as invalid:
            problem = invalid.errors(include_url=False)[0]
            raise ConfigError(f"{url}: {problem['loc'][0]} {describe_problem(problem)}.") from None
        line = line.model_copy(update={"site": urlsplit(url).hostname})
        return cls("page", [_task("page", line, max_steps, presses_enter)], limits=limits)

    def kind_of(self, task: Task) -> str | None:
        """The task's site if the file has several sites; reports group tasks by site."""
        return task.site if self._has_sites else None

    async def open_browsers(self, choice: BrowserChoice, stack: AsyncExitStack) -> MakeBrowser:
        if choice.kind != "chromium":
            raise ConfigError(
                f"The browser '{choice.kind}' draws only pages of the laboratory; use --browser chromium."
            )
        launch = await open_chromium(self.limits, choice, stack)

        async def make_browser(task: Task) -> Browser:
            return await launch([_site_of(task.start_url), *task.allowed_sites], task.presses_enter is True)

        return make_browser


def _read_lines(path: Path) -> list[_Line]:
    """Reads a file of tasks. Blank lines are skipped."""
    lines: dict[str, _Line] = {}
    for number, text in enumerate(read_plain_file(path, MAX_DOCUMENT_BYTES).splitlines(), start=1):
        if not text.strip():
            continue
        line = parse_record(_Line, text, f"{path}, line {number}")
        if line.task_id in lines:
            raise RecordError(f"{path}, line {number}: the task id '{line.task_id}' is used twice.")
        lines[line.task_id] = line
    if not lines:
        raise RecordError(f"{path} holds no task; write one JSON object in each line.")
    return list(lines.values())


def _task(suite: str, line: _Line, max_steps: int | None, presses_enter: bool | None) -> Task:
    values = dict(line)
    values["task_id"], values["max_steps"] = f"{suite}/{line.task_id}", max_steps or line.max_steps
    values["presses_enter"] = line.presses_enter if presses_enter is None else presses_enter
    return Task(**{name: value for name, value in values.items() if value is not None})
