"""Time by part, as the notes of a step record it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def timed(seconds: dict[str, float], part: str) -> Iterator[None]:
    """Stores the seconds that the block took, also if it raises."""
    started = time.perf_counter()
    try:
        yield
    finally:
        seconds[part] = time.perf_counter() - started
