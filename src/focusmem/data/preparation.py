"""Prepares training on stored trajectories. Everything that depends on no trained weight is computed once and stored.

<prepared>/prepared.json         what it was prepared for
<prepared>/chosen.json           which trajectories are learnt from, and why the others are not
<prepared>/found/<id>.json       what the bank has for each decision of a trajectory
<prepared>/lessons/              what the teacher says about each item
"""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from focusmem.bank.base import StoredBank
from focusmem.bank.embedder import Embedder
from focusmem.bank.opening import open_bank
from focusmem.bank.trust import sources_to_search
from focusmem.data.choosing import Chosen, choose, trajectory_folders
from focusmem.data.config import DataConfig
from focusmem.data.decisions import TrajectoryDecisions
from focusmem.data.finding import FoundForTrajectory, find_all, read_found
from focusmem.errors import ConfigError, StorageError
from focusmem.files import sha256_hex, write_whole
from focusmem.model.backbone import Backbone
from focusmem.schemas import Task, dump_record, parse_record
from focusmem.seeds import derive_seed
from focusmem.training.batch import TrainingBatch
from focusmem.training.lessons import LessonStore
from focusmem.training.teacher import Teacher, TeacherConfig, TeacherCounts, lesson_store

_PREPARED, _CHOSEN, _LESSONS = "prepared.json", "chosen.json", "lessons"


@dataclass(frozen=True)
class Prepared:
    """Everything that training needs besides weights."""

    folder: Path
    chosen: Chosen
    found: tuple[FoundForTrajectory, ...]
    validation: tuple[FoundForTrajectory, ...]
    sites: dict[str, str]
    """The site of each trajectory of the bank that may be searched, by id."""
    taught: TeacherCounts | None = None
    """What the teacher did in this call, as counts."""

    def lessons(self, policy: Backbone, data: DataConfig) -> LessonStore:
        return lesson_store(self.folder / _LESSONS, policy, _teacher_config(data))


def prepare(
    policy: Backbone,
    embedder: Callable[[], Embedder],
    data: DataConfig,
    folder: Path,
    *,
    evaluation: Sequence[Task] = (),
    has_lessons: bool = True,
) -> Prepared:
    """Chooses trajectories, searches the bank and asks the teacher, or resumes doing so. Trajectories that could give
    away a task of `evaluation` are left out. The embedder is loaded only if something is missing.
    """
    if not (folder / _CHOSEN).exists():
        bank = open_bank(data.bank_folder)
        sources_to_search(bank, only_trusted=data.only_trusted)  # raises before anything is loaded
        described = _described(policy, data, bank, evaluation)
        _check(described, folder)
        choosing = choose(data, bank, evaluation)
        write_whole(folder / _PREPARED, json.dumps(described, indent=2).encode())
        write_whole(folder / _CHOSEN, dump_record(find_all(embedder, bank, data, choosing, folder)))
    prepared = load_prepared(policy, data, folder, evaluation=evaluation)
    if not has_lessons:
        return prepared
    teacher = Teacher(policy, folder / _LESSONS, _teacher_config(data))
    source = TrajectoryDecisions(prepared.found, replace(data, negative_share=0.0), prepared.sites)
    return replace(prepared, taught=teacher.prepare(_ToTeach(source)))


def load_prepared(policy: Backbone, data: DataConfig, folder: Path, *, evaluation: Sequence[Task] = ()) -> Prepared:
    """Loads what `prepare` has stored. Raises an error if the folder was prepared for other settings, or is not
    finished.
    """
    path = folder / _CHOSEN
    if not path.exists():
        raise StorageError(f"{folder} is not prepared completely; prepare it first, in one process.")
    bank = open_bank(data.bank_folder)
    _check(_described(policy, data, bank, evaluation), folder)
    chosen = parse_record(Chosen, path.read_bytes(), str(path))
    split: dict[bool, list[FoundForTrajectory]] = {False: [], True: []}
    for name in chosen.trajectory_ids:
        draw = random.Random(derive_seed(data.seed, "validation", name)).random()
        split[draw < data.validation_share].append(read_found(folder, name))
    sources = sources_to_search(bank, only_trusted=data.only_trusted)
    sites = {entry.trajectory_id: entry.site for entry in bank.entries() if sources is None or entry.source in sources}
    return Prepared(folder, chosen, tuple(split[False]), tuple(split[True]), sites)


def _described(policy: Backbone, data: DataConfig, bank: StoredBank, evaluation: Sequence[Task]) -> dict[str, Any]:
    """A description that is equal for preparations of the same data with the same policy and bank."""
    folders, tasks = trajectory_folders(data), [task.model_dump_json() for task in evaluation]
    return {
        "schema_version": 1,
        "policy": policy.identity().weights,
        "embedder": bank.embedder,
        "bank": sha256_hex(repr(bank.entries()).encode()),
        "trajectories": sha256_hex("\n".join(map(str, folders)).encode()),
        "evaluation": sha256_hex("\n".join(tasks).encode()),
        "outcomes": [list(outcomes or ()) for outcomes in (data.outcomes, data.bank_outcomes)],
        "steps": [data.min_steps, data.max_steps],
        "num_found": data.use.num_episodic,
        "num_recent": data.use.num_recent,
        "trusted_sources": list(bank.trusted_sources) if data.only_trusted else None,
    }


def _check(described: dict[str, Any], folder: Path) -> None:
    path = folder / _PREPARED
    if path.exists() and _stored(path) != described:
        raise ConfigError(f"{folder} was prepared for another policy, bank or data; choose another folder.")


def _teacher_config(data: DataConfig) -> TeacherConfig:
    """The teacher's config. A folder of wording may lack the questions; the teacher then uses our own."""
    questions = data.wording("questions")
    return TeacherConfig(prompts=questions if questions and questions.is_dir() else None)


@dataclass(frozen=True)
class _ToTeach:
    """`TrainingData` without decisions: the items that the teacher is asked about, one trajectory per batch."""

    source: TrajectoryDecisions

    @property
    def num_batches(self) -> int:
        return self.source.num_trajectories

    def batch(self, number: int) -> TrainingBatch:
        return self.source.to_teach(number)


def _stored(path: Path) -> dict[str, Any]:
    try:
        stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StorageError(f"Could not read {path}: {error}") from error
    return stored
