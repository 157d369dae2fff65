"""The folder of a run. The run store writes it; judges, metrics, reports and `bank add` read it.

<run>/run.json                                 the command and its settings
<run>/environment.json                         the code and the machine
<run>/tasks.json                               the frozen set of tasks
<run>/episodes/<task>/<attempt>/trajectory/    screenshots and actions; missing if no step was taken
<run>/episodes/<task>/<attempt>/verdict.json   the judgement that counts; it may be replaced later
<run>/episodes/<task>/<attempt>/verdicts/      judgements by each judge that judged again, a file for each
<run>/episodes/<task>/<attempt>/audit.json     whether a site stood in the agent's way, if the run was screened
<run>/episodes/<task>/<attempt>/episode.json   how the attempt went; written last, so its presence means finished
<run>/recalled/<trajectory>/                   trajectories that memory offered
<run>/results.json                             the figures
<run>/judging.json                             what each judge cost, and how far judges agree
<run>/screening.json                           the frozen subset, if the run was screened
<run>/import.json                              what was read and what was refused, if the run was imported
"""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from focusmem.errors import RecordError, StorageError
from focusmem.files import is_safe_name, read_plain_file, sha256_hex
from focusmem.schemas.episode import Count, Episode, Seconds
from focusmem.schemas.record import (
    MAX_DOCUMENT_BYTES,
    STRICT_DECODER,
    Digest,
    NonEmptyText,
    Record,
    RecordT,
    Text,
    TextMap,
    dump_record,
    parse_record,
)
from focusmem.schemas.run import Environment, Run
from focusmem.schemas.screening import Audit, Screening
from focusmem.schemas.task import Task
from focusmem.schemas.trajectory_folder import StoredTrajectory, load_trajectory
from focusmem.schemas.verdict import Outcome, Verdict

RUN_FILE = "run.json"
ENVIRONMENT_FILE = "environment.json"
TASKS_FILE = "tasks.json"
RESULTS_FILE = "results.json"
PREPARATION_FILE = "preparation.json"
EPISODE_FILE = "episode.json"
VERDICT_FILE = "verdict.json"
VERDICTS_FOLDER = "verdicts"
AUDIT_FILE = "audit.json"
JUDGING_FILE = "judging.json"
SCREENING_FILE = "screening.json"
IMPORT_FILE = "import.json"
EPISODES_FOLDER = "episodes"
TRAJECTORY_FOLDER = "trajectory"
RECALLED_FOLDER = "recalled"
MAX_ATTEMPTS = 10_000


class ManifestTask(Record):
    task_id: NonEmptyText
    kind: Text | None = None
    """The group in which reports sum up the task, if the suite has groups."""


class FrozenSubset(Record):
    """Which tasks of a data set were attempted, as exactly as another lab needs to repeat it."""

    sha256: Digest
    """The digest of ids, instructions as asked, moves of dates, and the revision. Hosts and judges do not count."""
    revision: Text | None = None
    """The version of the data set."""
    num_days: int | None = None
    """By how many days dates were moved; absent if they were not."""
    left_out: TextMap = Field(default_factory=dict)
    """Tasks of the data set that cannot be attempted, by id, each with the reason."""

    @classmethod
    def of(
        cls, tasks: Sequence[Task], *, revision: str | None = None, left_out: Mapping[str, str] | None = None
    ) -> Self:
        moves = {task.date_shift.num_days for task in tasks if task.date_shift is not None}
        asked = [[task.task_id, task.instruction, task.date_shift and task.date_shift.num_days] for task in tasks]
        return cls(
            sha256=sha256_hex(json.dumps([revision, asked]).encode()),
            revision=revision,
            num_days=max(moves, default=None),
            left_out=dict(left_out or {}),
        )


