"""A perfect retriever, which uses the laboratory's own knowledge: it finds a demonstration on the task's own site."""

from collections.abc import Sequence

from focusmem.agent.decision import Decision
from focusmem.agent.fronts.turns import ShowTrajectory
from focusmem.agent.prompt import NUM_RECENT
from focusmem.agent.retrieval import FoundTrajectory, Search
from focusmem.lab.world.answers import experience, notes
from focusmem.lab.world.experts import as_trajectory
from focusmem.lab.world.rollout import Rollout, roll_out, screenshot_of
from focusmem.lab.world.solvers import Solver
from focusmem.lab.world.tasks import KINDS, LabTask, make_task, task_of
from focusmem.lab.world.world import World
from focusmem.schemas import Hit, Prompt, StoredTrajectory, Turn

_NUM_CANDIDATES = 16


class OracleRetriever:
    """Finds the same demonstration for every decision of a task."""

    identity = "oracle"

    def __init__(self, world: World) -> None:
        self.world = world
        self._name_of: dict[str, str] = {}
        """The demonstration's trajectory id for each task."""
        self._rollouts: dict[str, Rollout] = {}
        self._stored: dict[str, StoredTrajectory] = {}

    def find(self, decisions: Sequence[Decision], top: int, num_recent: int = NUM_RECENT) -> list[Search]:
        return [self._search(decision) for decision in decisions]

    def load(self, trajectory_id: str) -> StoredTrajectory:
        return self._stored[trajectory_id]

    def rollout(self, trajectory_id: str) -> Rollout:
        """The steps of a demonstration that was found."""
        return self._rollouts[trajectory_id]

    def _search(self, decision: Decision) -> Search:
        task_id = decision.task.task_id
        if task_id not in self._name_of:
            rollout = demonstration(self.world, task_of(self.world, task_id))
            stored = as_trajectory(rollout, lambda step: screenshot_of(self.world, step))
            name = self._name_of[task_id] = stored.trajectory.trajectory_id
            self._rollouts[name], self._stored[name] = rollout, stored
        name = self._name_of[task_id]
        return Search((FoundTrajectory(Hit(trajectory_id=name, score=1.0, rank=0), self._stored[name]),))


def show_notes(oracle: OracleRetriever) -> ShowTrajectory:
    """A few words about the site, taken from the demonstration."""

    def show(found: FoundTrajectory) -> Prompt:
        rollout = oracle.rollout(found.hit.trajectory_id)
        return (Turn("user", (notes(oracle.world, rollout.steps),)),)

    return show


def demonstration(world: World, task: LabTask) -> Rollout:
    """The trajectory that shows most of what the task needs, among some bank trajectories on the task's site."""
    expert = roll_out(world, task, Solver.expert(world, task))
    needed = set(experience(world, expert.steps))
    kinds = KINDS[world.family(task.site_id)]
    candidates = (
        make_task(world, task.site_id, kinds[number % len(kinds)], "bank", number) for number in range(_NUM_CANDIDATES)
    )
    others = [one for one in candidates if not _asks_the_same(one, task)]
    rollouts = [roll_out(world, one, Solver.expert(world, one)) for one in others]
    return max(
        (one for one in rollouts if one.is_success), key=lambda one: len(needed & set(experience(world, one.steps)))
    )


def _asks_the_same(one: LabTask, other: LabTask) -> bool:
    """Whether the answer to one task gives away the answer to the other."""
    if one.task.annotations.instance == other.task.annotations.instance:
        return True
    if not one.entries and not other.entries:  # in a list of equal values the cheapest is also the dearest
        return one.task.answer == other.task.answer
    return one.fact == other.fact and bool(set(one.entries) & set(other.entries))
