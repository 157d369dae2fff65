"""One run: a mind attempts the tasks of a suite, and everything is recorded."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from focusmem.agent.mind import Mind
from focusmem.browser.opening import BrowserChoice
from focusmem.evaluation.run_store import RunStore
from focusmem.evaluation.runner import Runner, RunnerConfig
from focusmem.evaluation.watcher import Watcher
from focusmem.schemas import Conditions, Manifest, Preparation, Run, RunFolder, StoredTrajectory, Task, run_name
from focusmem.schemas.environment import collect_environment
from focusmem.suites.base import MakeBrowser, Suite, manifest_of


@dataclass(frozen=True, kw_only=True)
class RunAbout:
    """The facts that a run records besides its episodes."""

    method: str
    """The name of the agent's memory in reports."""
    source: str = "focusmem run"
    """Where its trajectories come from, as a bank shows it."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Every setting, and everything else that decides what happens in episodes. A run is resumed only with equal
    values."""
    may_differ: Sequence[str] = ()
    """Dotted names in `config` that may differ when a run is resumed, because they change nothing but its speed."""
    seeds: Mapping[str, int] = field(default_factory=dict)
    """The seed of each kind of randomness, by purpose."""
    browser: str | None = None
    """The browser and its version."""
    num_beside: int = 1
    """Number of runs and processes that work at the same time on this machine, this one included."""
    command: Sequence[str] = ()
    """The command line, word by word; empty if it was not run by a command."""


class SuiteRun:
    def __init__(
        self,
        suite: Suite,
        mind: Mind,
        folder: Path,
        about: RunAbout,
        *,
        runner: RunnerConfig | None = None,
        num_attempts: int = 1,
        load_recalled: Callable[[str], StoredTrajectory] | None = None,
        is_late: Callable[[], bool] | None = None,
    ) -> None:
        """`load_recalled` reads a trajectory that memory offered, so that the run can keep it. No attempt begins once
        `is_late` says so; the run can then be resumed.
        """
        self.suite, self.mind, self.about, self.store = suite, mind, about, RunStore(folder)
        self.runner, self.num_attempts = runner or RunnerConfig(), num_attempts
        self._load_recalled, self._is_late = load_recalled, is_late

    @property
    def folder(self) -> RunFolder:
        return self.store.folder

    def manifest(self) -> Manifest:
        return manifest_of(self.suite, num_attempts=self.num_attempts)

    def attempts(self) -> list[tuple[Task, int]]:
        """All attempts of the run, finished or not."""
        tasks = {task.task_id: task for task in self.suite.tasks}
        return [(tasks[task_id], number) for task_id, number in self.manifest().attempts()]

    def attempts_left(self) -> list[tuple[Task, int]]:
        """The attempts that are not finished."""
        is_finished = self.folder.is_finished
        return [(task, number) for task, number in self.attempts() if not is_finished(task.task_id, number)]

    def prepared(self, preparation: Preparation) -> None:
        """Records what was done before the first episode."""
        self.store.keep_preparation(preparation.after(self.folder.preparation()))

    @contextmanager
    def on_record(self) -> Iterator[None]:
        """A block during which the run is recorded as running. At its end the run is recorded as finished, or as failed
        if there was an error or attempts are left.
        """
        run = Run(
            run_id=run_name(self.store.path),
            command=tuple(self.about.command),
            status="running",
            config=dict(self.about.config),
            started_at=datetime.now(UTC),
            num_tasks=len(self.suite.tasks),
        )
        environment = collect_environment(
            dict(self.about.seeds), system={"browser": self.about.browser or "not readable"}
        )
        self.store.begin(run, self.manifest(), environment, may_differ=self.about.may_differ)
        try:
            yield
        except Exception as error:
            self.store.end(f"{type(error).__name__}: {error}")
            raise
        else:
            num_left = len(self.attempts_left())
            self.store.end(f"The time was over; {num_left} attempts are left." if num_left else None)
        finally:
            self.store.let_go()  # also after Ctrl-C

    def run(self, choice: BrowserChoice, watcher: Watcher | None = None) -> None:
        """Runs all attempts that are not finished, in browsers of the suite."""
        with self.on_record():
            self.run_part(self.attempts(), choice, watcher)

    def run_part(
        self, attempts: Sequence[tuple[Task, int]], choice: BrowserChoice, watcher: Watcher | None = None
    ) -> None:
        """Runs some attempts of a run that is already recorded. Worker processes use this."""

        async def play() -> None:
            async with AsyncExitStack() as stack:
                await self.attempt(attempts, await self.suite.open_browsers(choice, stack), watcher)

        asyncio.run(play())

    async def attempt(
        self, attempts: Sequence[tuple[Task, int]], make_browser: MakeBrowser, watcher: Watcher | None = None
    ) -> None:
        """Runs attempts in an event loop that other runs may share."""
        preparation = self.folder.preparation()
        runner = Runner(
            self.runner,
            self.store,
            self.mind,
            make_browser,
            self.suite.judge,
            method=self.about.method,
            source=self.about.source,
            conditions=Conditions(
                num_parallel=self.runner.num_parallel * self.about.num_beside,
                num_encoded_before=None if preparation is None else preparation.num_ready,
            ),
            watcher=watcher,
            load_recalled=self._load_recalled,
            is_late=self._is_late,
        )
        await runner.run(attempts)
