"""One Chromium for all tests of a folder. Where there is none, the tests fail and say what to install."""

import asyncio
import os
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest

from focusmem.browser.base import BrowserLimits

ValueT = TypeVar("ValueT")


class SharedChromium:
    """Tests run their coroutines in its event loop, where the browser lives on between them."""

    def __init__(self) -> None:
        from focusmem.browser.chromium_process import ChromiumPool

        self._runner = asyncio.Runner()
        self.pool = ChromiumPool()

    def run(self, work: Coroutine[Any, Any, ValueT]) -> ValueT:
        return self._runner.run(work)

    def call(self, work: Callable[[], ValueT]) -> ValueT:
        """What is no coroutine, but starts one: Playwright's listeners do, and need the loop that the browser lives in.

        Outside, they fail once any other test of this process has had a loop of its own.
        """

        async def called() -> ValueT:
            return work()

        return self.run(called())

    def browser(self, limits: BrowserLimits, allowed: Sequence[str]):
        from focusmem.browser.chromium import ChromiumBrowser

        return self.run(ChromiumBrowser.launch(limits, allowed, pool=self.pool))

    def close(self) -> None:
        self.run(self.pool.close())
        self._runner.close()


@pytest.fixture(scope="session")
def chromium() -> Iterator[SharedChromium]:
    shared = SharedChromium()
    yield shared
    shared.close()


def descendants(ancestor: int = os.getpid()) -> set[int]:
    """Everything that runs because of a process, this one unless told, as the kernel knows it."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        parents[int(stat.parent.name)] = int(fields[1])
    found, new = set(), {ancestor}
    while new:
        new = {child for child, parent in parents.items() if parent in new} - found
        found |= new
    return found


def is_gone(pid: int) -> bool:
    """Whether nothing runs under this number; a minute is allowed for it to end."""
    for _ in range(1200):
        with suppress(ProcessLookupError):
            os.kill(pid, 0)
            time.sleep(0.05)
            continue
        return True
    return False
