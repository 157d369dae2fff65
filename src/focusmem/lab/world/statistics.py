"""The information that a trajectory shows and some task may need, and the information that one decision needs, in bits.

The bits of an entry are the base-2 logarithm of the number of values that it could have. This is the uncertainty before
the entry was seen.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from focusmem.lab.world.address import Address
from focusmem.lab.world.experts import site_rollouts
from focusmem.lab.world.office_answers import shown_list
from focusmem.lab.world.offices import LISTS, ListName, Office
from focusmem.lab.world.rollout import RolloutStep, sensible_rollout
from focusmem.lab.world.tasks import LabTask
from focusmem.lab.world.world import World


@dataclass(frozen=True)
class Needed:
    """One decision that needs a value, and the trajectory that shows it."""

    task_id: str
    bits: float
    """Of the value."""
    shown_bits: float
    """The bits of all entries of the trajectory that some task may need."""
    num_shown: int
    """Number of entries that the trajectory shows."""
    is_given_away: bool
    """Whether an action of a demonstration repeats the value."""

    @property
    def ratio(self) -> float:
        return self.shown_bits / self.bits


def bits_of(office: Office, name: ListName) -> float:
    """The bits of one entry of a list. A request offers only the office's departments, so their number counts."""
    return math.log2(LISTS[name].num_values or len(office.entries[name]))


def decisions_needing(world: World, task: LabTask) -> list[Needed]:
    """The decisions of an office task that need a value: with the office's first trajectory, or with the notices at the
    beginning of the episode itself.
    """
    request = task.request
    assert request is not None, task.name
    office = world.office(task.site_id)
    own = sensible_rollout(world, task) if request.notices else None
    shown = own or site_rollouts(world, task.site_id)[0]
    lists = _lists_of(office, shown.steps)
    total = sum(bits_of(office, name) * len(office.entries[name]) for name in lists)
    num = sum(len(office.entries[name]) for name in lists)
    return [
        Needed(
            task.task.task_id,
            bits_of(office, need.list_name),
            total,
            num,
            is_given_away=own is None and _is_given_away(shown.steps, value),
        )
        for need, value in zip(request.needs, request.values, strict=True)
    ]


def summary(world: World, tasks: Sequence[LabTask]) -> dict[str, Any]:
    """By kind of task and over all tasks: the bits that trajectories show, the bits that decisions need, and their
    ratio.
    """
    kinds = sorted({task.kind for task in tasks})
    groups = {kind: [task for task in tasks if task.kind == kind] for kind in kinds} | {"all": list(tasks)}
    return {name: _summary_of(world, group) for name, group in groups.items()}


def _summary_of(world: World, tasks: Sequence[LabTask]) -> dict[str, Any]:
    found = [decisions_needing(world, task) for task in tasks]
    each = [one for own in found for one in own]
    if not each:
        return {"num_tasks": 0, "num_decisions": 0}
    return {
        "num_tasks": len(tasks),
        "num_decisions": len(each),
        "decisions_per_task": len(each) / len(tasks),
        "entries_shown": _mean([one.num_shown for one in each]),
        "bits_shown": _mean([one.shown_bits for one in each]),
        "bits_needed": _mean([one.bits for one in each]),
        "most_bits_needed": max(one.bits for one in each),
        "mean_ratio": _mean([one.ratio for one in each]),
        "least_ratio": min(one.ratio for one in each),
        "given_away_rate": _mean([one.is_given_away for one in each]),
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _lists_of(office: Office, steps: Sequence[RolloutStep]) -> list[ListName]:
    """The lists and notices that these steps show."""
    shown = (shown_list(office, Address.parse(step.path)) for step in steps)
    return list(dict.fromkeys(found[0] for found in shown if found is not None))


def _is_given_away(steps: Sequence[RolloutStep], value: str) -> bool:
    return any(value in step.action.arguments.model_dump().values() for step in steps)
