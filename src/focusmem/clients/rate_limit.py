"""Limits the requests and the tokens that are sent to an endpoint per minute."""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

_WINDOW_S = 60.0


@dataclass
class Started:
    """A request that has begun."""

    at_s: float
    num_tokens: int
    """Estimated when the request began; corrected when its reply has arrived."""


class RateLimit:
    """No period of one minute has more new requests than allowed. Several threads may wait at once."""

    def __init__(
        self,
        num_requests: int | None,
        num_tokens: int | None,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Limits per minute; None sets none."""
        self._num_requests, self._num_tokens = num_requests, num_tokens
        self._now, self._sleep = now, sleep
        self._begun: deque[Started] = deque()
        self._lock = threading.Lock()

    def begin(self, num_tokens: int) -> Started:
        """Waits until a request with this number of tokens may begin. A request that alone exceeds the limit begins
        when no other counts.
        """
        while True:
            with self._lock:
                now = self._now()
                while self._begun and self._begun[0].at_s <= now - _WINDOW_S:
                    self._begun.popleft()
                free_at = self._free_at(num_tokens)
                if free_at is None:
                    self._begun.append(Started(now, num_tokens))
                    return self._begun[-1]
            self._sleep(max(free_at - now, 0.001))

    def _free_at(self, num_tokens: int) -> float | None:
        """The time at which enough requests will have left the window; None if the request may begin now."""
        num_leaving = 0
        if self._num_requests is not None:
            num_leaving = max(0, len(self._begun) - self._num_requests + 1)
        if self._num_tokens is not None:
            excess = sum(one.num_tokens for one in self._begun) + num_tokens - self._num_tokens
            num_for_tokens = 0
            for one in self._begun:
                if excess <= 0:
                    break
                excess -= one.num_tokens
                num_for_tokens += 1
            num_leaving = max(num_leaving, num_for_tokens)
        return self._begun[num_leaving - 1].at_s + _WINDOW_S if num_leaving else None
