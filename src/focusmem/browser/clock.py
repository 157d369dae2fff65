"""Measures the time that is left for a call, for its step, and for the episode."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from focusmem.browser.base import BrowserLimits


class Clock:
    """The clock of one episode. The episode's time always runs. A step's time runs only while the browser works, so a
    slow policy does not use it up.
    """

    def __init__(self, limits: BrowserLimits, now: Callable[[], float] = time.monotonic) -> None:
        self._limits, self._now = limits, now
        self.begin_episode()

    def begin_episode(self) -> None:
        self._episode_start = self._now()
        self.begin_step()

    def begin_step(self) -> None:
        self._step_used_s = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        start = self._now()
        try:
            yield
        finally:
            self._step_used_s += self._now() - start

    def left(self) -> tuple[float, str]:
        """The seconds that the next call may take, and the limit that applies."""
        limits = self._limits
        episode_used_s = self._now() - self._episode_start
        return min(
            (limits.action_s, f"action_s, {limits.action_s:g} s"),
            (limits.step_s - self._step_used_s, f"step_s, {limits.step_s:g} s"),
            (limits.episode_s - episode_used_s, f"episode_s, {limits.episode_s:g} s"),
        )
