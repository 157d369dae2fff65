"""The time that several stages have together."""

import time
from dataclasses import replace

from focusmem.training.config import LoopConfig


class Deadline:
    def __init__(self, max_minutes: float | None) -> None:
        """Time counts from now on; None sets no limit."""
        self._ends = None if max_minutes is None else time.monotonic() + max_minutes * 60

    def limit(self, loop: LoopConfig) -> LoopConfig:
        """A stage's loop, with no more than the time that is left. A stage always takes one step."""
        if self._ends is None:
            return loop
        left = max(1e-9, (self._ends - time.monotonic()) / 60)
        return replace(loop, max_minutes=left if loop.max_minutes is None else min(left, loop.max_minutes))
