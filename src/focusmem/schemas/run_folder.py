"""The folder of a run, described once: what writes it, judges it, sums it up and shows it goes by this file.

<run>/run.json                                 what was run, with every setting
<run>/environment.json                         on which code and machine
<run>/tasks.json                               the frozen set of tasks
<run>/episodes/<task>/<attempt>/trajectory/    what was seen and done; missing when no step was taken
<run>/episodes/<task>/<attempt>/verdict.json   the judgement; it may be replaced later
<run>/episodes/<task>/<attempt>/episode.json   how it went; written last, so that its presence means finished
<run>/recalled/<trajectory>/                   trajectories that memory offered
<run>/results.json                             the figures
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self, TypeVar

from pydantic import Field, model_validator

from focusmem.errors import RecordError, StorageError
from focusmem.files import is_safe_name, read_plain_file, sha256_hex
from focusmem.schemas.episode import Episode
from focusmem.schemas.record import (
    MAX_DOCUMENT_BYTES,
    Digest,
    NonEmptyText,
    Record,
    RecordT,
    Text,
    dump_record,
    parse_record,
)
from focusmem.schemas.run import Run
from focusmem.schemas.task import Task
from focusmem.schemas.trajectory_folder import StoredTrajectory, load_trajectory
from focusmem.schemas.verdict import Outcome, Verdict

RUN_FILE = "run.json"
ENVIRONMENT_FILE = "environment.json"
TASKS_FILE = "tasks.json"
RESULTS_FILE = "results.json"
EPISODE_FILE = "episode.json"
VERDICT_FILE = "verdict.json"
EPISODES_FOLDER = "episodes"
TRAJECTORY_FOLDER = "trajectory"
RECALLED_FOLDER = "recalled"
MAX_ATTEMPTS = 10_000

ValueT = TypeVar("ValueT")


class ManifestTask(Record):
    task_id: NonEmptyText
    kind: Text | None = None
    """The group that reports sum it up in."""


class Manifest(Record):
    """Which tasks a run attempts, and how often each: the denominator of its success rate."""

    schema_version: Literal[1] = 1
    """Raised when the meaning of a field changes."""
    suite: NonEmptyText
    """Where the tasks come from."""
    sha256: Digest
    """Of the task records, in order: equal for equal tasks."""
    num_attempts: Annotated[int, Field(ge=1, le=MAX_ATTEMPTS)] = 1
    """Attempts at each task."""
    tasks: tuple[ManifestTask, ...]

    @model_validator(mode="after")
    def _has_different_tasks(self) -> Self:
        names = [task_folder(task.task_id) for task in self.tasks]
        if not names:
            raise ValueError("holds no task")
        if len(set(names)) != len(names):
            again = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"names a task twice: {again}")
        return self

    @classmethod
    def of(cls, suite: str, tasks: Sequence[Task], kind_of: Mapping[str, str | None], *, num_attempts: int = 1) -> Self:
        return cls(
            suite=suite,
            sha256=sha256_hex(b"".join(map(dump_record, tasks))),
            num_attempts=num_attempts,
            tasks=tuple(ManifestTask(task_id=task.task_id, kind=kind_of.get(task.task_id)) for task in tasks),
        )

    @property
    def kind_of(self) -> dict[str, str | None]:
        """Every task in order, with its kind where it has one."""
        return {task.task_id: task.kind for task in self.tasks}

    def attempts(self) -> Iterator[tuple[str, int]]:
        """Every attempt that the run is to make: a task and a number from one. First every task once."""
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
        """Whether it was won or lost; an error is the world's, and says nothing about the policy."""
        return self.outcome in ("success", "failure")

    @property
    def is_won(self) -> bool:
        return self.outcome == "success"

    def trajectory(self) -> StoredTrajectory | None:
        """What was seen and done; None where no step was taken."""
        if self.episode.trajectory_id is None:
            return None
        return load_trajectory(self.folder / TRAJECTORY_FOLDER)


class RunFolder:
    """Reads a run, finished or not."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def open(cls, path: Path) -> Self:
        """A run of tasks. Nothing but its presence is checked now."""
        for name in (RUN_FILE, TASKS_FILE):
            if not (path / name).is_file():
                raise StorageError(f"{path} is not the folder of a run: it has no {name}.")
        return cls(path)

    def run(self) -> Run:
        return self._record(Run, RUN_FILE)

    def manifest(self) -> Manifest:
        return self._record(Manifest, TASKS_FILE)

    def _record(self, cls: type[RecordT], name: str) -> RecordT:
        path = self.path / name
        return parse_record(cls, read_plain_file(path, MAX_DOCUMENT_BYTES), str(path))

    def place(self, task_id: str, attempt: int) -> Path:
        """The folder of an attempt."""
        return self.path / EPISODES_FOLDER / task_folder(task_id) / str(attempt)

    def is_finished(self, task_id: str, attempt: int) -> bool:
        return (self.place(task_id, attempt) / EPISODE_FILE).exists()

    def places(self, manifest: Manifest) -> list[Path]:
        """The folders of all finished attempts: task by task, and for each its attempts."""
        folders = (
            self.place(task.task_id, attempt)
            for task in manifest.tasks
            for attempt in range(1, manifest.num_attempts + 1)
        )
        return [folder for folder in folders if (folder / EPISODE_FILE).exists()]

    def episodes(self) -> list[StoredEpisode]:
        """All finished attempts, in the order of `places`; a damaged one is an error."""
        return [read_episode(folder) for folder in self.places(self.manifest())]

    def recalled(self, trajectory_id: str) -> Path | None:
        """Where a trajectory lies that memory offered, if it was kept. Its name comes from a record, so it is checked
        before it becomes a path.
        """
        if not is_safe_name(trajectory_id):
            return None
        folder = self.path / RECALLED_FOLDER / trajectory_id
        return folder if folder.is_dir() else None


def read_episode(folder: Path) -> StoredEpisode:
    """A finished attempt from its folder."""
    episode = _read(Episode, folder / EPISODE_FILE)
    verdict = _read(Verdict, folder / VERDICT_FILE)
    if verdict.task_id != episode.task.task_id:
        raise RecordError(f"{folder / VERDICT_FILE} judges the task {verdict.task_id}, not {episode.task.task_id}.")
    return StoredEpisode(episode, verdict, folder)


def _read(cls: type[RecordT], path: Path) -> RecordT:
    return parse_record(cls, read_plain_file(path, MAX_DOCUMENT_BYTES), str(path))


def is_run(path: Path) -> bool:
    return (path / RUN_FILE).is_file() and (path / EPISODES_FOLDER).is_dir()


def task_folder(task_id: str) -> str:
    """What a task's folder is called: its id without the suite's name where that can be a folder's, else a name made
    from it that is different for different ids.
    """
    own = task_id.partition("/")[2] or task_id
    return own if is_safe_name(own) else _made_safe(task_id)


def run_name(folder: Path) -> str:
    """What the run in a folder is called: as the folder is, made safe where that cannot be a name."""
    name = folder.resolve().name.encode(errors="backslashreplace").decode()
    return name if is_safe_name(name) else _made_safe(name)


def _made_safe(name: str) -> str:
    words = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:60]
    return f"{words or 'task'}-{sha256_hex(name.encode())[:12]}"
