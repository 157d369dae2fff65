"""A run on disk, read one episode at a time.

    <run>/run.json
    <run>/results.json                        figures; may be missing
    <run>/tasks.json                          the tasks in their order; may be missing
    <run>/episodes/<task>/episode.json
    <run>/episodes/<task>/trajectory/         missing when no step was taken
    <run>/recalled/<trajectory>/              what memory offered; some may be missing

What cannot be read is left out, and said in `problems`.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from focusmem.errors import RecordError, StorageError, UserError
from focusmem.files import is_safe_name, read_plain_file
from focusmem.schemas import Episode, Run, Screenshot, StoredTrajectory, Trajectory, load_trajectory, parse_record
from focusmem.schemas.record import MAX_DOCUMENT_BYTES, STRICT_DECODER

RUN_FILE = "run.json"
RESULTS_FILE = "results.json"
TASKS_FILE = "tasks.json"
EPISODE_FILE = "episode.json"
EPISODES_FOLDER = "episodes"
TRAJECTORY_FOLDER = "trajectory"
RECALLED_FOLDER = "recalled"


@dataclass(frozen=True, slots=True)
class StoredEpisode:
    episode: Episode
    trajectory: Trajectory | None
    """None when no step was taken."""
    screenshots: Mapping[str, Screenshot]
    """By digest, read when they are asked for."""


class RunFolder:
    def __init__(self, path: Path, run: Run, episode_folders: list[Path]) -> None:
        self.path, self.run = path, run
        self.problems: list[str] = []
        """What could not be read, a sentence for each; begins anew, and grows, when episodes are read."""
        self.num_skipped = 0
        """How many episodes could not be read."""
        self._episode_folders = episode_folders

    @classmethod
    def open(cls, path: Path) -> Self:
        """Only `run.json` is read now."""
        if not os.path.lexists(path / RUN_FILE):
            raise StorageError(f"{path} is not a run folder: there is no {RUN_FILE} in it.")
        run = parse_record(Run, read_plain_file(path / RUN_FILE, MAX_DOCUMENT_BYTES), str(path / RUN_FILE))
        folders = _episode_folders(path / EPISODES_FOLDER)
        if not folders:
            raise StorageError(f"{path} holds no episode: there is no {EPISODE_FILE} below {EPISODES_FOLDER}.")
        return cls(path, run, folders)

    @property
    def num_episodes(self) -> int:
        """Damaged ones included."""
        return len(self._episode_folders)

    def results(self) -> dict[str, Any]:
        """The figures the run left, none where it left none."""
        found = self._document(RESULTS_FILE, {})
        if isinstance(found, dict):
            return found
        self.problems.append(f"{self.path / RESULTS_FILE} should hold one JSON object, but it holds something else.")
        return {}

    def task_places(self) -> dict[str, int]:
        """Where each task stands in the run, by name; nothing where the run does not tell."""
        try:
            return {str(one["task_id"]): place for place, one in enumerate(self._document(TASKS_FILE, []))}
        except (TypeError, KeyError):
            self.problems.append(f"{self.path / TASKS_FILE} should hold a list of tasks, each with task_id.")
            return {}

    def _document(self, name: str, default: Any) -> Any:
        path = self.path / name
        if not os.path.lexists(path):
            return default
        try:
            return STRICT_DECODER.decode(read_plain_file(path, MAX_DOCUMENT_BYTES).decode())
        except (StorageError, ValueError, RecursionError) as error:
            # A JSON error's own message lacks the path.
            is_ours = isinstance(error, StorageError)
            self.problems.append(str(error) if is_ours else f"{path} is not valid JSON ({error}).")
            return default

    def episodes(self) -> Iterator[StoredEpisode | None]:
        """In the order of their folders, task-2 before task-10; None for one that cannot be read."""
        self.problems, self.num_skipped = [], 0
        for folder in self._episode_folders:
            try:
                yield _read_episode(folder)
            except UserError as error:
                self.num_skipped += 1
                self.problems.append(f"The episode in {folder.name} was skipped: {error}")
                yield None

    def recalled(self, trajectory_id: str) -> StoredTrajectory | None:
        """A trajectory that memory offered. The name comes from a record, so it is checked before it is a path."""
        if not is_safe_name(trajectory_id):
            return None
        folder = self.path / RECALLED_FOLDER / trajectory_id
        if not folder.is_dir():
            return None
        try:
            return load_trajectory(folder)
        except UserError as error:
            self.problems.append(str(error))
            return None


def _episode_folders(path: Path) -> list[Path]:
    found = []
    for folder, subfolders, files in os.walk(path):
        if EPISODE_FILE in files:
            found.append(Path(folder))
            subfolders.clear()
        # Hidden folders are unfinished ones.
        subfolders[:] = sorted((name for name in subfolders if not name.startswith(".")), key=_by_number)
    return found


def _by_number(name: str) -> list[str | int]:
    return [int(part) if place % 2 else part for place, part in enumerate(re.split(r"([0-9]+)", name))]


def _read_episode(folder: Path) -> StoredEpisode:
    path = folder / EPISODE_FILE
    episode = parse_record(Episode, read_plain_file(path, MAX_DOCUMENT_BYTES), str(path))
    if not os.path.lexists(folder / TRAJECTORY_FOLDER):
        if episode.notes:
            raise RecordError(f"{path} tells of {len(episode.notes)} steps, but there is no trajectory beside it.")
        return StoredEpisode(episode, None, {})
    stored = load_trajectory(folder / TRAJECTORY_FOLDER)
    return StoredEpisode(episode, stored.trajectory, stored.screenshots)


def plain_json(record: Run) -> dict[str, Any]:
    """A record as JSON has it."""
    plain: dict[str, Any] = json.loads(record.model_dump_json(exclude_none=True))
    return plain
