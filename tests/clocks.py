"""Clocks that tests move: a limit passes when a test says so, not when a busy machine is slow."""

import asyncio

PATIENT_S = 600.0
"""A limit that is not under test. It is reached only by something that never ends."""


class MovedLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock can be put forward, so that later timers fire now."""

    _ahead_s = 0.0

    def time(self) -> float:
        return super().time() + self._ahead_s

    def put_forward(self, seconds: float) -> None:
        """From any thread."""
        self._ahead_s += seconds
        self.call_soon_threadsafe(lambda: None)  # it may be asleep, until the time that it had


def run(work):
    """Like `asyncio.run`, in a MovedLoop."""
    with asyncio.Runner(loop_factory=MovedLoop) as runner:
        return runner.run(work)


def put_forward(seconds: float) -> None:
    """The clock of the running loop."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, MovedLoop)
    loop.put_forward(seconds)
