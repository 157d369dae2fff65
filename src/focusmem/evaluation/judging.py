"""Runs a judge outside the browsers' event loop, and builds the judge's view of an episode."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

from focusmem.agent.live_episode import LiveEpisode
from focusmem.judges.base import Attempt, Judge, judged
from focusmem.schemas import StoredEpisode, Task, Verdict

ResultT = TypeVar("ResultT")

_CLOSE_S = 5.0
_ANONYMOUS: dict[str, Any] = {"trajectory_id": "attempt", "outcome": "not_judged", "source": "a run"}
"""A judge sees neither the run of an attempt nor earlier verdicts on it."""


class JudgeRoom:
    """`with JudgeRoom(judge) as room:` judges in a separate thread with its own event loop.

    A judge that blocks its loop therefore never delays a page.
    """

    def __init__(self, judge: Judge | None) -> None:
        self.judge = judge
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="judge", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSE_S)
        if not self._loop.is_running():
            self._loop.close()

    async def verdict(self, attempt: Attempt) -> Verdict:
        """Called from the browsers' event loop."""
        return await asyncio.wrap_future(self._submit(judged(self.judge, attempt)))

    def wait_for(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Runs a coroutine in the judges' event loop. Called from a thread without an event loop."""
        return self._submit(work).result()

    def _submit(self, work: Coroutine[Any, Any, ResultT]) -> Future[ResultT]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)


def attempt_of(live: LiveEpisode) -> Attempt:
    """The judge's view of an episode that has just ended."""
    trajectory = None
    if live.steps:
        trajectory = live.task.trajectory(steps=live.steps, closing=live.closing, **_ANONYMOUS)
    return Attempt(live.task, trajectory, dict(live.screenshots), live.answer, live.error, live.reward)


def stored_attempt(stored: StoredEpisode, task: Task | None = None) -> Attempt:
    """The judge's view of a stored episode, the same as when it ended. `task` replaces the stored task."""
    episode, found = stored.episode, stored.trajectory()
    task = task or episode.task
    if found is None:
        return Attempt(task, None, {}, episode.answer, episode.error, episode.reward)
    trajectory = found.trajectory.model_copy(update=_ANONYMOUS)
    return Attempt(task, trajectory, found.screenshots, episode.answer, episode.error, episode.reward)
