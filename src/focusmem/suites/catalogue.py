"""The benchmarks that are read from the user's files, by name: how each is loaded, and how its files are recognised."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from focusmem.browser.base import Browser, BrowserLimits
from focusmem.browser.opening import BrowserChoice, open_chromium
from focusmem.browser.served_browser import ServedBrowser
from focusmem.errors import ConfigError, RecordError, UserError
from focusmem.judges.base import Judge
from focusmem.schemas import Task
from focusmem.suites import deepshop, mmina, online_mind2web, webvoyager
from focusmem.suites.base import MakeBrowser
from focusmem.suites.benchmark import (
    Loaded,
    Source,
    check_hosts,
    chosen,
    moved,
    read_object,
    read_rows,
    shown_revision,
    site_of,
)
from focusmem.suites.kiwix import ORIGIN as WIKIPEDIA
from focusmem.suites.kiwix import KiwixServer, book_address
from focusmem.suites.task_file import TaskSuite


@dataclass(frozen=True)
class Benchmark:
    load: Callable[[Source], Loaded]
    about: str
    """A one-line description for lists."""
    help_text: str
    """Where its files come from."""
    same: Callable[[str], str] = str
    """Maps different ids of one task to the same id."""
    has_dates: bool = False
    """Whether its dated tasks can be moved."""


BENCHMARKS: Final[Mapping[str, Benchmark]] = {
    mmina.name_of("wikipedia"): Benchmark(
        partial(mmina.load, domain="wikipedia"), "questions about an encyclopedia that you serve", mmina.HELP
    ),
    mmina.name_of("shopping"): Benchmark(
        partial(mmina.load, domain="shopping"), "questions about the OneStopMarket that you serve", mmina.HELP
    ),
    webvoyager.NAME: Benchmark(webvoyager.load, "643 tasks on 15 live sites", webvoyager.HELP, has_dates=True),
    deepshop.NAME: Benchmark(deepshop.load, "150 shopping tasks on live Amazon", deepshop.HELP),
    online_mind2web.NAME: Benchmark(
        online_mind2web.load, "300 tasks on live sites", online_mind2web.HELP, same=online_mind2web.same_task
    ),
}


class BenchmarkSuite(TaskSuite):
    """The tasks of a benchmark's files, as the policy gets them."""

    def __init__(
        self, name: str, source: Source, *, judge: Judge | None = None, limits: BrowserLimits | None = None
    ) -> None:
        """A row that cannot be read is an error; `check` lists all of them."""
        benchmark = BENCHMARKS[name]
        self._zim = _zim(source)
        if source.dates_from is not None and not benchmark.has_dates:
            raise ConfigError(f"The suite {name} has no dates to move; leave out suite.dates_from.")
        if source.wikipedia is not None and name != mmina.name_of("wikipedia"):
            raise ConfigError(f"suite.wikipedia is for mmina-wikipedia; the suite {name} does not use it.")
        if self._zim is not None:
            source = replace(source, wikipedia=book_address(self._zim))
        loaded = benchmark.load(source)
        if loaded.refused:
            more = len(loaded.refused) - 1
            rest = f" {more} more rows are refused; `focusmem suites check` lists all." if more else ""
            raise RecordError(loaded.refused[0] + rest)
        if not loaded.tasks:
            raise RecordError(f"{source.data} holds no task that can be attempted.")
        wanted = chosen(loaded.tasks, source.ids, name, benchmark.same)
        tasks = [_as_asked(task, source) for task in wanted]
        super().__init__(
            name,
            tasks,
            judge=judge,
            limits=limits,
            revision=shown_revision(source, loaded),
            left_out=loaded.left_out,
        )
        self.kinds = loaded.kinds

    def kind_of(self, task: Task) -> str | None:
        return self.kinds.get(task.task_id)

    async def open_browsers(self, choice: BrowserChoice, stack: AsyncExitStack) -> MakeBrowser:
        if self._zim is None:
            return await super().open_browsers(choice, stack)
        server = stack.enter_context(KiwixServer(self._zim))
        launch = await open_chromium(self.limits, choice, stack)

        async def make_browser(task: Task) -> Browser:
            chromium = await launch([server.host], task.presses_enter is True)
            return ServedBrowser(chromium, shown=WIKIPEDIA, served=server.url.removesuffix("/"))

        return make_browser


def _zim(source: Source) -> Path | None:
    is_file = source.wikipedia is not None and not source.wikipedia.startswith(("http://", "https://"))
    return Path(source.wikipedia or "") if is_file else None


def _as_asked(task: Task, source: Source) -> Task:
    """Returns the task with the changes that the user's source makes to every task."""
    check_hosts(source.hosts)
    url = moved(task.start_url, source.hosts)
    changes = {
        "instruction": moved(task.instruction, source.hosts),
        "start_url": url,
        "site": site_of(url) if url != task.start_url else task.site,
        "max_steps": source.max_steps,
        "presses_enter": source.presses_enter,
        "allowed_sites": source.allowed_hosts,
    }
    return task.model_copy(update={name: value for name, value in changes.items() if value is not None})


# What is in files


@dataclass(frozen=True)
class Checked:
    """The content of a benchmark's file or folder."""

    suite: str | None
    """None if the file belongs to no suite."""
    path: Path
    loaded: Loaded


def check(path: Path) -> list[Checked]:
    """Reads a file, or every task file and every domain of MMInA in a folder, as a run would."""
    if path.is_file():
        return [_check(path)]
    if not path.is_dir():
        raise ConfigError(f"There is no {path}.")
    places = [(one, folder) for one in mmina.DOMAINS if (folder := mmina.domain_folder(path, one)) is not None]
    checked = [_check(folder, mmina.name_of(one)) for one, folder in places]
    if any(folder == path for _, folder in places):
        return checked
    files = sorted(one for one in path.iterdir() if one.suffix in (".json", ".jsonl") and one.is_file())
    return [*checked, *(_check(one) for one in files if one.name != webvoyager.REFERENCES)]


def _check(path: Path, suite: str | None = None) -> Checked:
    try:
        suite = suite or recognise(path)
        return Checked(suite, path, BENCHMARKS[suite].load(Source(path)))
    except UserError as error:
        return Checked(suite, path, Loaded(refused=[str(error)]))


def recognise(path: Path) -> str:
    """The suite that a file belongs to, by the fields of its first task."""
    try:
        rows, broken = read_rows(path)
    except RecordError:
        rows, broken = [read_object(path)], []
    if not rows:
        raise RecordError(broken[0] if broken else f"{path} holds no task.")
    for name, needed in _FIELDS:
        if needed <= rows[0].values.keys():
            return name
    if {"intent", "eval"} <= rows[0].values.keys():
        raise RecordError(f"{path} is one task of MMInA; name its folder, which is called wikipedia or shopping.")
    shown = ", ".join(sorted(map(str, rows[0].values))[:8]) or "none"
    raise RecordError(f"{path} is not in the format of a suite; the fields of its first row are {shown}.")


_FIELDS: Final[Sequence[tuple[str, set[str]]]] = (
    (deepshop.NAME, {"web_name", "id", "ques", "web", "attribute"}),
    (webvoyager.NAME, {"web_name", "id", "ques", "web"}),
    (online_mind2web.NAME, {"task_id", "website", "level", "reference_length"}),
)
"""Fields that identify the files of a suite; the first matching entry decides."""
