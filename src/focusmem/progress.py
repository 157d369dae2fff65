"""A progress line for long work: done/total, the most important number, speed, time left."""

import sys
import time
from types import TracebackType
from typing import Self, TextIO


class Progress:
    """Used as `with Progress("encode", total=90) as line: line.step(note="loss 1.2")`.

    On a terminal the line is redrawn in place; elsewhere (a log file) a new line is written at intervals. `start` is
    the number done by earlier runs; speed and time left refer to this run only.
    """

    def __init__(
        self,
        label: str,
        total: int,
        *,
        start: int = 0,
        stream: TextIO | None = None,
        redraw_s: float = 0.1,
        log_every_s: float = 10.0,
    ) -> None:
        self.label, self.total = label, total
        self.num_done, self.num_failed = start, 0
        self._start = start
        self._note = ""
        self._stream = stream or sys.stderr
        self._on_terminal = self._stream.isatty()
        self._interval_s = redraw_s if self._on_terminal else log_every_s
        self._started = self._drawn = time.monotonic()
        self._shown: tuple[int, int, int, str] | None = None
        self._width = 0

    def count(self, num: int = 1, *, failed: bool = False) -> None:
        """Like `step`, but draws nothing. It is for callers that show `line()` themselves."""
        self.num_done += num
        self.num_failed += num if failed else 0

    def step(self, num: int = 1, *, failed: bool = False, note: str | None = None) -> None:
        self.count(num, failed=failed)
        self._note = self._note if note is None else note
        if time.monotonic() - self._drawn >= self._interval_s:
            self._draw()

    def line(self) -> str:
        elapsed_s = time.monotonic() - self._started
        rate = (self.num_done - self._start) / elapsed_s if elapsed_s > 0 else 0.0
        left = f"{_clock((self.total - self.num_done) / rate)} left" if rate > 0 else "starting"
        parts = [f"{self.label} {self.num_done}/{self.total}", self._note, f"{rate:.3g}/s", left]
        parts.append(f"{self.num_failed} failed" if self.num_failed else "")
        return "  ".join(part for part in parts if part)

    def __enter__(self) -> Self:
        self._draw()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._on_terminal or self._shown != self._state():
            self._draw()
        if self._on_terminal:
            self._stream.write("\n")
            self._stream.flush()

    def _draw(self) -> None:
        text = self.line()
        if self._on_terminal:
            self._stream.write("\r" + text.ljust(self._width))
            self._width = len(text)
        else:
            self._stream.write(text + "\n")
        self._stream.flush()
        self._drawn, self._shown = time.monotonic(), self._state()

    def _state(self) -> tuple[int, int, int, str]:
        return self.num_done, self.num_failed, self.total, self._note


def _clock(seconds: float) -> str:
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
