"""Episodes on the raster view: a solver's steps as they happen, and the trajectories they leave behind."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from focusmem.agent.prompt import NUM_RECENT
from focusmem.errors import ConfigError
from focusmem.judges.exact_answer import is_same_answer
from focusmem.lab.world.address import Address
from focusmem.lab.world.pages import FACT_NAMES
from focusmem.lab.world.scene import VIEW_HEIGHT, Word
from focusmem.lab.world.session import PageSession
from focusmem.lab.world.solvers import Solver, View
from focusmem.lab.world.tasks import COMPARISONS, KINDS, MAX_STEPS, LabTask, Use, make_task, site_names
from focusmem.lab.world.world import World
from focusmem.schemas import Screenshot, make_action
from focusmem.schemas.action import AnyAction
from focusmem.seeds import derive_seed

MIN_STEPS = 5
"""Tasks that an expert solves in fewer steps are too easy to measure memory."""
COMPARISON_WEIGHT = 3
"""Factor by which comparisons are drawn more often than other kinds, because they are long and many are rejected."""


@dataclass(frozen=True)
class RolloutStep:
    """An observation and an action, without pixels: these can be drawn again from the state of the page."""

    path: str
    scroll: int
    typed: tuple[tuple[str, str], ...]
    action: AnyAction
    error: str | None
    wanted: AnyAction | None = None
    """The right action, if `action` is a slip."""


def screenshot_of(world: World, step: RolloutStep) -> Screenshot:
    """The screenshot of a step, drawn again."""
    return Screenshot.from_image(session_of(world, step).image())


def session_of(world: World, step: RolloutStep) -> PageSession:
    """The session at the page of a step, before its action."""
    return PageSession(world, step.path, scroll=step.scroll, typed=step.typed)


@dataclass(frozen=True)
class Rollout:
    task: LabTask
    steps: tuple[RolloutStep, ...]
    answer: str | None
    """None if the solver never stopped."""
    source: str = "laboratory expert"
    """Who left it."""
    claims_success: bool = False
    """Whether the episode's record claims success even if the episode failed."""

    @property
    def is_success(self) -> bool:
        return self.answer is not None and is_same_answer(self.answer, self.task.task.answer or "")


def roll_out(
    world: World, task: LabTask, solver: Solver, *, max_steps: int = MAX_STEPS, slips: random.Random | None = None
) -> Rollout:
    """One episode, from the task's start to `stop` or the step limit. With `slips`, random actions are replaced by
    slips.
    """
    session = PageSession(world, task.start_path)
    steps: list[RolloutStep] = []
    for _ in range(max_steps):
        view = View(session.path, tuple(control.name for control in session.controls()))
        wanted = solver.next(view)
        slip = slip_instead(wanted, solver.sought, view.names, slips) if slips else None
        action = slip or wanted
        before = (session.path, session.scroll, session.typed())
        error = session.perform(action).error if action.name != "stop" else None
        steps.append(RolloutStep(*before, action, error, wanted if slip else None))
        if slip:
            solver.slipped(session.path, session.scroll)
        if action.name == "stop":
            return Rollout(task, tuple(steps), action.arguments.answer)
    return Rollout(task, tuple(steps), None)


SLIP_SHARE = 0.08
"""Share of actions that are replaced by a random slip."""
HASTE_SHARE = 0.35
"""Share of scrolls that are replaced by a click on an element that is not yet in view."""


def slip_instead(wanted: AnyAction, sought: str | None, names: Sequence[str], rng: random.Random) -> AnyAction | None:
    """The slip that replaces an action, or None. Typing is never replaced."""
    if sought is not None and wanted.name == "scroll" and rng.random() < HASTE_SHARE:
        return make_action("click", description=sought)
    if wanted.name in ("type", "press_key") or rng.random() >= SLIP_SHARE:
        return None
    choices = [make_action("scroll", direction=direction) for direction in ("up", "down")]
    choices += [make_action("click", description=name) for name in names if name != "Search"]
    slip = rng.choice(choices)
    return None if slip == wanted else slip


def iter_tasks(
    world: World, split: str, use: Use, seed: int, *, sites: Sequence[str] | None = None
) -> Iterator[LabTask]:
    """An endless sequence of sensible tasks on a split's sites, or on `sites`."""
    rng = random.Random(derive_seed(world.seed, "tasks", split, use, seed))
    names = site_names(split) if sites is None else sites
    if not names:
        raise ConfigError("There is no site to draw tasks from.")
    while True:
        site_id = rng.choice(names)
        task = make_task(world, site_id, drawn_kind(world, site_id, rng), use, rng.randrange(10**6))
        if sensible_rollout(world, task) is not None:
            yield task


def drawn_kind(world: World, site_id: str, rng: random.Random) -> str:
    """Draws a kind of task that the site's family has."""
    kinds = KINDS[world.family(site_id)]
    return rng.choices(kinds, [COMPARISON_WEIGHT if kind in COMPARISONS else 1 for kind in kinds])[0]


def sensible_rollout(world: World, task: LabTask) -> Rollout | None:
    """The expert's episode; None if it has too few or too many steps, or if a comparison can be solved
    without memory.
    """
    rollout = roll_out(world, task, Solver.expert(world, task))
    is_long_enough = MIN_STEPS <= len(rollout.steps) <= MAX_STEPS
    is_sensible = rollout.is_success and is_long_enough and not _is_in_window(world, rollout)
    return rollout if is_sensible else None


def _is_in_window(world: World, rollout: Rollout) -> bool:
    """Whether the first fact of a comparison is still visible in the recent events at the time of the answer."""
    task = rollout.task
    if task.kind not in COMPARISONS:
        return False
    recent = rollout.steps[-1 - NUM_RECENT : -1]
    return any(_shows_some_of(world, step, task.entries[0], task.fact or "") for step in recent)


def _shows_some_of(world: World, step: RolloutStep, index: int, fact: str) -> bool:
    if Address.parse(step.path).parts[:2] != ("entry", str(index)):
        return False
    label = f"{FACT_NAMES[fact]}:".split()[0]
    words = (item for item in world.scene(step.path).drawn if isinstance(item, Word) and item.text == label)
    return any(step.scroll - word.font.line_height < word.top < step.scroll + VIEW_HEIGHT for word in words)
