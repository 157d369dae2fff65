"""Many tasks, some at a time, each in a browser of its own: whatever one of them does, the others go on."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass

from focusmem.agent.live_episode import LiveEpisode
from focusmem.agent.loop import run_episode
from focusmem.agent.mind import Mind
from focusmem.agent.shared_mind import SharedMind
from focusmem.browser.base import Browser
from focusmem.errors import ConfigError, WorldError
from focusmem.evaluation.run_store import RunStore
from focusmem.schemas import Outcome, Task

Judge = Callable[[Task, str], bool]
"""Whether an answer is right."""


@dataclass(frozen=True, kw_only=True)
class RunnerConfig:
    method: str
    """Which memory the agent has, as reports call it."""
    source: str
    """Where the trajectories come from, as a bank would say."""
    num_parallel: int = 16
    """Episodes that go on side by side, and the most that the mind is asked about at once."""
    patience_s: float = 1.0
    """How long a question waits for others, to be answered with them."""
    episode_s: float = 1800.0
    """An episode that takes longer is ended together with its browser, whatever hangs, and counts as an error."""

    def __post_init__(self) -> None:
        for name in ("num_parallel", "episode_s"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"RunnerConfig.{name} is {getattr(self, name)}; it must be above zero.")


class Runner:
    """Tasks that the store already has are left alone; the others are attempted, judged and stored one by one."""

    def __init__(
        self,
        config: RunnerConfig,
        store: RunStore,
        mind: Mind,
        make_browser: Callable[[Task], Awaitable[Browser]],
        judge: Judge | None = None,
        watch: Callable[[LiveEpisode], None] = lambda episode: None,
    ) -> None:
        """`watch` is told of each episode as soon as it is over, before it is stored."""
        self.config, self.store, self.mind = config, store, mind
        self.make_browser, self.judge, self.watch = make_browser, judge, watch

    async def run(self, tasks: Sequence[Task]) -> None:
        unique = {task.task_id: task for task in tasks}.values()
        left = iter([task for task in unique if not self.store.is_done(task)])
        shared = SharedMind(self.mind, max_together=self.config.num_parallel, patience_s=self.config.patience_s)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self.config.num_parallel):
                    group.create_task(self._work_through(left, shared))
        except BaseExceptionGroup as problems:
            raise problems.exceptions[0] from None  # the first is what stopped the others
        finally:
            await shared.close()

    async def _work_through(self, left: Iterator[Task], mind: SharedMind) -> None:
        for task in left:
            episode = await self._attempt(task, mind)
            self.watch(episode)
            outcome = outcome_of(episode, self.judge)
            await asyncio.to_thread(
                self.store.save, episode, outcome, method=self.config.method, source=self.config.source
            )
            self.mind.forget(task)

    async def _attempt(self, task: Task, mind: SharedMind) -> LiveEpisode:
        episode = LiveEpisode(task)
        browser: Browser | None = None
        limit = asyncio.timeout(self.config.episode_s)
        try:
            async with limit:
                browser = await self.make_browser(task)
                with mind.attending():
                    await run_episode(episode, browser, mind.ask)
        except WorldError as error:  # there was no browser to be had
            episode.error = str(error)
        except TimeoutError:
            if not limit.expired():
                raise
            episode.error = f"The episode took longer than it may, {self.config.episode_s:g} s, and was ended."
        finally:
            if browser is not None:
                await (browser.abandon() if limit.expired() else browser.close())
        return episode


def outcome_of(episode: LiveEpisode, judge: Judge | None) -> Outcome:
    """An episode without an answer has failed whoever judges it."""
    if episode.error is not None:
        return "error"
    if episode.answer is None:
        return "failure"
    if judge is None:
        return "not_judged"
    return "success" if judge(episode.task, episode.answer) else "failure"
