"""The seam: a suite is a frozen set of tasks, what a browser needs for them, and their judge."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Protocol, TypeAlias

from focusmem.browser.base import Browser
from focusmem.browser.opening import BrowserChoice
from focusmem.judges.base import Judge
from focusmem.schemas import FrozenSubset, Manifest, Task

MakeBrowser: TypeAlias = Callable[[Task], Awaitable[Browser]]
"""A browser for one episode of a task."""


class Suite(Protocol):
    @property
    def name(self) -> str:
        """The suite's name, which is the first part of its task ids: `<name>/<task>`."""

    @property
    def tasks(self) -> Sequence[Task]:
        """The frozen set of tasks. Success rates are computed over all of them. A task names its start page and its
        allowed hosts.
        """

    @property
    def judge(self) -> Judge | None:
        """The judge of finished episodes. It is None if right answers are unknown; episodes then stay `not_judged`."""

    @property
    def revision(self) -> str | None:
        """The version of the tasks, if they come from a data set or a package."""

    @property
    def left_out(self) -> Mapping[str, str]:
        """Tasks of the data set that cannot be attempted, by id, each with the reason."""

    def kind_of(self, task: Task) -> str | None:
        """The group to which reports assign a task, if the suite has groups."""

    async def open_browsers(self, choice: BrowserChoice, stack: AsyncExitStack) -> MakeBrowser:
        """Browsers for its tasks, with the suite's viewport, limits and allowed hosts; they close with the stack."""


def manifest_of(suite: Suite, *, num_attempts: int = 1) -> Manifest:
    """The suite's tasks by id and hash, as a run stores them."""
    kinds = {task.task_id: suite.kind_of(task) for task in suite.tasks}
    subset = FrozenSubset.of(suite.tasks, revision=suite.revision, left_out=suite.left_out)
    return Manifest.of(suite.name, suite.tasks, kinds, num_attempts=num_attempts, subset=subset)
