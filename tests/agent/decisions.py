"""Decisions and what was found for them, for tests of the agent's parts."""

from dataclasses import replace

import torch

from factories import make_screenshot, make_steps, make_trajectory
from focusmem.agent.decision import Decision
from focusmem.agent.retrieval import FoundTrajectory, Search
from focusmem.model.inputs import Row
from focusmem.schemas import Hit, Observation, StoredTrajectory, Task


def make_decision(number: int = 0, *, num_steps: int = 0, **changes) -> Decision:
    """Each of its own task and episode."""
    steps, screenshots = make_steps(num_steps, seed=number)
    task = Task(task_id=f"task-{number}", instruction=f"How much is mug {number}?", start_url="", site="", max_steps=20)
    seen = Observation(make_screenshot(500 + number), "https://shop.example/now", "Shop", ())
    values = {"episode_id": f"task-{number} 1 0", "steps": steps, "screenshots": screenshots}
    return Decision(task=task, seen=seen, **(values | changes))


def make_search(*seeds: int, scores: tuple[float, ...] = (0.9, 0.8, 0.7, 0.6), num_steps: int = 2) -> Search:
    """Trajectories made from these seeds, the best first."""
    found = []
    for rank, (seed, score) in enumerate(zip(seeds, scores, strict=False)):
        stored = StoredTrajectory(*make_trajectory(num_steps, seed=seed))
        hit = Hit(trajectory_id=stored.trajectory.trajectory_id, score=score, rank=rank)
        found.append(FoundTrajectory(hit, stored))
    return Search(tuple(found))


class FixedRetriever:
    """Finds the same trajectories for every decision, and notes what it was asked."""

    identity = "fixed"

    def __init__(self, search: Search) -> None:
        self.search = search
        self.asked: list[tuple[list[str], int]] = []

    def find(self, decisions, top, num_recent):
        self.asked.append(([decision.episode_id for decision in decisions], top))
        return [replace(self.search, found=self.search.found[:top])] * len(decisions)

    def load(self, trajectory_id):
        return next(one.stored for one in self.search.found if one.hit.trajectory_id == trajectory_id)


def rows_equal(one: Row, other: Row) -> bool:
    return torch.equal(one.embeds_SD, other.embeds_SD) and torch.equal(one.positions_3S, other.positions_3S)
