"""Chooses the trajectories that a memory learns from, and says why the others are left out."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from focusmem.bank.base import StoredBank
from focusmem.bank.leakage import LeakageGuard
from focusmem.data.config import DataConfig
from focusmem.errors import ConfigError, UserError
from focusmem.progress import Progress
from focusmem.schemas import Record, Step, Task, Trajectory, find_trajectories, load_trajectory
from focusmem.schemas.record import NonEmptyText, Text


class Chosen(Record):
    """The result of choosing: the trajectories that are learnt from, and why the others are not."""

    schema_version: Literal[1] = 1
    trajectory_ids: tuple[NonEmptyText, ...]
    unusable: dict[Text, Text]
    """Trajectories that could not be read, by id or folder, and why."""
    num_left_out: dict[Text, int]
    """Number of trajectories that were left out, by reason."""
    removed_by: dict[Text, tuple[Text, ...]]
    """Trajectories that share a key of the leakage guard with the bank or with an evaluation task, by that key."""

    def __str__(self) -> str:
        reasons = {**self.num_left_out, "unusable": len(self.unusable)}
        reasons |= {f"same {key} as the bank or an evaluation task": len(ids) for key, ids in self.removed_by.items()}
        told = ", ".join(f"{reason} {num}" for reason, num in reasons.items() if num)
        return f"{len(self.trajectory_ids)} trajectories to learn from{f'; left out: {told}' if told else ''}."


@dataclass(frozen=True)
class Choosing:
    """A choice from which trajectories may still be removed, if they turn out to be unusable."""

    folders: Mapping[str, Path]
    """The folders of the chosen trajectories, by id."""
    chosen: Chosen

    def without(self, unusable: Mapping[str, str]) -> Chosen:
        """The choice without these trajectories, which have turned out to be unusable."""
        names = tuple(name for name in self.folders if name not in unusable)
        found = self.chosen.model_copy(
            update={"trajectory_ids": names, "unusable": {**self.chosen.unusable, **unusable}}
        )
        if not names:
            raise ConfigError(f"There is nothing to learn from: {found}")
        return found


def steps_to_learn(steps: Sequence[Step]) -> list[int]:
    """The steps whose action worked. Mistakes are shown to the policy, but not taught."""
    return [number for number, step in enumerate(steps) if step.action is not None and step.error is None]


def trajectory_folders(data: DataConfig) -> list[Path]:
    return [folder.resolve() for path in data.trajectories for folder in find_trajectories(path)]


def choose(data: DataConfig, bank: StoredBank, evaluation: Sequence[Task]) -> Choosing:
    """Chooses the trajectories that have the wanted outcome and length and that give away no task of the bank or of the
    evaluation.
    """
    records: dict[str, tuple[Path, Trajectory]] = {}
    unusable: dict[str, str] = {}
    num_left_out: Counter[str] = Counter()
    folders = trajectory_folders(data)
    with Progress("choose", total=len(folders)) as line:
        for folder in folders:
            try:
                record = load_trajectory(folder).trajectory
            except UserError as error:
                unusable[str(folder)] = str(error)
                line.step(failed=True)
                continue
            name, reason = record.trajectory_id, _reason_against(data, record)
            if reason:
                num_left_out[reason] += 1
            elif name in records:
                unusable[str(folder)] = f"There is another trajectory {name}, in {records[name][0]}."
            else:
                records[name] = folder, record
            line.step()
    known = [bank.load(entry.trajectory_id).trajectory for entry in bank.entries()]
    screened = LeakageGuard(bank.catalogue()).screen([record for _, record in records.values()], [*known, *evaluation])
    removed = {str(key): screened.removed.ids(key) for key in screened.removed.num_by_key}
    kept = {record.trajectory_id: records[record.trajectory_id][0] for record in screened.kept}
    chosen = Chosen(
        trajectory_ids=tuple(kept),
        unusable=unusable,
        num_left_out=dict(num_left_out),
        removed_by={key: ids for key, ids in removed.items() if ids},
    )
    choosing = Choosing(kept, chosen)
    choosing.without({})  # raises if nothing is left, before anything is written
    return choosing


def _reason_against(data: DataConfig, record: Trajectory) -> str | None:
    if data.outcomes is not None and record.outcome not in data.outcomes:
        return f"outcome {record.outcome}"
    if len(record.steps) < data.min_steps:
        return f"fewer than {data.min_steps} steps"
    if len(record.steps) > data.max_steps:
        return f"more than {data.max_steps} steps"
    return None if steps_to_learn(record.steps) else "no action that worked"
