"""The experts' trajectories of a whole split. A site is rolled out when it is first needed, or all sites beforehand.

Training that never repeats a task visits thousands of sites, and any batch may need any of them. Without this bank,
half of a worker's time would be spent on rolling sites out again.
"""

import random
from collections.abc import Callable, Sequence
from functools import lru_cache

from focusmem.errors import ConfigError
from focusmem.lab.policy.drawing import made_side_by_side, placeholder
from focusmem.lab.world.experts import VISITS, as_trajectory, site_rollouts
from focusmem.lab.world.rollout import Rollout
from focusmem.lab.world.tasks import NUM_SITES, Split
from focusmem.lab.world.world import World
from focusmem.schemas import Trajectory

_MOST = max(VISITS)
_SITES_KEPT = 256


class SplitBank:
    """The same trajectories as in a `LabBank` of the split, but at other places."""

    def __init__(self, world: World, split: Split, *, num_sites: int | None = None) -> None:
        self.world, self.split, self.num_sites = world, split, num_sites or NUM_SITES[split]
        self._rollouts: Callable[[int], list[Rollout]] = lru_cache(_SITES_KEPT)(self._roll_out)
        self._trajectory = lru_cache(_SITES_KEPT * _MOST)(self._make_trajectory)

    def roll_out_all(self, num_workers: int) -> list[list[Rollout]]:
        """Roll out all sites with worker processes. Processes that are forked later share the result."""
        made = made_side_by_side(self._roll_out, self.num_sites, num_workers)
        self.take(made)
        return made

    def take(self, made: list[list[Rollout]]) -> None:
        """Use the rollouts of another bank of the same sites."""
        if len(made) != self.num_sites:
            raise ConfigError(f"A bank of {self.num_sites} sites was given the trajectories of {len(made)}.")
        self._rollouts = made.__getitem__

    def rollout(self, place: int) -> Rollout:
        return self._rollouts(place // _MOST)[place % _MOST]

    def trajectory(self, place: int) -> Trajectory:
        return self._trajectory(place)

    def places_of(self, site_id: str) -> Sequence[int]:
        """The places of a site's trajectories; there may be none."""
        split, number = site_id.split("-")
        if split != self.split or int(number) >= self.num_sites:
            return ()
        first = int(number) * _MOST
        return range(first, first + len(self._rollouts(int(number))))

    def any_place(self, rng: random.Random) -> int:
        while True:
            places = self.places_of(f"{self.split}-{rng.randrange(self.num_sites)}")
            if places:
                return rng.choice(places)

    def _roll_out(self, number: int) -> list[Rollout]:
        return site_rollouts(self.world, f"{self.split}-{number}")

    def _make_trajectory(self, place: int) -> Trajectory:
        return as_trajectory(self.rollout(place), placeholder).trajectory
