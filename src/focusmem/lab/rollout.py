"""Episodes on the raster view: a solver's steps as they happen, and the trajectories they leave behind."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from focusmem.lab.session import PageSession
from focusmem.lab.solvers import Solver, View
from focusmem.lab.tasks import COMPARISONS, KINDS, MAX_STEPS, NUM_SITES, LabTask, Use, is_right, make_task
from focusmem.lab.world import World
from focusmem.schemas.action import AnyAction
from focusmem.seeds import derive_seed

MIN_STEPS = 5
"""Tasks that an expert solves faster are too easy to say anything about memory."""


@dataclass(frozen=True)
class RolloutStep:
    """What was seen and done, without pixels: they can be drawn again from where the page stood."""

    path: str
    scroll: int
    typed: tuple[tuple[str, str], ...]
    action: AnyAction
    error: str | None


@dataclass(frozen=True)
class Rollout:
    task: LabTask
    steps: tuple[RolloutStep, ...]
    answer: str | None
    """None when the solver never stopped."""

    @property
    def is_success(self) -> bool:
        return self.answer is not None and is_right(self.answer, self.task.task.answer or "")


def roll_out(world: World, task: LabTask, solver: Solver, *, max_steps: int = MAX_STEPS) -> Rollout:
    """One episode, from the task's start to its end or limit."""
    session = PageSession(world, f"/{task.site_id}/")
    steps: list[RolloutStep] = []
    for _ in range(max_steps):
        view = View(session.path, tuple(control.name for control in session.controls()))
        action = solver.next(view)
        before = (session.path, session.scroll, session.typed())
        error = session.perform(action).error if action.name != "stop" else None
        steps.append(RolloutStep(*before, action, error))
        if action.name == "stop":
            return Rollout(task, tuple(steps), action.arguments.answer)
    return Rollout(task, tuple(steps), None)


def iter_tasks(world: World, split: str, use: Use, seed: int) -> Iterator[LabTask]:
    """Tasks without end, over a split's sites: those that an expert solves in a sensible number of steps."""
    rng = random.Random(derive_seed(world.seed, "tasks", split, use, seed))
    while True:
        site_id = f"{split}-{rng.randrange(NUM_SITES[split])}"
        kinds = KINDS[world.site(site_id).family]
        kind = rng.choice([*kinds, *(kind for kind in kinds if kind in COMPARISONS)])
        task = make_task(world, site_id, kind, use, rng.randrange(10**6))
        if is_sensible(world, task):
            yield task


def is_sensible(world: World, task: LabTask) -> bool:
    rollout = roll_out(world, task, Solver.expert(world, task))
    return rollout.is_success and MIN_STEPS <= len(rollout.steps) <= MAX_STEPS
