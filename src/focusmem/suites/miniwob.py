"""MiniWoB++: small web pages that compute their own rewards, from the package `miniwob`, in Chromium and without a
network.

The package's pages are served to the browser on this machine. Our own script starts the problem of a seed and notes the
page's reward, which the browser reads with every observation. `data/miniwob.json` lists the tasks that can be done with
the seven actions, and the reason why each other task cannot.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import cache
from http import HTTPStatus
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from focusmem.browser.base import Browser, BrowserLimits
from focusmem.browser.loopback import LoopbackServer, Served
from focusmem.browser.opening import BrowserChoice, open_chromium
from focusmem.browser.served_browser import ServedBrowser
from focusmem.errors import ConfigError, MissingPackageError, WorldError
from focusmem.files import cache_folder, write_whole
from focusmem.judges.base import Judge
from focusmem.progress import Progress
from focusmem.schemas import Observation, Task
from focusmem.suites.base import MakeBrowser
from focusmem.suites.benchmark import chosen
from focusmem.suites.task_file import TaskSuite

if TYPE_CHECKING:
    from focusmem.browser.chromium import ChromiumBrowser

NAME: Final = "miniwob"
PACKAGE: Final = "miniwob"
ORIGIN: Final = "http://miniwob.test"
"""The address of the pages in records; the browser opens them at a port of this machine."""
MINIWOB_LIMITS: Final = BrowserLimits(width=160, height=210, scale=3.0, wait_s=1.0)
"""The view is the area that shows the task, at three times the page's resolution."""
MAX_STEPS: Final = 30
"""Some tasks need a click on each of twenty boxes."""

_CORE: Final = "/core/core.js"
_KINDS: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".png": "image/png",
    ".gif": "image/gif",
    ".jpg": "image/jpeg",
    ".svg": "image/svg+xml",
}
_BEGIN_S: Final = 60.0
_NOTES: Final = """() => {
    const { wobAsked, wobReward, wobOver } = document.documentElement.dataset;
    return { asked: wobAsked ?? null, reward: Number(wobReward ?? 0), isOver: wobOver === "yes",
        page: location.pathname + location.search };
}"""


@dataclass(frozen=True)
class TaskList:
    """The package's tasks, as `data/miniwob.json` lists them."""

    version: str
    """The version of the package for which the list was made."""
    tasks: tuple[str, ...]
    left_out: Mapping[str, str]
    """Why the seven actions cannot do the other tasks."""


@cache
def task_list() -> TaskList:
    listed = json.loads((files("focusmem.suites") / "data" / "miniwob.json").read_text())
    return TaskList(listed["version"], tuple(listed["tasks"]), listed["left_out"])


class MiniWob(TaskSuite):
    """The listed tasks with the problems of one seed."""

    def __init__(
        self,
        *,
        judge: Judge | None,
        seed: int = 0,
        ids: Path | None = None,
        max_steps: int | None = None,
        presses_enter: bool | None = None,
        limits: BrowserLimits | None = None,
    ) -> None:
        installed = installed_version()
        named = [_task(name, seed, "-", max_steps) for name in task_list().tasks]
        wanted = chosen(named, ids, NAME, same=_without_seed)
        asked = instructions([_page_of(task) for task in wanted], seed)
        tasks = [
            task.model_copy(update={"instruction": asked[_page_of(task)], "presses_enter": presses_enter})
            for task in wanted
        ]
        super().__init__(
            NAME,
            tasks,
            judge=judge,
            limits=limits or MINIWOB_LIMITS,
            revision=f"{PACKAGE} {installed}, seed {seed}",
            left_out={f"{NAME}/{name}.{seed}": reason for name, reason in task_list().left_out.items()},
        )

    async def open_browsers(self, choice: BrowserChoice, stack: AsyncExitStack) -> MakeBrowser:
        if choice.kind != "chromium":
            raise ConfigError(
                f"The browser '{choice.kind}' draws only pages of the laboratory; use --browser chromium."
            )
        server = stack.enter_context(page_server())
        launch = await open_chromium(self.limits, choice, stack)

        async def make_browser(task: Task) -> Browser:
            chromium = await launch([server.host], task.presses_enter is True)
            return MiniWobBrowser(chromium, server.url.removesuffix("/"), asked=task.instruction)

        return make_browser


