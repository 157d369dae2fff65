"""Runs solvers on many tasks, on the raster view or in Chromium."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from focusmem.browser.base import Browser
from focusmem.errors import ConfigError
from focusmem.judges.exact_answer import is_same_answer
from focusmem.lab.world.rollout import roll_out
from focusmem.lab.world.server import LAB_LIMITS, LabServer
from focusmem.lab.world.solvers import Beliefs, Solver, View
from focusmem.lab.world.tasks import MAX_STEPS, LabTask
from focusmem.lab.world.world import World
from focusmem.progress import Progress
from focusmem.schemas.action import AnyAction, make_action
from focusmem.seeds import derive_seed

SOLVERS: Final = ("expert", "explorer", "nothing")
BROWSERS: Final = ("raster", "chromium")


@dataclass(frozen=True)
class Solved:
    """A solver's result for one task; the record is the same for both views."""

    task: LabTask
    actions: tuple[AnyAction, ...]
    """The solver's actions; addresses are those of the raster's world."""
    errors: tuple[str, ...]
    """Errors of actions that could not be performed."""
    answer: str | None
    """None if the solver never stopped."""

    @property
    def gold(self) -> str:
        assert self.task.task.answer is not None
        return self.task.task.answer

    @property
    def is_success(self) -> bool:
        return self.answer is not None and is_same_answer(self.answer, self.gold)

    def row(self) -> dict[str, Any]:
        return {
            "task_id": self.task.task.task_id,
            "kind": self.task.kind,
            "instruction": self.task.task.instruction,
            "is_success": self.is_success,
            "num_steps": len(self.actions),
            "answer": self.answer,
            "gold": self.gold,
        }


class Nothing(Solver):
    """A solver that stops at once with an empty answer. It must not solve any task."""

    def next(self, view: View) -> AnyAction:
        return make_action("stop", answer="")


def solve(world: World, tasks: Sequence[LabTask], solver_name: str, seed: int, browser: str) -> list[Solved]:
    """Solves the tasks one after another. `seed` decides what the explorer tries first."""
    _check("solver", solver_name, SOLVERS)
    _check("browser", browser, BROWSERS)
    solvers = [make_solver(world, task, solver_name, seed) for task in tasks]
    progress = Progress(f"{solver_name} in {browser}", total=len(tasks))
    if browser == "chromium":
        return asyncio.run(_in_chromium(world, solvers, progress))
    with progress as line:
        return [_counted(_on_raster(world, solver), line) for solver in solvers]


def make_solver(world: World, task: LabTask, name: str, seed: int) -> Solver:
    if name == "expert":
        return Solver.expert(world, task)
    if name == "explorer":
        return Solver.explorer(world, task, random.Random(derive_seed(seed, "explorer", task.name)))
    return Nothing(world, task, Beliefs({}))


def summary(solved: Sequence[Solved]) -> dict[str, Any]:
    """Rates over all tasks, and a row for each task. Rates are None if there are no tasks."""
    num = len(solved)
    return {
        "success_rate": sum(one.is_success for one in solved) / num if num else None,
        "num_tasks": num,
        "mean_steps": sum(len(one.actions) for one in solved) / num if num else None,
        "tasks": [one.row() for one in solved],
    }


def _check(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ConfigError(f"The {name} is {value!r}; choose one of {', '.join(choices)}.")


def _counted(solved: Solved, line: Progress) -> Solved:
    line.step(failed=not solved.is_success)
    return solved


def _on_raster(world: World, solver: Solver) -> Solved:
    rollout = roll_out(world, solver.task, solver)
    errors = tuple(step.error for step in rollout.steps if step.error is not None)
    return Solved(solver.task, tuple(step.action for step in rollout.steps), errors, rollout.answer)


async def _in_chromium(world: World, solvers: Sequence[Solver], progress: Progress) -> list[Solved]:
    # Imported here, because the raster needs neither Playwright nor a browser.
    from focusmem.browser.chromium import ChromiumBrowser

    with LabServer(world) as server:
        browser = await ChromiumBrowser.launch(LAB_LIMITS, [server.host])
        try:
            with progress as line:
                return [_counted(await solve_in(browser, server.url, solver), line) for solver in solvers]
        finally:
            await browser.close()


async def solve_in(browser: Browser, server_url: str, solver: Solver) -> Solved:
    """One episode in a browser that opens the world at the server's address."""
    origin = server_url.removesuffix("/")
    await browser.open(origin + solver.task.start_path)
    actions: list[AnyAction] = []
    errors: list[str] = []
    for _ in range(MAX_STEPS):
        seen = await browser.observe()
        action = solver.next(View.of_url(seen.url, [control.name for control in seen.controls]))
        actions.append(action)
        if action.name == "stop":
            return Solved(solver.task, tuple(actions), tuple(errors), action.arguments.answer)
        performed = await browser.perform(action)
        errors += [performed.error] if performed.error is not None else []
    return Solved(solver.task, tuple(actions), tuple(errors), None)
