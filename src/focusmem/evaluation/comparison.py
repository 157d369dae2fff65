"""Two runs over the same tasks, compared task by task.

Pairs take out what both runs share, above all how hard each task is, and so tell small differences from chance with far
fewer tasks than two separate rates would need.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from focusmem.errors import ConfigError
from focusmem.evaluation.metrics import is_judged
from focusmem.evaluation.run_store import RunStore
from focusmem.intervals import mean_interval, paired_interval
from focusmem.schemas import Episode


@dataclass(frozen=True)
class Pair:
    """A task that both runs attempted."""

    first: Episode
    second: Episode
    kind: str | None = None

    @property
    def is_judged(self) -> bool:
        return is_judged(self.first) and is_judged(self.second)

    @property
    def won(self) -> tuple[bool, bool]:
        return self.first.outcome == "success", self.second.outcome == "success"

    @property
    def steps_more(self) -> int:
        """How many more steps the first took."""
        return len(self.first.notes) - len(self.second.notes)


def compare(first: Path, second: Path) -> dict[str, Any]:
    """Differences are first minus second. Tasks that either run has not judged (an error, a site that refused, not done
    yet) are left out of both, and counted.
    """
    stores = RunStore(first), RunStore(second)
    kind_of = _same_tasks(*stores)
    episodes = [{one.task.task_id: one for one in store.episodes(list(kind_of))} for store in stores]
    found = [
        Pair(episodes[0][task_id], episodes[1][task_id], kind)
        for task_id, kind in kind_of.items()
        if task_id in episodes[0] and task_id in episodes[1]
    ]
    for pair in found:
        if pair.first.task != pair.second.task:
            raise ConfigError(
                f"The task {pair.first.task.task_id} is not the same in {first} and {second}: the runs took place in "
                "different worlds, or before and after the task was changed."
            )
    pairs = [pair for pair in found if pair.is_judged]
    if not pairs:
        raise ConfigError(f"{first} and {second} have no task in common that both have judged.")
    kinds = sorted({pair.kind for pair in pairs if pair.kind is not None})
    return {
        "first": {"run": str(first), "memory": pairs[0].first.method},
        "second": {"run": str(second), "memory": pairs[0].second.method},
        "num_tasks": len(kind_of),
        "num_not_attempted_by_both": len(kind_of) - len(found),
        "num_not_judged_in_both": len(found) - len(pairs),
        **difference(pairs),
        "by_kind": {kind: difference([pair for pair in pairs if pair.kind == kind]) for kind in kinds},
    }


def difference(pairs: Sequence[Pair]) -> dict[str, Any]:
    """The success interval is Tango's, since it stays honest with few tasks and with no loss at all, where resampling
    can only repeat what it saw; steps are no yes or no, so that theirs is a seeded bootstrap, and None for few pairs.
    """
    num = len(pairs)
    won = [pair.won for pair in pairs]
    num_first, num_second = won.count((True, False)), won.count((False, True))
    return {
        "num_pairs": num,
        "num_both_won": won.count((True, True)),
        "num_only_first_won": num_first,
        "num_only_second_won": num_second,
        "num_both_lost": won.count((False, False)),
        "success_rates": [sum(own) / num for own in zip(*won, strict=True)],
        "success_difference": (num_first - num_second) / num,
        "success_difference_interval": list(paired_interval(num_first, num_second, num)),
        "mean_steps": [
            sum(len(pair.first.notes) for pair in pairs) / num,
            sum(len(pair.second.notes) for pair in pairs) / num,
        ],
        "steps_difference": sum(pair.steps_more for pair in pairs) / num,
        "steps_difference_interval": mean_interval([pair.steps_more for pair in pairs]),
    }


def _same_tasks(first: RunStore, second: RunStore) -> dict[str, str | None]:
    one, other = first.kind_of(), second.kind_of()
    if one.keys() != other.keys():
        only = [sorted(one.keys() - other.keys()), sorted(other.keys() - one.keys())]
        example = next(name for names in only for name in names)
        raise ConfigError(
            f"{first.folder} and {second.folder} are runs of different tasks and cannot be compared: {len(only[0])} "
            f"stand only in the first, {len(only[1])} only in the second, for example {example}."
        )
    return {task_id: kind if kind is not None else other[task_id] for task_id, kind in one.items()}
