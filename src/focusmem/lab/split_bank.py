"""The experts' trajectories of a whole split, each site's rolled out when it is first asked for.

Training that never sees a task twice goes through thousands of sites; most of a bank made beforehand would be waiting.
"""

import random
from collections.abc import Sequence
from functools import lru_cache

from focusmem.lab.drawing import placeholder
from focusmem.lab.experts import VISITS, as_trajectory, site_rollouts
from focusmem.lab.rollout import Rollout
from focusmem.lab.tasks import NUM_SITES
from focusmem.lab.world import World
from focusmem.schemas import Trajectory

_MOST = max(VISITS)
_SITES_KEPT = 256


class SplitBank:
    """The same trajectories as a `LabBank` of the split holds, under other places."""

    def __init__(self, world: World, split: str, *, num_sites: int | None = None) -> None:
        self.world, self.split, self.num_sites = world, split, num_sites or NUM_SITES[split]
        self._site = lru_cache(_SITES_KEPT)(self._roll_out)

    def rollout(self, place: int) -> Rollout:
        return self._site(place // _MOST)[0][place % _MOST]

    def trajectory(self, place: int) -> Trajectory:
        return self._site(place // _MOST)[1][place % _MOST]

    def places_of(self, site_id: str) -> Sequence[int]:
        """Where a site's trajectories stand; there may be none."""
        split, number = site_id.split("-")
        if split != self.split or int(number) >= self.num_sites:
            return ()
        first = int(number) * _MOST
        return range(first, first + len(self._site(int(number))[0]))

    def any_place(self, rng: random.Random) -> int:
        while True:
            places = self.places_of(f"{self.split}-{rng.randrange(self.num_sites)}")
            if places:
                return rng.choice(places)

    def _roll_out(self, number: int) -> tuple[list[Rollout], list[Trajectory]]:
        rollouts = site_rollouts(self.world, f"{self.split}-{number}")
        return rollouts, [as_trajectory(one, placeholder).trajectory for one in rollouts]
