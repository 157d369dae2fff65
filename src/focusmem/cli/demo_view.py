"""The demonstration as it goes on: a table that changes on a terminal, a line for each ending elsewhere."""

import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from focusmem.cli.output import printable
from focusmem.lab.demo.demo import LABELS, METHODS, Audience, Lane
from focusmem.lab.demo.story import OUTCOMES, counted, in_words
from focusmem.lab.world.browsers import BrowserKind

_COLOURS = {"success": "green", "failure": "red", "error": "magenta", "not_judged": "yellow"}


class DemoView(Audience):
    """On standard error, so that standard output holds the story alone."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._lanes: Sequence[Lane] = ()
        self._live: Live | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def begin(self, lanes: Sequence[Lane], browser: BrowserKind, why_raster: str | None) -> None:
        self._lanes = lanes
        if why_raster is not None:
            self._say(f"Without Chromium, the pages are drawn here instead, all but alike. {why_raster}")
        where = "in Chromium" if browser == "chromium" else "on pages that are drawn here, without a browser"
        self._say(f"{counted(len(lanes) // len(METHODS), 'task')} {where}, without and with memory at the same time:")
        for lane in lanes[:: len(METHODS)]:
            self._say(f"  {lane.number}. {lane.task.task.instruction}")
        if self._console.is_terminal:
            self._live = Live(get_renderable=self._table, console=self._console, refresh_per_second=8)
            self._live.start()

    def see(self, lane: Lane) -> None:
        if self._live is None and lane.outcome is not None:
            self._say(f"task {lane.number}, {LABELS[lane.method].lower()}: {_ending(lane)}")

    def _say(self, text: str) -> None:
        sys.stderr.write(f"{printable(text)}\n")
        sys.stderr.flush()

    def _table(self) -> Table:
        table = Table(expand=True)
        table.add_column("task", width=4)
        for method in METHODS:
            table.add_column(LABELS[method].lower(), ratio=1, no_wrap=True, overflow="ellipsis")
        for place in range(0, len(self._lanes), len(METHODS)):
            own = self._lanes[place : place + len(METHODS)]
            table.add_row(str(own[0].number), *map(_cell, own))
        return table


def _cell(lane: Lane) -> str:
    if lane.outcome is not None:
        colour = _COLOURS[lane.outcome]
        return f"[{colour}]{escape(_ending(lane))}[/]"
    if not lane.num_steps:
        return "looks at the page"
    return escape(printable(f"step {lane.num_steps}: {in_words(lane.action)}"))


def _ending(lane: Lane) -> str:
    assert lane.outcome is not None
    return f"{OUTCOMES[lane.outcome]}, {counted(lane.num_steps, 'step')}"
