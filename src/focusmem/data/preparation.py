"""What training on one's own trajectories needs and no trained weight changes, worked out once and kept: which of them
are learnt from, what the bank has for each decision, and what the frozen policy says about each item.

<prepared>/prepared.json         what it was prepared for
<prepared>/chosen.json           which trajectories are learnt from, and why others are not
<prepared>/found/<id>.json       what the bank had for each decision of a trajectory
<prepared>/lessons/              what the teacher said about each item
"""

import json
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from focusmem.bank import Bank, LeakageGuard, Query
from focusmem.bank.embedder import Embedder, Moment
from focusmem.data.decisions import (
    DecisionsConfig,
    Found,
    FoundForTrajectory,
    TrajectoryDecisions,
    Words,
    steps_to_learn,
)
from focusmem.errors import ConfigError, StorageError, UserError
from focusmem.files import sha256_hex, write_whole
from focusmem.model.backbone import Backbone
from focusmem.progress import Progress
from focusmem.schemas import Record, StoredTrajectory, Task, Trajectory, dump_record, load_trajectory, parse_record
from focusmem.schemas.record import NonEmptyText, Text
from focusmem.seeds import derive_seed
from focusmem.training.batch import TrainingBatch
from focusmem.training.lessons import LessonStore
from focusmem.training.teacher import Teacher, TeacherConfig, TeacherCounts, lesson_store

_PREPARED, _CHOSEN, _FOUND, _LESSONS = "prepared.json", "chosen.json", "found", "lessons"


@dataclass(frozen=True, kw_only=True)
class OwnData:
    """What memory is to learn from, and what it must not know."""

    trajectories: Sequence[Path]
    """Their folders."""
    bank: Path
    evaluation: Sequence[Task] = ()
    """Tasks that it will be judged by: trajectories that could give one of them away are left out."""
    words: Words = field(default_factory=Words)
    min_steps: int = 8
    max_steps: int = 15
    takes_all_outcomes: bool = False
    """Whether failures are learnt from as well."""
    validation_share: float = 0.02
    """Of trajectories, how many are kept back for choosing the gate's threshold."""
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.min_steps <= self.max_steps:
            raise ConfigError(f"Trajectories of {self.min_steps} to {self.max_steps} steps cannot be chosen.")
        if not 0 <= self.validation_share < 1:
            raise ConfigError(f"OwnData.validation_share is {self.validation_share}; it must be in [0, 1).")

    def described(self, policy: Backbone, bank: Bank) -> dict[str, Any]:
        """Equal where the same is prepared for the same policy and bank."""
        tasks = [task.model_dump_json() for task in self.evaluation]
        return {
            "schema_version": 1,
            "policy": policy.identity().weights,
            "embedder": bank.manifest.embedder,
            "bank": sha256_hex(repr(bank.entries()).encode()),
            "trajectories": sha256_hex("\n".join(map(str, self.trajectories)).encode()),
            "evaluation": sha256_hex("\n".join(tasks).encode()),
            "steps": [self.min_steps, self.max_steps],
            "takes_all_outcomes": self.takes_all_outcomes,
        }


class Chosen(Record):
    """Which trajectories are learnt from."""

    schema_version: Literal[1] = 1
    trajectory_ids: tuple[NonEmptyText, ...]
    unusable: dict[Text, Text]
    """Those that could not be read, by id or folder, and why."""
    num_left_out: dict[Text, int]
    """By reason."""
    removed_by: dict[Text, tuple[Text, ...]]
    """By each key of the leakage guard, those that share it with the bank or an evaluation task."""

    def __str__(self) -> str:
        reasons = {**self.num_left_out, "unusable": len(self.unusable)}
        reasons |= {f"same {key} as the bank or an evaluation task": len(ids) for key, ids in self.removed_by.items()}
        told = ", ".join(f"{reason} {num}" for reason, num in reasons.items() if num)
        return f"{len(self.trajectory_ids)} trajectories to learn from{f'; left out: {told}' if told else ''}."


@dataclass(frozen=True)
class Prepared:
    """All that training needs besides weights."""

    folder: Path
    chosen: Chosen
    found: tuple[FoundForTrajectory, ...]
    validation: tuple[FoundForTrajectory, ...]
    sites: dict[str, str]
    """Of the bank's trajectories."""
    taught: TeacherCounts | None = None
    """What the teacher did in this call."""

    def lessons(self, policy: Backbone, words: Words) -> LessonStore:
        return lesson_store(self.folder / _LESSONS, policy, _teacher_config(words))


def prepare(
    policy: Backbone, embedder: Callable[[], Embedder], data: OwnData, folder: Path, *, has_lessons: bool = True
) -> Prepared:
    """Choose, find and teach, going on where it was stopped. The embedder is loaded only where something is missing."""
    bank = Bank.open(data.bank)
    described = data.described(policy, bank)
    path = folder / _PREPARED
    if path.exists() and _stored(path) != described:
        raise ConfigError(f"{folder} was prepared for another policy, bank or data; choose another folder.")
    if not (folder / _CHOSEN).exists():
        choosing = _choose(data, bank)
        write_whole(path, json.dumps(described, indent=2).encode())
        write_whole(folder / _CHOSEN, dump_record(_find_all(embedder, bank, choosing, folder)))
    prepared = load_prepared(policy, data, folder)
    if not has_lessons:
        return prepared
    teacher = Teacher(policy, folder / _LESSONS, _teacher_config(data.words))
    source = TrajectoryDecisions(
        prepared.found, bank.folder, prepared.sites, data.words, DecisionsConfig(negative_share=0.0)
    )
    return replace(prepared, taught=teacher.prepare(_ToTeach(source)))


