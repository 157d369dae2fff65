"""Attempts many tasks, several at a time, each in its own browser. A broken episode does not stop the others."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, TypeAlias

from pydantic import Field

from focusmem.agent.decision import Decision
from focusmem.agent.live_episode import LiveEpisode
from focusmem.agent.loop import run_episode
from focusmem.agent.mind import Mind, Reply
from focusmem.agent.shared_mind import SharedMind
from focusmem.browser.base import Browser
from focusmem.errors import WorldError
from focusmem.evaluation.judging import JudgeRoom, attempt_of
from focusmem.evaluation.run_store import RunStore
from focusmem.evaluation.watcher import Watcher
from focusmem.judges.base import Judge
from focusmem.schemas import Conditions, StoredTrajectory, Task, Verdict
from focusmem.settings import checked_dataclass
from focusmem.suites.base import MakeBrowser

LoadTrajectory: TypeAlias = Callable[[str], StoredTrajectory]


@checked_dataclass(frozen=True, kw_only=True)
class RunnerConfig:
    num_parallel: Annotated[int, Field(ge=1)] = 16
    """Episodes that run at the same time; also the largest number of decisions that the mind answers together."""
    patience_s: Annotated[float, Field(ge=0)] = 1.0
    """How long a decision waits for decisions of other episodes, to be answered with them."""
    episode_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1800.0
    """An episode that takes longer is ended together with its browser and counts as broken."""
    num_retries: Annotated[int, Field(ge=0)] = 2
    """How many times an attempt that broke is started again before it stays an error."""


class Runner:
    """Skips attempts that are finished in the store. Judges and stores the others one by one."""

    def __init__(
        self,
        config: RunnerConfig,
        store: RunStore,
        mind: Mind,
        make_browser: MakeBrowser,
        judge: Judge | None,
        *,
        method: str,
        source: str,
        conditions: Conditions | None = None,
        watcher: Watcher | None = None,
        load_recalled: LoadTrajectory | None = None,
        is_late: Callable[[], bool] | None = None,
    ) -> None:
        """`method` is the name of the agent's memory in reports; `source` describes where its trajectories come from.
        The store keeps trajectories that memory offered if `load_recalled` can read them. `conditions` are stored with
        the times of each episode. No attempt begins once `is_late` says so.
        """
        self.config, self.store, self.mind, self.make_browser, self.judge = config, store, mind, make_browser, judge
        self.method, self.source, self.watcher = method, source, watcher or Watcher()
        self.conditions = conditions or Conditions(num_parallel=config.num_parallel)
        self.load_recalled = load_recalled
        self.is_late = is_late or (lambda: False)

    async def run(self, attempts: Sequence[tuple[Task, int]]) -> None:
        """Runs these attempts. Each attempt is a task and a number from one."""
        done = self.store.folder.is_finished
        left = iter([(task, number) for task, number in attempts if not done(task.task_id, number)])
        shared = SharedMind(self.mind, max_together=self.config.num_parallel, patience_s=self.config.patience_s)
        try:
            with JudgeRoom(self.judge) as room:
                async with asyncio.TaskGroup() as group:
                    for _ in range(self.config.num_parallel):
                        group.create_task(self._work_through(left, shared, room))
        except BaseExceptionGroup as problems:
            raise problems.exceptions[0] from None  # the first error stopped the other attempts
        finally:
            await shared.close()

    async def _work_through(self, left: Iterator[tuple[Task, int]], mind: SharedMind, room: JudgeRoom) -> None:
        for task, number in left:
            if self.is_late():
                return
            episode = await self._attempt(task, number, mind)
            verdict = await room.verdict(attempt_of(episode))
            self.watcher.ended(episode, verdict)
            await asyncio.to_thread(self._save, episode, verdict)

    def _save(self, episode: LiveEpisode, verdict: Verdict) -> None:
        if self.load_recalled is not None:
            offered = (item.trajectory_id for notes in episode.notes for item in notes.offered)
            for name in sorted({name for name in offered if name is not None}):
                self.store.keep_recalled(name, self.load_recalled(name))
        self.store.save(episode, verdict, method=self.method, source=self.source, conditions=self.conditions)

    async def _attempt(self, task: Task, number: int, mind: SharedMind) -> LiveEpisode:
        """An attempt that breaks is started again a few times. A site that refuses the agent is not asked again."""
        for num_broken in range(self.config.num_retries + 1):
            episode = LiveEpisode(task, number, num_broken)
            self.watcher.began(episode)
            await self._play(episode, mind)
            self.mind.forget(episode.episode_id)
            if episode.error is None or episode.is_blocked:
                break
            if num_broken < self.config.num_retries:
                self.watcher.broke(episode)
        return episode

    async def _play(self, episode: LiveEpisode, mind: SharedMind) -> None:
        async def ask(decision: Decision) -> Reply:
            reply = await mind.ask(decision)
            self.watcher.replied(episode, reply.text)
            return reply

        browser: Browser | None = None
        limit = asyncio.timeout(self.config.episode_s)
        try:
            async with limit:
                browser = await self.make_browser(episode.task)
                with mind.attending():
                    await run_episode(episode, browser, ask)
        except WorldError as error:  # no browser could be started
            episode.error = str(error)
        except TimeoutError:
            if not limit.expired():
                raise
            if not episode.is_over:  # otherwise only the closing observation was late, and the result stays
                limit_s = self.config.episode_s
                episode.error = f"The episode took longer than its limit of {limit_s:g} s and was ended."
        finally:
            if browser is not None:
                await (browser.abandon() if limit.expired() else browser.close())
