"""Tasks of BrowserGym as a suite: any id that `gymnasium.make("browsergym/...")` knows, with its own reward.

`focusmem run browsergym:miniwob.click-test,miniwob.click-link`. WebArena, VisualWebArena, WorkArena and AssistantBench
need their own servers or accounts, and their packages of BrowserGym.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from importlib.metadata import version
from typing import Final

from focusmem.browser.base import Browser
from focusmem.browser.gym_browser import GymBrowser, first_look, prepare
from focusmem.browser.gym_page import goal_of
from focusmem.browser.opening import BrowserChoice
from focusmem.errors import ConfigError
from focusmem.judges.automatic import AutomaticReward
from focusmem.schemas import Task
from focusmem.suites.base import MakeBrowser
from focusmem.suites.task_file import TaskSuite

NAME: Final = "browsergym"


class BrowserGymSuite(TaskSuite):
    """Each task is opened once when the suite is made, because only then it says what it asks."""

    def __init__(
        self, names: Sequence[str], *, seed: int = 0, max_steps: int | None = None, presses_enter: bool | None = None
    ) -> None:
        """`names` are ids without `browsergym/`. The seed decides each task's problem."""
        if not names or any(not name.strip() for name in names):
            raise ConfigError("Name tasks of BrowserGym, as in browsergym:miniwob.click-test,miniwob.click-link.")
        for name in names:
            prepare(name)
        self._seed = seed
        tasks = asyncio.run(_tasks(names, seed, max_steps, presses_enter))
        revision = f"browsergym-core {version('browsergym-core')}, seed {seed}"
        super().__init__(NAME, tasks, judge=AutomaticReward(), revision=revision)

    async def open_browsers(self, choice: BrowserChoice, stack: AsyncExitStack) -> MakeBrowser:
        if choice.kind != "chromium":
            raise ConfigError(
                f"The browser '{choice.kind}' draws only pages of the laboratory; use --browser chromium."
            )

        async def make_browser(task: Task) -> Browser:
            name = task.task_id.removeprefix(f"{NAME}/").removesuffix(f".{self._seed}")
            return GymBrowser(name, self._seed, grounder=choice.grounder, presses_enter=task.presses_enter is True)

        return make_browser


async def _tasks(names: Sequence[str], seed: int, max_steps: int | None, presses_enter: bool | None) -> list[Task]:
    tasks = []
    for name in dict.fromkeys(names):
        obs = await first_look(name, seed)
        task = Task(
            task_id=f"{NAME}/{name}.{seed}",
            instruction=goal_of(obs),
            start_url=str(obs["url"]),
            site=name.partition(".")[0],
            presses_enter=presses_enter,
        )
        tasks.append(task if max_steps is None else task.model_copy(update={"max_steps": max_steps}))
    return tasks
