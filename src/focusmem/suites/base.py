"""The seam: a suite is a fixed set of tasks, what a browser needs for them, and their judge."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Protocol, TypeAlias

from focusmem.browser.base import Browser
from focusmem.browser.opening import BrowserChoice
from focusmem.judges.base import Judge
from focusmem.schemas import Task

MakeBrowser: TypeAlias = Callable[[Task], Awaitable[Browser]]
"""A browser for one episode of a task."""


class Suite(Protocol):
    name: str
    """The first part of its task ids: `<name>/<task>`."""
    tasks: Sequence[Task]
    """The frozen set: success rates are over all of them."""
    judge: Judge | None
    """None where nothing is known about right answers: episodes then stay `not_judged`."""

    def kind_of(self, task: Task) -> str | None:
        """The group that reports sum up a task in, where the suite has groups."""

    async def open_browsers(self, choice: BrowserChoice, stack: AsyncExitStack) -> MakeBrowser:
        """Browsers for its tasks, with the suite's own viewport, limits and allowed hosts; closed with the stack."""
