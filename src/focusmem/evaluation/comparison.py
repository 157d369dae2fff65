"""Two runs over the same tasks, compared task by task.

Pairing removes what both runs share, above all the difficulty of each task, so a difference needs far fewer tasks than
two separate rates would.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from focusmem.errors import ConfigError
from focusmem.evaluation.metrics import by_task, figures, is_complete, is_rated
from focusmem.evaluation.screening import within
from focusmem.intervals import mean_interval, paired_interval
from focusmem.schemas import Manifest, Preparation, Run, RunFolder, StoredEpisode
from focusmem.schemas.screening import Screening


@dataclass(frozen=True)
class ReadRun:
    """A run whose finished episodes have been read."""

    path: Path
    manifest: Manifest
    episodes: Sequence[StoredEpisode]
    preparation: Preparation | None = None
    policy: str | None = None
    """The policy, if the run's settings name it."""

    @classmethod
    def read(cls, path: Path) -> Self:
        folder = RunFolder.open(path)
        return cls(path, folder.manifest(), folder.episodes(), folder.preparation(), _policy_of(folder.run()))

    def within(self, screening: Screening) -> Self:
        """The run reduced to a frozen subset of its suite."""
        manifest = within(self.manifest, screening, self.path)
        names = manifest.kind_of
        episodes = [one for one in self.episodes if one.episode.task.task_id in names]
        return replace(self, manifest=manifest, episodes=episodes)

    @property
    def method(self) -> str:
        """The agent's memory, as its episodes name it."""
        return self.episodes[0].episode.method if self.episodes else "unknown"

    @cached_property
    def figures(self) -> dict[str, Any]:
        return figures(self.manifest, self.episodes, self.preparation)


@dataclass(frozen=True)
class Pair:
    """A task that both runs attempted and judged, with all judged attempts."""

    first: Sequence[StoredEpisode]
    second: Sequence[StoredEpisode]
    kind: str | None = None

    @property
    def won(self) -> tuple[float, float]:
        """The share of attempts that each run won. An error or a block counts as not won."""
        return _mean(one.is_won for one in self.first), _mean(one.is_won for one in self.second)

    @property
    def steps(self) -> tuple[float, float] | None:
        """The mean number of steps of each run; None if either has no attempt that ended by itself."""
        counts = [[len(one.episode.notes) for one in own if is_complete(one)] for own in (self.first, self.second)]
        return (_mean(counts[0]), _mean(counts[1])) if all(counts) else None


def compare(first: Path, second: Path) -> dict[str, Any]:
    return compare_runs(ReadRun.read(first), ReadRun.read(second))


def compare_runs(first: ReadRun, second: ReadRun) -> dict[str, Any]:
    """Compares two runs. Differences are `first` minus `second`. A task that one run has not attempted or not judged is
    left out, and the number of such tasks is reported.
    """
    _check_same_tasks(first, second)
    attempts = [by_task(run.episodes) for run in (first, second)]
    counted = [by_task(one for one in run.episodes if one.outcome != "not_judged") for run in (first, second)]
    kind_of = first.manifest.kind_of
    attempted = [name for name in kind_of if all(name in own for own in attempts)]
    pairs = [
        Pair(counted[0][name], counted[1][name], kind_of[name])
        for name in attempted
        if all(name in own for own in counted)
    ]
    if not pairs or not all(is_rated(run.episodes) for run in (first, second)):
        raise ConfigError(f"{first.path} and {second.path} have no common task that was judged in both.")
    is_single = first.manifest.num_attempts == second.manifest.num_attempts == 1
    kinds = sorted({pair.kind for pair in pairs if pair.kind is not None})
    return {
        "first": _about(first),
        "second": _about(second),
        "num_tasks": len(kind_of),
        "num_not_attempted_by_both": len(kind_of) - len(attempted),
        "num_not_judged_in_both": len(attempted) - len(pairs),
        **difference(pairs, is_single=is_single),
        "by_kind": {
            kind: difference([pair for pair in pairs if pair.kind == kind], is_single=is_single) for kind in kinds
        },
    }


def difference(pairs: Sequence[Pair], *, is_single: bool) -> dict[str, Any]:
    """The mean difference and its interval. With one attempt at each task, the interval of the success difference is
    Tango's score interval, because a bootstrap is too narrow for few tasks and for runs that never differ. With several
    attempts, and for steps, the interval is a seeded bootstrap over tasks.
    """
    num, won = len(pairs), [pair.won for pair in pairs]
    gains = [first - second for first, second in won]
    num_first, num_second = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
    interval = paired_interval(num_first, num_second, num) if is_single else mean_interval(gains)
    steps = [pair.steps for pair in pairs if pair.steps is not None]
    more_steps = [first - second for first, second in steps]
    return {
        "num_pairs": num,
        "num_both_won": won.count((1, 1)),
        "num_first_better": num_first,
        "num_second_better": num_second,
        "num_both_lost": won.count((0, 0)),
        "success_rates": [_mean(own) for own in zip(*won, strict=True)],
        "success_difference": _mean(gains),
        "success_difference_interval": None if interval is None else list(interval),
        "mean_steps": [_mean(own) for own in zip(*steps, strict=True)] if steps else None,
        "steps_difference": _mean(more_steps) if steps else None,
        "steps_difference_interval": mean_interval(more_steps),
    }


def _about(run: ReadRun) -> dict[str, Any]:
    names = ("memory", "num_attempts", "num_failed", "num_errors", "num_blocked", "judges")
    return {"run": str(run.path)} | {name: run.figures[name] for name in names}


def _policy_of(run: Run) -> str | None:
    settings = run.config.get("settings")
    policy = settings.get("policy") if isinstance(settings, dict) else None
    name = policy.get("name") if isinstance(policy, dict) else None
    return name if isinstance(name, str) else None


def _check_same_tasks(first: ReadRun, second: ReadRun) -> None:
    if first.manifest.sha256 == second.manifest.sha256:
        return
    opening = f"{first.path} and {second.path} cannot be compared"
    own, other = (set(run.manifest.kind_of) for run in (first, second))
    if own == other:
        raise ConfigError(
            f"{opening}: their tasks have the same names, but differ in content or order. The tasks were changed "
            "between the runs, or come from different worlds."
        )
    raise ConfigError(
        f"{opening}: they are runs of different tasks. {len(own - other)} tasks are only in the first and "
        f"{len(other - own)} only in the second, for example {min(own ^ other)}."
    )


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)
