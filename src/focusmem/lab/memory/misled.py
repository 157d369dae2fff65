"""A retriever that returns misleading trajectories instead of hits, for diagnostics, and its settings."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from focusmem.agent.decision import Decision
from focusmem.agent.retrieval import FoundTrajectory, Search
from focusmem.lab.world.experts import as_trajectory
from focusmem.lab.world.misleading import Label, mislead
from focusmem.lab.world.rollout import screenshot_of
from focusmem.lab.world.tasks import task_of
from focusmem.lab.world.world import World
from focusmem.schemas import Hit, StoredTrajectory
from focusmem.settings import checked_dataclass


@checked_dataclass(frozen=True, kw_only=True)
class LabMisleading:
    """Settings for misleading trajectories (`lab/world/misleading.py`), in the laboratory only."""

    labels: tuple[Label, ...] = ()
    """Their labels: near, stale, wrong-answer, told-order, shown-order. An empty list adds no misleading trajectories.
    """
    replaces_hits: bool = False
    """Whether they replace all hits. Otherwise the bank holds them in addition to the experts' trajectories."""
    num_each: Annotated[int, Field(ge=1)] = 3
    """Number of trajectories of each label for a site."""


class MisledRetriever:
    """Returns misleading trajectories for a task's site, the same for every decision."""

    identity = "misled"

    def __init__(self, world: World, settings: LabMisleading) -> None:
        self.world, self.settings = world, settings
        self._names: dict[str, list[str]] = {}
        """Trajectory ids by task."""
        self._stored: dict[str, StoredTrajectory] = {}

    def find(self, decisions: Sequence[Decision], top: int, num_recent: int) -> list[Search]:
        """`num_recent` has no effect here, because no search is made."""
        return [self._search(decision.task.task_id, top) for decision in decisions]

    def load(self, trajectory_id: str) -> StoredTrajectory:
        return self._stored[trajectory_id]

    def _search(self, task_id: str, top: int) -> Search:
        if task_id not in self._names:
            self._names[task_id] = list(self._made(task_id))
        names = self._names[task_id][:top]
        hits = [Hit(trajectory_id=name, score=1.0 - 0.01 * rank, rank=rank) for rank, name in enumerate(names)]
        return Search(tuple(FoundTrajectory(hit, self._stored[hit.trajectory_id]) for hit in hits))

    def _made(self, task_id: str) -> dict[str, None]:
        """The ids of the trajectories for a task, in order: one of each label, then a second of each, and so on."""
        task = task_of(self.world, task_id)
        names: dict[str, None] = {}
        for number in range(self.settings.num_each):
            for label in self.settings.labels:
                made = mislead(self.world, task, label, number)
                stored = as_trajectory(made.rollout, lambda step: screenshot_of(self.world, step))
                name = stored.trajectory.trajectory_id
                self._stored[name] = stored
                names[name] = None
        return names