class MiniWobBrowser(ServedBrowser):
    """Adds the page's reward, and whether the page has ended the task, to every observation."""

    def __init__(self, chromium: "ChromiumBrowser", served: str, *, asked: str | None = None) -> None:
        """Opening the page fails if its instruction differs from `asked`."""
        super().__init__(chromium, shown=ORIGIN, served=served)
        self._chromium, self._asked = chromium, asked
        self._page = ""

    async def open(self, url: str) -> None:
        await super().open(url)
        split = urlsplit(url)
        self._page = f"{split.path}?{split.query}"
        asked = await self.asked()
        if self._asked not in (None, asked):
            raise WorldError(f"The page asks {asked!r:.200}, but the task is {self._asked!r:.200}.")

    async def asked(self) -> str:
        """The instruction of the open page. Waits until the problem has begun."""
        try:
            async with asyncio.timeout(_BEGIN_S):
                while (asked := (await self._notes())["asked"]) is None:
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise WorldError(f"The page {self._page} did not begin within {_BEGIN_S:g} s.") from None
        return str(asked)

    async def observe(self) -> Observation:
        notes = await self._notes()
        if notes["page"] != self._page:  # on the page of another problem, nothing counts
            notes |= {"reward": 0.0, "isOver": False}
        return replace(await super().observe(), reward=float(notes["reward"]), is_over=bool(notes["isOver"]))

    async def _notes(self) -> dict[str, Any]:
        with self._in_own_words():
            notes: dict[str, Any] = await self._chromium.evaluate(_NOTES)
        return notes


def installed_version() -> str:
    try:
        return version(PACKAGE)
    except PackageNotFoundError:
        raise MissingPackageError("focusmem[miniwob]") from None


def page_server() -> LoopbackServer:
    """Serves the package's pages, with our script added to the script that all of them load."""
    places = _files()
    bridge = (files("focusmem.suites") / "data" / "miniwob.js").read_bytes()

    def answer(path: str) -> Served:
        file = places.get(urlsplit(path).path)
        if file is None:
            return Served(b"There is no such page.\n", "text/plain", HTTPStatus.NOT_FOUND)
        body = file.read_bytes()
        name = urlsplit(path).path
        return Served(body + b"\n" + bridge if name == _CORE else body, _KINDS[file.suffix])

    return LoopbackServer(answer)


@cache
def _files() -> dict[str, Path]:
    """The package's files by the path at which they are served."""
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise MissingPackageError("focusmem[miniwob]")
    folder = Path(spec.origin).parent / "html"
    found = (path for part in ("core", "common", "miniwob") for path in (folder / part).rglob("*"))
    return {f"/{path.relative_to(folder).as_posix()}": path for path in found if path.suffix in _KINDS}


def instructions(names: Sequence[str], seed: int) -> dict[str, str]:
    """The instructions of the pages with this seed. The pages are opened once, and the texts are kept in the cache
    folder.
    """
    kept = cache_folder() / PACKAGE / f"{installed_version()}-{seed}.json"
    known: dict[str, str] = json.loads(kept.read_text()) if kept.is_file() else {}
    missing = [name for name in names if name not in known]
    if missing:
        known |= asyncio.run(_read_instructions(missing, seed))
        write_whole(kept, json.dumps(dict(sorted(known.items())), indent=2).encode())
    return {name: known[name] for name in names}


async def _read_instructions(names: Sequence[str], seed: int) -> dict[str, str]:
    asked = {}
    limits = replace(MINIWOB_LIMITS, settle_s=0.0)
    async with AsyncExitStack() as stack:
        server = stack.enter_context(page_server())
        launch = await open_chromium(limits, BrowserChoice(), stack)
        line = stack.enter_context(Progress("read MiniWoB++ tasks", total=len(names)))
        browser = MiniWobBrowser(await launch([server.host]), server.url.removesuffix("/"))
        stack.push_async_callback(browser.close)
        for name in names:
            await browser.open(_address(name, seed))
            asked[name] = await browser.asked()
            line.step()
    return asked


def _task(name: str, seed: int, instruction: str, max_steps: int | None) -> Task:
    return Task(
        task_id=f"{NAME}/{name}.{seed}",
        instruction=instruction,
        start_url=_address(name, seed),
        site=urlsplit(ORIGIN).netloc,
        max_steps=max_steps or MAX_STEPS,
    )


def _address(name: str, seed: int) -> str:
    return f"{ORIGIN}/miniwob/{name}.html?seed={seed}"


def _page_of(task: Task) -> str:
    return _without_seed(task.task_id.removeprefix(f"{NAME}/"))


def _without_seed(name: str) -> str:
    return name.partition(".")[0]