class Manifest(Record):
    """The tasks of a run and the number of attempts at each: the denominator of its success rate."""

    schema_version: Literal[1] = 1
    """Increased when the meaning of a field changes."""
    suite: NonEmptyText
    """The name of the suite that the tasks come from."""
    sha256: Digest
    """The digest of the task records in order. Equal tasks have equal digests."""
    num_attempts: Annotated[int, Field(ge=1, le=MAX_ATTEMPTS)] = 1
    """Attempts at each task."""
    tasks: tuple[ManifestTask, ...]
    subset: FrozenSubset | None = None
    """The tasks as another lab would repeat them; absent in runs of earlier versions."""

    @model_validator(mode="after")
    def _has_different_tasks(self) -> Self:
        if not self.tasks:
            raise ValueError("holds no task")
        id_of: dict[str, str] = {}
        for task in self.tasks:
            folder = task_folder(task.task_id)
            if folder in id_of:
                raise ValueError(f"holds {id_of[folder]} and {task.task_id}, which would share the folder {folder}")
            id_of[folder] = task.task_id
        return self

    @classmethod
    def of(
        cls,
        suite: str,
        tasks: Sequence[Task],
        kind_of: Mapping[str, str | None],
        *,
        num_attempts: int = 1,
        subset: FrozenSubset | None = None,
    ) -> Self:
        return cls(
            suite=suite,
            subset=subset,
            sha256=sha256_hex(b"".join(map(dump_record, tasks))),
            num_attempts=num_attempts,
            tasks=tuple(ManifestTask(task_id=task.task_id, kind=kind_of.get(task.task_id)) for task in tasks),
        )

    def has_same_tasks(self, other: Self) -> bool:
        """Whether two runs attempt the same tasks equally often."""
        return self.model_copy(update={"subset": None}) == other.model_copy(update={"subset": None})

    @property
    def kind_of(self) -> dict[str, str | None]:
        """Every task in order, with its kind if it has one."""
        return {task.task_id: task.kind for task in self.tasks}

    def attempts(self) -> Iterator[tuple[str, int]]:
        """Every attempt of the run, as a task and a number from one: first every task once, then every task again."""
        for attempt in range(1, self.num_attempts + 1):
            for task in self.tasks:
                yield task.task_id, attempt


@dataclass(frozen=True)
class StoredEpisode:
    """A finished attempt at a task."""

    episode: Episode
    verdict: Verdict
    folder: Path

    @property
    def outcome(self) -> Outcome:
        return self.verdict.outcome

    @property
    def is_judged(self) -> bool:
        """Whether the attempt is a success or a failure. An error is due to the world and says nothing about the
        policy.
        """
        return self.outcome in ("success", "failure")

    @property
    def is_won(self) -> bool:
        return self.outcome == "success"

    def verdicts(self) -> dict[str, Verdict]:
        """The verdict of each judge by its key, the one that counts included."""
        folder = self.folder / VERDICTS_FOLDER
        paths = sorted(folder.glob("*.json")) if folder.is_dir() else []
        verdicts = {path.stem: _read(Verdict, path) for path in paths}
        return {self.verdict.key: self.verdict, **verdicts} if self.verdict.key not in verdicts else verdicts

    def audit(self) -> Audit | None:
        """Whether a site stood in the agent's way; None if the attempt was not audited."""
        path = self.folder / AUDIT_FILE
        return _read(Audit, path) if path.exists() else None

    def trajectory(self) -> StoredTrajectory | None:
        """The trajectory, with the outcome of the current verdict; None if no step was taken."""
        trajectory_id = self.episode.trajectory_id
        if trajectory_id is None:
            if self.episode.notes:
                raise RecordError(
                    f"{self.folder / EPISODE_FILE} has {len(self.episode.notes)} steps but no trajectory."
                )
            return None
        stored = load_trajectory(self.folder / TRAJECTORY_FOLDER)
        if stored.trajectory.trajectory_id != trajectory_id:
            raise RecordError(
                f"{self.folder} holds the trajectory {stored.trajectory.trajectory_id}, but its episode belongs to "
                f"{trajectory_id}."
            )
        return replace(stored, trajectory=stored.trajectory.model_copy(update={"outcome": self.outcome}))


class Preparation(Record):
    """The work of a run before its first episode. A resumed run adds up the work of each start."""

    schema_version: Literal[1] = 1
    """Increased when the meaning of a field changes."""
    num_items: Count = 0
    """Trajectories of the bank that memory may find."""
    num_encoded: Count = 0
    """How many of them were encoded for this run."""
    num_cached: Count = 0
    """How many were in the cache already."""
    num_left_out: Count = 0
    """How many had no room in the cache; each is encoded when a search first finds it."""
    num_failed: Count = 0
    """How many could not be read."""
    encode_s: Seconds = 0.0
    """Seconds that encoding took."""
    warm_up_s: Seconds = 0.0
    """Seconds that the first use of all parts took, with a decision on an empty page."""

    @property
    def num_ready(self) -> int:
        """How many items are encoded, so that no decision has to encode them."""
        return self.num_items - self.num_left_out - self.num_failed

    def after(self, earlier: Self | None) -> Self:
        """The preparation of a run that was resumed."""
        if earlier is None:
            return self
        return self.model_copy(
            update={
                "num_encoded": self.num_encoded + earlier.num_encoded,
                "encode_s": self.encode_s + earlier.encode_s,
                "warm_up_s": self.warm_up_s + earlier.warm_up_s,
            }
        )