def load_prepared(policy: Backbone, data: OwnData, folder: Path) -> Prepared:
    """What `prepare` left; refused where it was for something else, or has not come to its end."""
    path = folder / _CHOSEN
    if not path.exists():
        raise StorageError(f"{folder} is not prepared, or not to the end; prepare it first, in one process.")
    bank = Bank.open(data.bank)
    if _stored(folder / _PREPARED) != data.described(policy, bank):
        raise ConfigError(f"{folder} was prepared for another policy, bank or data; choose another folder.")
    chosen = parse_record(Chosen, path.read_bytes(), str(path))
    split: dict[bool, list[FoundForTrajectory]] = {False: [], True: []}
    for name in chosen.trajectory_ids:
        draw = random.Random(derive_seed(data.seed, "validation", name)).random()
        split[draw < data.validation_share].append(_read_found(_found_path(folder, name)))
    sites = {entry.trajectory_id: entry.site for entry in bank.entries()}
    return Prepared(folder, chosen, tuple(split[False]), tuple(split[True]), sites)


def _teacher_config(words: Words) -> TeacherConfig:
    """Other words may leave the questions as they are."""
    own = words.prompts and words.prompts / "questions"
    return TeacherConfig(prompts=own if own and own.is_dir() else None)


@dataclass(frozen=True)
class _ToTeach:
    """`TrainingData` without decisions: what the teacher is to speak about, a trajectory at a time."""

    source: TrajectoryDecisions

    @property
    def num_batches(self) -> int:
        return self.source.num_trajectories

    def batch(self, number: int) -> TrainingBatch:
        return self.source.to_teach(number)


@dataclass(frozen=True)
class _Choosing:
    folders: dict[str, Path]
    """Of those that are learnt from, by id."""
    unusable: dict[str, str]
    num_left_out: Counter[str]
    removed_by: dict[str, tuple[str, ...]]

    def without(self, unusable: Mapping[str, str]) -> Chosen:
        """What is left when these turned out to be unusable, too."""
        chosen = Chosen(
            trajectory_ids=tuple(name for name in self.folders if name not in unusable),
            unusable={**self.unusable, **unusable},
            num_left_out=dict(self.num_left_out),
            removed_by=self.removed_by,
        )
        if not chosen.trajectory_ids:
            raise ConfigError(f"There is nothing to learn from: {chosen}")
        return chosen


def _choose(data: OwnData, bank: Bank) -> _Choosing:
    records: dict[str, tuple[Path, Trajectory]] = {}
    unusable: dict[str, str] = {}
    num_left_out: Counter[str] = Counter()
    with Progress("choose", total=len(data.trajectories)) as line:
        for folder in data.trajectories:
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
    guard = LeakageGuard(bank.folder.catalogue())
    screened = guard.screen([record for _, record in records.values()], [*known, *data.evaluation])
    removed = {key: screened.removed.ids(key) for key in screened.removed.num_by_key}
    kept = {record.trajectory_id: records[record.trajectory_id][0] for record in screened.kept}
    choosing = _Choosing(kept, unusable, num_left_out, {str(key): ids for key, ids in removed.items() if ids})
    choosing.without({})  # before anything is written
    return choosing


def _reason_against(data: OwnData, record: Trajectory) -> str | None:
    if record.outcome != "success" and not data.takes_all_outcomes:
        return "not a success"
    if len(record.steps) < data.min_steps:
        return f"fewer than {data.min_steps} steps"
    if len(record.steps) > data.max_steps:
        return f"more than {data.max_steps} steps"
    return None if steps_to_learn(record.steps) else "nothing done that worked"


def _find_all(embedder: Callable[[], Embedder], bank: Bank, choosing: _Choosing, folder: Path) -> Chosen:
    """Search the bank at every decision of what was chosen. What cannot be read after all is left out and named."""
    missing = [name for name in choosing.folders if not _found_path(folder, name).exists()]
    unusable: dict[str, str] = {}
    if missing:
        model = embedder()
        bank.check_embedder(model.identity)
        done = len(choosing.folders) - len(missing)
        with Progress("find", total=len(choosing.folders), start=done) as line:
            for name in missing:
                own = choosing.folders[name]
                try:
                    found = _find(model, bank, load_trajectory(own), own)
                except UserError as error:
                    unusable[name] = str(error)
                    line.step(failed=True)
                    continue
                write_whole(_found_path(folder, name), dump_record(found))
                line.step()
    return choosing.without(unusable)


def _find(embedder: Embedder, bank: Bank, stored: StoredTrajectory, folder: Path) -> FoundForTrajectory:
    record = stored.trajectory
    places = steps_to_learn(record.steps)
    moments = [
        Moment.of(record, record.steps[:at], stored.screenshots, stored.screenshots[record.steps[at].screenshot.sha256])
        for at in places
    ]
    query = Query.of(record)
    decisions = []
    for at, vector_D in zip(places, embedder.embed_queries(moments), strict=True):
        hits = bank.search(vector_D, query).hits
        decisions.append(Found(step=at, hits=tuple((hit.trajectory_id, hit.score) for hit in hits)))
    return FoundForTrajectory(folder=str(folder), site=record.site, decisions=tuple(decisions))


def _found_path(folder: Path, trajectory_id: str) -> Path:
    return folder / _FOUND / f"{trajectory_id}.json"


def _read_found(path: Path) -> FoundForTrajectory:
    try:
        return parse_record(FoundForTrajectory, path.read_bytes(), str(path))
    except OSError as error:
        raise StorageError(f"Could not read {path}: {error.strerror}. Prepare again in another folder.") from error


def _stored(path: Path) -> dict[str, Any]:
    try:
        stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StorageError(f"Could not read {path}: {error}") from error
    return stored
