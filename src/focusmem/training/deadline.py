"""The time limit of several stages together."""

import time
from dataclasses import replace

from focusmem.training.config import LoopConfig


class Deadline:
    def __init__(self, max_minutes: float | None) -> None:
        """The time counts from now on. None means no limit."""
        self._ends = None if max_minutes is None else time.monotonic() + max_minutes * 60

    def limit(self, loop: LoopConfig) -> LoopConfig:
        """The config of a stage's loop, limited to the time that is left. A stage always takes at least one step."""
        if self._ends is None:
            return loop
        left = max(1e-9, (self._ends - time.monotonic()) / 60)
        return replace(loop, max_minutes=left if loop.max_minutes is None else min(left, loop.max_minutes))
