"""Writes the folder of a run, episode by episode, so that a run that was killed can be resumed.

`schemas/run_folder.py` describes the folder. A file is written whole or not at all.
"""

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from focusmem.agent.live_episode import LiveEpisode
from focusmem.errors import ConfigError, StorageError
from focusmem.files import FolderLock, is_safe_name, remove_folder, sha256_hex, write_whole
from focusmem.schemas import (
    Conditions,
    Environment,
    Episode,
    Manifest,
    Preparation,
    Run,
    RunFolder,
    StoredEpisode,
    StoredTrajectory,
    Verdict,
    dump_record,
    save_trajectory,
)
from focusmem.schemas.run_folder import (
    AUDIT_FILE,
    ENVIRONMENT_FILE,
    EPISODE_FILE,
    PREPARATION_FILE,
    RECALLED_FOLDER,
    RUN_FILE,
    TASKS_FILE,
    TRAJECTORY_FOLDER,
    VERDICT_FILE,
    VERDICTS_FOLDER,
    task_folder,
)
from focusmem.schemas.screening import Audit
from focusmem.settings import flattened

_NUM_DIFFERENCES_SHOWN = 4


class RunStore:
    """`folder` reads what this object writes."""

    def __init__(self, path: Path) -> None:
        self.path, self.folder = path, RunFolder(path)
        self._lock = FolderLock(
            path, f"Another process is at work on the run in {path}; wait for its end, or choose another --out."
        )

    # Run

    def begin(self, run: Run, manifest: Manifest, environment: Environment, *, may_differ: Sequence[str] = ()) -> None:
        """Starts a run, or resumes the one in the folder, which must have the same settings and tasks.

        `may_differ` names settings, or whole rooms of settings, that are not compared. The folder stays locked until
        `end` or `let_go`. Worker processes that take a part of the run do not begin it.
        """
        self._lock.take()
        try:
            self._begin(run, manifest, environment, may_differ)
        except BaseException:
            self._lock.let_go()
            raise

    def _begin(self, run: Run, manifest: Manifest, environment: Environment, may_differ: Sequence[str]) -> None:
        if (self.path / RUN_FILE).exists():
            stored = self.folder.run()
            self._check_same(run, stored, manifest, may_differ)
            run = run.model_copy(update={"key": stored.key, "started_at": stored.started_at})
        else:
            run = run.model_copy(update={"key": secrets.token_hex(4)})
        self._clear_remains()
        write_whole(self.path / TASKS_FILE, dump_record(manifest))
        write_whole(self.path / ENVIRONMENT_FILE, dump_record(environment))
        write_whole(self.path / RUN_FILE, dump_record(run))

    def _check_same(self, run: Run, stored: Run, manifest: Manifest, may_differ: Sequence[str]) -> None:
        ours, theirs = flattened(run.config), flattened(stored.config)
        names = [name for name in sorted({*ours, *theirs}) if ours.get(name) != theirs.get(name)]
        names = [name for name in names if not any(f"{name}.".startswith(f"{free}.") for free in may_differ)]
        if not names:
            if self.folder.manifest().has_same_tasks(manifest):
                return
            raise ConfigError(
                f"{self.path} holds a run of other tasks: the suite has changed since. Choose another --out."
            )
        shown = names[:_NUM_DIFFERENCES_SHOWN]
        differences = [f"{name} is {theirs.get(name)!r:.60} there and {ours.get(name)!r:.60} here" for name in shown]
        more = f", and {len(names) - len(shown)} more differ" if len(names) > len(shown) else ""
        raise ConfigError(
            f"{self.path} holds a run with other settings ({'; '.join(differences)}{more}). Use the same settings to "
            "resume it, or choose another --out."
        )

    def end(self, problem: str | None = None) -> None:
        """Records that the run finished, or why it failed, and unlocks the folder."""
        status = "finished" if problem is None else "failed"
        run = self.folder.run()
        ended = run.model_copy(update={"status": status, "finished_at": datetime.now(UTC), "error": problem})
        write_whole(self.path / RUN_FILE, dump_record(ended))
        self.let_go()

    def keep_preparation(self, preparation: Preparation) -> None:
        """Records what was done before the first episode."""
        write_whole(self.path / PREPARATION_FILE, dump_record(preparation))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Locks the folder to change a run that is not being executed."""
        with self._lock:
            yield

    def let_go(self) -> None:
        """Unlocks the folder, whether or not the run has ended."""
        self._lock.let_go()

    def _clear_remains(self) -> None:
        """Removes the half-written files of a killed run, which have the hidden names that `files` gives them."""
        for pattern in (".*", "episodes/.*", "episodes/*/.*", "episodes/*/*/.*", "recalled/.*"):
            for path in self.path.glob(pattern):
                if path.suffix in (".partial", ".old"):
                    remove_folder(path)

    # Episodes

    def save(
        self, live: LiveEpisode, verdict: Verdict, *, method: str, source: str, conditions: Conditions | None = None
    ) -> None:
        """Writes the trajectory first, and last the record that marks the attempt as finished."""
        task, place = live.task, self.folder.place(live.task.task_id, live.attempt)
        name = trajectory_name(self.folder.run().key, task.task_id, live.attempt) if live.steps else None
        if name is None:  # a run that was killed may have left an earlier trajectory
            remove_folder(place / TRAJECTORY_FOLDER)
        else:
            trajectory = task.trajectory(name, live.steps, outcome=verdict.outcome, source=source, closing=live.closing)
            save_trajectory(place / TRAJECTORY_FOLDER, trajectory, live.screenshots, replace=True)
        episode = Episode(
            task=task,
            attempt=live.attempt,
            trajectory_id=name,
            method=method,
            answer=live.answer,
            reward=live.reward,
            error=live.error,
            is_blocked=live.is_blocked,
            num_broken=live.num_broken,
            notes=tuple(live.notes),
            seconds=live.seconds,
            conditions=conditions,
        )
        write_whole(place / VERDICT_FILE, dump_record(verdict))
        write_whole(place / EPISODE_FILE, dump_record(episode))

    def keep_verdict(self, stored: StoredEpisode, key: str, verdict: Verdict) -> None:
        """Writes a verdict beside the one that counts. `key` names the judge."""
        write_whole(stored.folder / VERDICTS_FOLDER / f"{key}.json", dump_record(verdict))

    def keep_audit(self, stored: StoredEpisode, audit: Audit) -> None:
        write_whole(stored.folder / AUDIT_FILE, dump_record(audit))

    def replace_verdict(self, stored: StoredEpisode, verdict: Verdict) -> None:
        """Writes the new verdict of a finished attempt. A verdict of another judge model that counted before is kept
        beside it.
        """
        earlier = stored.verdict
        if earlier.consultation is not None and earlier.key != verdict.key:
            self.keep_verdict(stored, earlier.key, earlier)
        write_whole(stored.folder / VERDICT_FILE, dump_record(verdict))
        found = stored.trajectory()
        if found is not None and found.trajectory.outcome != verdict.outcome:
            judged = found.trajectory.model_copy(update={"outcome": verdict.outcome})
            save_trajectory(stored.folder / TRAJECTORY_FOLDER, judged, found.screenshots, replace=True)

    def keep_recalled(self, name: str, stored: StoredTrajectory) -> None:
        """Stores a trajectory that memory offered, once per run. People who read the run can look at it."""
        place = self.path / RECALLED_FOLDER / name
        if place.exists():
            return
        try:
            save_trajectory(place, stored.trajectory, stored.screenshots)
        except StorageError:
            if not place.exists():  # otherwise another process of this run has stored it
                raise


def trajectory_name(key: str, task_id: str, attempt: int) -> str:
    """The id of an attempt's trajectory: unique across attempts, tasks and runs, so that one bank can hold all."""
    name = f"{task_folder(task_id)}.{attempt}.{key}"
    return name if is_safe_name(name) else f"{sha256_hex(task_id.encode())[:32]}.{attempt}.{key}"
