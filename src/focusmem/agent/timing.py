"""Measures the time of each part of a step, for the step's notes."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def timed(seconds: dict[str, float], part: str) -> Iterator[None]:
    """Stores the seconds that the block took, even if it raises an error."""
    started = time.perf_counter()
    try:
        yield
    finally:
        seconds[part] = time.perf_counter() - started
