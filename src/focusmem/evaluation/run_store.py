"""A run's folder: written episode by episode, whole or not at all, so that it can be cut off anywhere and gone on with.

<run>/config.json  run.json  tasks.json     what is run, and which tasks
<run>/episodes/<task>/trajectory/           what was seen and done; missing when no step was taken
<run>/episodes/<task>/episode.json          how it went; written last, so that its presence means finished
<run>/results.json                          the figures
"""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from focusmem.agent.live_episode import LiveEpisode
from focusmem.errors import ConfigError, RecordError, StorageError
from focusmem.files import FolderLock, is_safe_name, read_plain_file, remove_folder, sha256_hex, write_whole
from focusmem.schemas import Episode, Outcome, Run, Task, dump_record, parse_record, save_trajectory
from focusmem.schemas.record import MAX_DOCUMENT_BYTES, STRICT_DECODER


class RunStore:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = FolderLock(
            folder, f"Another process is at work on the run in {folder}; wait for its end, or choose another --out."
        )

    # Writing

    def begin(self, run: Run, kind_of: Mapping[str, str | None], *, defaults: Mapping[str, Any] | None = None) -> None:
        """Start a run, or go on with the same one. `kind_of` names its tasks, each with its kind where it has one.

        `defaults` stand for settings that a folder from earlier times lacks. Until `end` or `let_go` nobody else can
        begin in the folder; processes that take a part of this run do not begin.
        """
        self._lock.take()
        try:
            self._begin(run, kind_of, defaults or {})
        except BaseException:
            self._lock.let_go()
            raise

    def _begin(self, run: Run, kind_of: Mapping[str, str | None], defaults: Mapping[str, Any]) -> None:
        path = self.folder / "config.json"
        if path.exists():
            self._check_same(run.config, {**defaults, **_read_json(path)})
        self._clear_remains()
        write_whole(path, json.dumps(run.config, indent=2).encode())
        tasks = [{"task_id": task_id, "kind": kind} for task_id, kind in kind_of.items()]
        write_whole(self.folder / "tasks.json", json.dumps(tasks, indent=1).encode())
        write_whole(self.folder / "run.json", dump_record(run))

    def _check_same(self, ours: Mapping[str, Any], stored: Mapping[str, Any]) -> None:
        names = [name for name in sorted({*ours, *stored}) if ours.get(name) != stored.get(name)]
        if not names:
            return
        told = [f"{name} is {stored.get(name)!r:.60} there and {ours.get(name)!r:.60} here" for name in names[:4]]
        more = f", and {len(names) - 4} more differ" if len(names) > 4 else ""
        raise ConfigError(
            f"{self.folder} holds a run with other settings ({'; '.join(told)}{more}). Give the same to go on with it, "
            "or choose another --out."
        )

    def end(self, run: Run, problem: str | None = None) -> None:
        """Put on record that a run came to its end, or why it did not."""
        status = "finished" if problem is None else "failed"
        ended = run.model_copy(update={"status": status, "finished_at": datetime.now(UTC), "error": problem})
        write_whole(self.folder / "run.json", dump_record(ended))
        self.let_go()

    def let_go(self) -> None:
        """Leave the folder to others, whether or not the run came to an end."""
        self._lock.let_go()

    def is_done(self, task: Task) -> bool:
        return (self.place(task.task_id) / "episode.json").exists()

    def save(self, live: LiveEpisode, outcome: Outcome, *, method: str, source: str) -> None:
        """The trajectory first, then the record that says the episode is finished."""
        task, place = live.task, self.place(live.task.task_id)
        if live.steps:
            trajectory = task.trajectory(folder_name(task.task_id), live.steps, outcome=outcome, source=source)
            save_trajectory(place / "trajectory", trajectory, live.screenshots, replace=True)
        else:  # a run that was killed may have left an earlier attempt's
            remove_folder(place / "trajectory")
        episode = Episode(
            task=task,
            method=method,
            outcome=outcome,
            answer=live.answer,
            error=live.error,
            is_blocked=live.is_blocked,
            notes=tuple(live.notes),
            seconds=live.seconds,
        )
        write_whole(place / "episode.json", dump_record(episode))

    def _clear_remains(self) -> None:
        """What a run that was killed had half written, under the hidden names that `files` gives such things."""
        for pattern in (".*", "episodes/.*", "episodes/*/.*", "recalled/.*"):
            for path in self.folder.glob(pattern):
                if path.suffix in (".partial", ".old"):
                    remove_folder(path)

    def place(self, task_id: str) -> Path:
        return self.folder / "episodes" / folder_name(task_id)

    # Reading

    def kind_of(self) -> dict[str, str | None]:
        """The run's tasks by name, finished or not, each with its kind where it has one."""
        path = self.folder / "tasks.json"
        if path.exists():
            tasks = _read_json(path)
            try:
                return {str(one["task_id"]): one["kind"] for one in tasks}
            except (TypeError, KeyError):
                raise RecordError(f"{path} should hold a list of tasks, each with task_id and kind.") from None
        found = sorted((self.folder / "episodes").glob("*/episode.json"))
        if not found:
            raise StorageError(f"{self.folder} is not a run: it holds neither tasks.json nor an episode.")
        return {_read_episode(place).task.task_id: None for place in found}

    def episodes(self, task_ids: Sequence[str]) -> list[Episode]:
        """Those that are finished, in this order."""
        paths = [self.place(task_id) / "episode.json" for task_id in task_ids]
        return [_read_episode(path) for path in paths if path.exists()]


def folder_name(task_id: str) -> str:
    """The task's own name where that can be a folder's; else one made from it, different for different names."""
    if is_safe_name(task_id):
        return task_id
    words = re.sub(r"[^A-Za-z0-9]+", "-", task_id).strip("-")[:60]
    return f"{words or 'task'}-{sha256_hex(task_id.encode())[:12]}"


def run_name(folder: Path) -> str:
    """What the run in a folder is called: as the folder is, made safe where that cannot be a name."""
    return folder_name(folder.resolve().name.encode(errors="backslashreplace").decode())


def _read_episode(path: Path) -> Episode:
    return parse_record(Episode, read_plain_file(path, MAX_DOCUMENT_BYTES), str(path))


def _read_json(path: Path) -> Any:
    try:
        return STRICT_DECODER.decode(read_plain_file(path, MAX_DOCUMENT_BYTES).decode())
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path} is not valid JSON ({error}).") from None
