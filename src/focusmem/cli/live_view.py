"""A live view of runs. A terminal shows a table that is updated; other outputs get a line for each finished attempt, or
progress lines.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from focusmem.agent.live_episode import LiveEpisode
from focusmem.cli.output import printable
from focusmem.errors import PolicyError
from focusmem.evaluation.watcher import Watcher
from focusmem.progress import Progress
from focusmem.reports.words import OUTCOMES, counted, in_words
from focusmem.schemas import Outcome, Task, Verdict, parse_action
from focusmem.schemas.action import AnyAction

_COLOURS: Final = {"success": "green", "failure": "red", "error": "magenta", "not_judged": "yellow"}
_MAX_ROWS: Final = 24
"""Maximum number of rows. With more attempts, only the running ones are shown."""


@dataclass
class Lane:
    """The current state of one attempt at a task in one run."""

    name: str
    """The task's number, and the attempt's number if there are several."""
    run: str
    num_steps: int = 0
    action: AnyAction | None = None
    """The last action; None before the first action, and if the last reply could not be read."""
    is_active: bool = False
    outcome: Outcome | None = None
    """None until the attempt is over."""


class LiveView:
    """Use as `with LiveView(["none"], attempts) as view:`, and pass `view.watcher("none")` to that run.

    It writes to standard error, so that standard output holds only the results.
    """

    def __init__(self, runs: Sequence[str], attempts: Sequence[tuple[Task, int]], *, num_done: int = 0) -> None:
        """`attempts` holds the remaining attempts of each run. `num_done` is the number of attempts that were finished
        before, over all runs.
        """
        self._runs, self._console = runs, Console(stderr=True)
        numbers = {task_id: place for place, task_id in enumerate(dict.fromkeys(t.task_id for t, _ in attempts), 1)}
        has_several = any(number > 1 for _, number in attempts)
        self._lanes = {
            (run, task.task_id, number): Lane(f"{numbers[task.task_id]}{f'.{number}' if has_several else ''}", run)
            for task, number in attempts
            for run in runs
        }
        self._progress = Progress("run", total=num_done + len(self._lanes), start=num_done)
        self._outcomes: list[Outcome] = []
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(get_renderable=self._table, console=self._console, refresh_per_second=8)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def watcher(self, run: str) -> Watcher:
        return _LaneWatcher(self, run)

    def lane(self, run: str, episode: LiveEpisode) -> Lane:
        return self._lanes[run, episode.task.task_id, episode.attempt]

    def ended(self, lane: Lane) -> None:
        assert lane.outcome is not None, "an attempt that is over has an outcome"
        self._outcomes.append(lane.outcome)
        is_on_terminal, is_short = self._live is not None, len(self._lanes) <= _MAX_ROWS
        if is_on_terminal or is_short:
            self._progress.count(failed=lane.outcome == "error")
        else:
            self._progress.step(failed=lane.outcome == "error", note=self._success())
        if is_short and not is_on_terminal:
            self.say(f"task {lane.name}, {lane.run}: {_ending(lane)}")

    def say(self, text: str) -> None:
        sys.stderr.write(f"{printable(text)}\n")
        sys.stderr.flush()

    def _success(self) -> str:
        judged = [outcome for outcome in self._outcomes if outcome != "not_judged"]
        return f"{judged.count('success')} of {len(judged)} solved" if judged else ""

    def _table(self) -> RenderableType:
        table = Table(expand=True)
        table.add_column("task", width=6)
        for run in self._runs:
            table.add_column(run, ratio=1, no_wrap=True, overflow="ellipsis")
        lanes = list(self._lanes.values())
        rows = [lanes[place : place + len(self._runs)] for place in range(0, len(lanes), len(self._runs))]
        if len(rows) > _MAX_ROWS:
            rows = [row for row in rows if any(lane.is_active for lane in row)][:_MAX_ROWS]
        for row in rows:
            table.add_row(row[0].name, *map(_cell, row))
        return Group(table, escape("  ".join(filter(None, (self._progress.line(), self._success())))))


class _LaneWatcher(Watcher):
    def __init__(self, view: LiveView, run: str) -> None:
        self._view, self._run = view, run

    def began(self, episode: LiveEpisode) -> None:
        lane = self._view.lane(self._run, episode)
        lane.is_active, lane.num_steps, lane.action = True, 0, None

    def replied(self, episode: LiveEpisode, text: str) -> None:
        lane = self._view.lane(self._run, episode)
        lane.num_steps = len(episode.steps) + 1
        try:
            lane.action = parse_action(text)
        except PolicyError:
            lane.action = None

    def ended(self, episode: LiveEpisode, verdict: Verdict) -> None:
        lane = self._view.lane(self._run, episode)
        lane.is_active, lane.num_steps, lane.outcome = False, len(episode.steps), verdict.outcome
        self._view.ended(lane)


def _cell(lane: Lane) -> str:
    if lane.outcome is not None:
        colour = _COLOURS[lane.outcome]
        return f"[{colour}]{escape(_ending(lane))}[/]"
    if not lane.is_active:
        return ""
    if not lane.num_steps:
        return "looks at the page"
    return escape(printable(f"step {lane.num_steps}: {in_words(lane.action)}"))


def _ending(lane: Lane) -> str:
    assert lane.outcome is not None, "an attempt that is over has an outcome"
    return f"{OUTCOMES[lane.outcome]}, {counted(lane.num_steps, 'step')}"