class RunFolder:
    """Reads a run, whether finished or not."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def open(cls, path: Path) -> Self:
        """Checks only that the folder belongs to a run; its files are read on request."""
        for name in (RUN_FILE, TASKS_FILE):
            if not os.path.lexists(path / name):
                raise StorageError(f"{path} is not the folder of a run: it has no {name}.")
        return cls(path)

    def run(self) -> Run:
        return self._record(Run, RUN_FILE)

    def manifest(self) -> Manifest:
        return self._record(Manifest, TASKS_FILE)

    def environment(self) -> Environment:
        return self._record(Environment, ENVIRONMENT_FILE)

    def preparation(self) -> Preparation | None:
        """None if the run did nothing before its first episode."""
        is_there = os.path.lexists(self.path / PREPARATION_FILE)
        return self._record(Preparation, PREPARATION_FILE) if is_there else None

    def results(self) -> dict[str, Any] | None:
        """The figures that were last stored; None if there are none."""
        path = self.path / RESULTS_FILE
        if not os.path.lexists(path):
            return None
        try:
            results = STRICT_DECODER.decode(read_plain_file(path, MAX_DOCUMENT_BYTES).decode())
        except (ValueError, RecursionError) as error:
            raise RecordError(f"{path} is not valid JSON ({error}).") from None
        if not isinstance(results, dict):
            raise RecordError(f"{path} should hold one JSON object, but it holds something else.")
        return results

    def screening(self) -> Screening | None:
        """The frozen subset; None if the run was not screened."""
        is_there = os.path.lexists(self.path / SCREENING_FILE)
        return self._record(Screening, SCREENING_FILE) if is_there else None

    def _record(self, cls: type[RecordT], name: str) -> RecordT:
        return _read(cls, self.path / name)

    def place(self, task_id: str, attempt: int) -> Path:
        """The folder of an attempt."""
        return self.path / EPISODES_FOLDER / task_folder(task_id) / str(attempt)

    def is_finished(self, task_id: str, attempt: int) -> bool:
        return (self.place(task_id, attempt) / EPISODE_FILE).exists()

    def places(self, manifest: Manifest) -> list[Path]:
        """The folders of all finished attempts, task by task."""
        folders = (
            self.place(task.task_id, attempt)
            for task in manifest.tasks
            for attempt in range(1, manifest.num_attempts + 1)
        )
        return [folder for folder in folders if (folder / EPISODE_FILE).exists()]

    def episodes(self) -> list[StoredEpisode]:
        """All finished attempts, in the order of `places`. A damaged one raises an error."""
        return [read_episode(folder) for folder in self.places(self.manifest())]

    def recalled(self, trajectory_id: str) -> Path | None:
        """The folder of a trajectory that memory offered; None if it was not kept.

        The id comes from a record, so it is checked before it becomes a path.
        """
        if not is_safe_name(trajectory_id):
            return None
        folder = self.path / RECALLED_FOLDER / trajectory_id
        return folder if folder.is_dir() else None


def read_episode(folder: Path) -> StoredEpisode:
    """A finished attempt from its folder."""
    episode = _read(Episode, folder / EPISODE_FILE)
    verdict = _read(Verdict, folder / VERDICT_FILE)
    if folder.parts[-2:] != (task_folder(episode.task.task_id), str(episode.attempt)):
        raise RecordError(
            f"{folder / EPISODE_FILE} records attempt {episode.attempt} at {episode.task.task_id}, which belongs in "
            "another folder."
        )
    if verdict.task_id != episode.task.task_id:
        raise RecordError(f"{folder / VERDICT_FILE} judges the task {verdict.task_id}, not {episode.task.task_id}.")
    return StoredEpisode(episode, verdict, folder)


def _read(cls: type[RecordT], path: Path) -> RecordT:
    return parse_record(cls, read_plain_file(path, MAX_DOCUMENT_BYTES), str(path))


def is_run(path: Path) -> bool:
    """Whether a path is the folder of a run of tasks."""
    return (path / RUN_FILE).is_file() and (path / TASKS_FILE).is_file()


def task_folder(task_id: str) -> str:
    """The name of a task's folder: its id without the suite's name, or a name made from the id if that is not safe."""
    name = task_id.partition("/")[2] or task_id
    return name if is_safe_name(name) else _made_safe(task_id)


def run_name(folder: Path) -> str:
    """The name of the run in a folder: the folder's name, made safe if necessary."""
    name = folder.resolve().name.encode(errors="backslashreplace").decode()
    return name if is_safe_name(name) else _made_safe(name)


def _made_safe(name: str) -> str:
    words = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:60]
    return f"{words or 'task'}-{sha256_hex(name.encode())[:12]}"
