"""The demonstration: two runs over the same few tasks, without and with memory, side by side for people to watch.

The runs share the policy, an event loop and a browser pool.
"""

import asyncio
import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from focusmem.agent.decision import Decision
from focusmem.agent.mind import Mind, Reply
from focusmem.browser.opening import BrowserChoice
from focusmem.errors import StorageError
from focusmem.evaluation.metrics import summarise
from focusmem.evaluation.suite_run import SuiteRun
from focusmem.evaluation.watcher import Watcher
from focusmem.files import FolderLock, remove_folder, write_whole
from focusmem.reports import WrittenPage, write_page
from focusmem.schemas import Preparation, RunFolder
from focusmem.suites.base import MakeBrowser

WITHOUT, WITH = "none", "full"
METHODS = (WITHOUT, WITH)
"""The names of the runs and of their folders."""
LABELS = {WITHOUT: "without memory", WITH: "with memory"}
"""The names of the runs for people."""

_MARK, _PAGE = "demo.json", "page.html"

Runs = Mapping[str, SuiteRun]
"""The runs by method."""


@dataclass(frozen=True)
class Shown:
    """The results of a demonstration: the folders of two runs, and a page."""

    folder: Path
    page: WrittenPage


@contextmanager
def free_folder(folder: Path) -> Iterator[None]:
    """Locks the folder of a demonstration, after a check that it holds nothing else."""
    _check_free(folder)
    busy = f"Another demonstration is running in {folder}; wait for its end, or choose another --out."
    with FolderLock(folder, busy):
        yield


def make_room(folder: Path, config: Mapping[str, Any]) -> None:
    """Removes the earlier demonstration. The mark is written first, so that it is present even if the removal is
    interrupted.
    """
    _check_free(folder)
    write_whole(folder / _MARK, json.dumps(dict(config), indent=2).encode())
    for name in (*METHODS, _PAGE):
        remove_folder(folder / name)


def play(
    runs: Runs,
    preparations: Mapping[str, Preparation],
    folder: Path,
    choice: BrowserChoice,
    watcher_of: Callable[[str], Watcher],
) -> Shown:
    """Makes both runs at the same time, and writes the page. `preparations` holds their preparation, by name."""
    turn = threading.Lock()
    for run in runs.values():
        run.mind = _InTurn(run.mind, turn)
        run.about = replace(run.about, num_beside=len(runs))
    asyncio.run(_play(runs, preparations, choice, watcher_of))
    for run in runs.values():
        summarise(run.folder)
    folders = [RunFolder.open(folder / method) for method in runs]
    return Shown(folder, write_page(folders, folder / _PAGE, labels=[LABELS[method] for method in runs]))


async def _play(
    runs: Runs,
    preparations: Mapping[str, Preparation],
    choice: BrowserChoice,
    watcher_of: Callable[[str], Watcher],
) -> None:
    async with AsyncExitStack() as stack:
        make_browser = await next(iter(runs.values())).suite.open_browsers(choice, stack)
        try:
            async with asyncio.TaskGroup() as group:
                for method, run in runs.items():
                    group.create_task(_play_one(run, preparations[method], make_browser, watcher_of(method)))
        except BaseExceptionGroup as problems:
            raise problems.exceptions[0] from None  # the first error stopped the other run


async def _play_one(run: SuiteRun, preparation: Preparation, make_browser: MakeBrowser, watcher: Watcher) -> None:
    with run.on_record():
        run.prepared(preparation)
        await run.attempt(run.attempts(), make_browser, watcher)


class _InTurn:
    """A mind that shares the policy and the CPU cores with another mind; they answer in turn."""

    def __init__(self, mind: Mind, turn: threading.Lock) -> None:
        self._mind, self._turn = mind, turn

    def ask(self, decisions: Sequence[Decision]) -> list[Reply]:
        with self._turn:
            return self._mind.ask(decisions)

    def forget(self, episode_id: str) -> None:
        self._mind.forget(episode_id)


def _check_free(folder: Path) -> None:
    """Refuses a folder without a demonstration's mark: runs and pages of these names in it may be the user's own."""
    if (folder / _MARK).is_file():
        return
    for name in (*METHODS, _PAGE):
        if os.path.lexists(folder / name):
            raise StorageError(
                f"{folder / name} exists, but there is no {_MARK} beside it, so it is not from a demonstration and is "
                "not replaced. Choose another --out."
            )
