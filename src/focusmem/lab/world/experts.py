"""Trajectories of experts on a split's sites. Banks are filled with them.

Some sites have many trajectories and some have none, because a memory must also work where there is nothing to
remember.
"""

import random
from collections.abc import Callable, Iterator

from focusmem.lab.policy.drawing import made_side_by_side
from focusmem.lab.world.rollout import Rollout, RolloutStep, sensible_rollout
from focusmem.lab.world.tasks import KINDS_LEFT, NUM_SITES, make_task
from focusmem.lab.world.world import World
from focusmem.schemas import Outcome, Screenshot, Step, StoredTrajectory
from focusmem.seeds import derive_seed

VISITS = (0, 1, 2, 3, 3, 4, 5, 6)
"""Possible numbers of trajectories per site; one of these is drawn for each site."""
OFFICE_VISITS = (1, 2, 3)
"""The same for offices. Without any trajectory, no visitor could solve a task there."""


def expert_rollouts(
    world: World, split: str, *, num_sites: int | None = None, num_workers: int = 0
) -> Iterator[Rollout]:
    """The experts' episodes in a fixed order, site by site, in the bank's wordings."""
    num = num_sites or NUM_SITES[split]
    for own in made_side_by_side(lambda number: site_rollouts(world, f"{split}-{number}"), num, num_workers):
        yield from own


def site_rollouts(world: World, site_id: str) -> list[Rollout]:
    rng = random.Random(derive_seed(world.seed, "visits", site_id))
    family = world.family(site_id)
    wanted = rng.choice(OFFICE_VISITS if family == "office" else VISITS)
    kinds = KINDS_LEFT[family]
    found: list[Rollout] = []
    number = 0
    while len(found) < wanted:
        rollout = sensible_rollout(world, make_task(world, site_id, rng.choice(kinds), "bank", number))
        number += 1
        if rollout is not None:
            found.append(rollout)
    return found


def as_trajectory(rollout: Rollout, picture: Callable[[RolloutStep], Screenshot]) -> StoredTrajectory:
    """An episode as a stored trajectory, with the screenshot of each step."""
    task = rollout.task.task
    seen = [picture(step) for step in rollout.steps]
    steps = [
        Step(screenshot=shot.ref(), action=step.action, error=step.error)
        for shot, step in zip(seen, rollout.steps, strict=True)
    ]
    outcome: Outcome = "success" if rollout.is_success or rollout.claims_success else "failure"
    trajectory = task.trajectory(rollout.task.name, steps, outcome=outcome, source=rollout.source)
    return StoredTrajectory(trajectory, {shot.digest: shot for shot in seen})
