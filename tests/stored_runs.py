"""Run folders for tests, written from records in the layout that `schemas/run_folder.py` describes."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from factories import make_trajectory
from focusmem.files import sha256_hex, write_whole
from focusmem.schemas import (
    AttentionMap,
    Closing,
    Consultation,
    Environment,
    Episode,
    FrozenSubset,
    JudgeReply,
    Manifest,
    OfferedItem,
    Run,
    RunFolder,
    Screenshot,
    StepNotes,
    Task,
    Trajectory,
    Verdict,
    dump_record,
    run_name,
    save_trajectory,
)
from focusmem.schemas.run_folder import task_folder

STARTED = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)

Recording = tuple[Trajectory, dict[str, Screenshot]]


class Finished(NamedTuple):
    """A finished attempt, before it is stored."""

    episode: Episode
    verdict: Verdict
    recording: Recording | None
    """None if no step was taken."""


def make_task(number: int, **changes: Any) -> Task:
    values = {
        "task_id": f"shop/task-{number}",
        "instruction": f"How much is mug number {number}?",
        "start_url": "https://shop.example/",
        "site": "shop.example",
        "answer": "12 euros",
    }
    return Task(**values | changes)


def make_finished(
    number: int,
    outcome: str = "success",
    *,
    num_steps: int = 3,
    recording: Recording | None = None,
    verdict: dict[str, Any] | None = None,
    **changes: Any,
) -> Finished:
    """A finished attempt at task `number`. Equal numbers see equal pages and do equal things.

    The outcome `blocked` is an error that is marked as a block; `verdict` and `changes` replace fields of the records.
    """
    recording = recording or make_trajectory(num_steps, seed=number)
    is_blocked = outcome == "blocked"
    values = {
        "task": make_task(number),
        "trajectory_id": recording[0].trajectory_id,
        "method": "full",
        "answer": "12 euros",
        "notes": tuple(make_notes() for _ in recording[0].steps),
        "is_blocked": is_blocked,
        "seconds": 2.5,
    }
    episode = Episode(**values | changes)
    if not episode.notes:
        episode, recording = episode.model_copy(update={"trajectory_id": None}), None
    told = {"outcome": "error" if is_blocked else outcome, "reason": f"It was a {outcome}.", "judge": "exact answer"}
    return Finished(episode, Verdict(task_id=episode.task.task_id, **told | (verdict or {})), recording)


def make_consultation(text: str, *, model: str = "a model", departures: tuple[str, ...] = ()) -> Consultation:
    """A judge model's single reply."""
    reply = JudgeReply(part="verdict", text=text, prompt="0" * 64)
    return Consultation(model=model, prompts="1" * 64, departures=departures, replies=(reply,))


def make_notes(*offered: OfferedItem, **changes: Any) -> StepNotes:
    values = {
        "prompt": ("system: You act on web pages.", "user: Decide."),
        "offered": offered,
        "num_prompt_tokens": 600,
        "num_memory_tokens": sum(item.num_tokens for item in offered if item.is_accepted),
        "wall_s": 0.6,
        "seconds": {"observe": 0.1, "reply": 0.4},
    }
    return StepNotes(**values | changes)


def make_offer(trajectory: Trajectory, *, rank: int = 0, is_accepted: bool = True, **changes: Any) -> OfferedItem:
    """The whole trajectory, with attention in one corner of each of its screenshots."""
    maps = tuple(
        AttentionMap(screenshot=step.screenshot, num_rows=2, num_columns=3, weights=(0.3, 0.01, 0, 0, 0, 0))
        for step in trajectory.steps
    )
    values = {
        "role": "episodic",
        "rank": rank,
        "trajectory_id": trajectory.trajectory_id,
        "source": trajectory.source,
        "num_steps": len(trajectory.steps),
        "score": 0.83,
        "trust_logit": 2.3 if is_accepted else -2.0,
        "threshold_logit": 0.5,
        "is_accepted": is_accepted,
        "num_tokens": 8,
        "attention": maps,
    }
    return OfferedItem(**values | changes)


def with_action(recording: Recording, place: int, action: Any) -> Recording:
    """The same recording with another action at one step."""
    trajectory, screenshots = recording
    steps = list(trajectory.steps)
    steps[place] = steps[place].model_copy(update={"action": action})
    return trajectory.model_copy(update={"steps": tuple(steps)}), screenshots


def with_closing(recording: Recording, screenshot: Screenshot, url: str | None = None) -> Recording:
    """The same recording with a look at what the last action led to."""
    trajectory, screenshots = recording
    closing = Closing(screenshot=screenshot.ref(), url=url)
    return trajectory.model_copy(update={"closing": closing}), {**screenshots, screenshot.digest: screenshot}


@patch("os.fsync", new=lambda handle: None)  # no test needs these files after a crash
def write_run(
    folder: Path,
    finished: Sequence[Finished],
    *,
    tasks: Sequence[Task] | None = None,
    kinds: dict[str, str | None] | None = None,
    num_attempts: int | None = None,
    results: dict[str, Any] | None = None,
    status: str = "finished",
) -> Path:
    """The frozen set is that of the finished attempts unless `tasks` and `num_attempts` name a larger one."""
    own = {one.episode.task.task_id: one.episode.task for one in finished}
    tasks = list(own.values()) if tasks is None else tasks
    num_attempts = num_attempts or max((one.episode.attempt for one in finished), default=1)
    key = sha256_hex(folder.name.encode())[:8]
    run = Run(
        run_id=run_name(folder),
        key=key,
        command=("focusmem", "run", "tasks.jsonl"),
        status=status,
        config={"seed": 0},
        started_at=STARTED,
        finished_at=None if status == "running" else STARTED,
        num_tasks=len(tasks),
    )
    write_whole(folder / "run.json", dump_record(run))
    write_whole(folder / "environment.json", dump_record(Environment(packages={"torch": "2.13"})))
    subset = FrozenSubset.of(tasks, revision="r1")
    manifest = Manifest.of("shop", tasks, kinds or {}, num_attempts=num_attempts, subset=subset)
    write_whole(folder / "tasks.json", dump_record(manifest))
    if results is not None:
        write_whole(folder / "results.json", json.dumps(results).encode())
    for one in finished:
        _write_finished(RunFolder(folder), key, one)
    return folder


def _write_finished(folder: RunFolder, key: str, finished: Finished) -> None:
    episode, verdict, recording = finished
    task, place = episode.task, folder.place(episode.task.task_id, episode.attempt)
    if recording is not None:
        trajectory_id = f"{key}-{task_folder(task.task_id)}-{episode.attempt}"
        episode = episode.model_copy(update={"trajectory_id": trajectory_id})
        changes = {"trajectory_id": trajectory_id, "task_id": task.task_id, "outcome": "not_judged"}
        save_trajectory(place / "trajectory", recording[0].model_copy(update=changes), recording[1])
    write_whole(place / "verdict.json", dump_record(verdict))
    write_whole(place / "episode.json", dump_record(episode))


def store_outcomes(
    folder: Path,
    outcomes: Sequence[Any],
    *,
    num_steps: Sequence[int] | None = None,
    kinds: Sequence[str] | None = None,
    method: str = "full",
    num_attempts: int | None = None,
) -> Path:
    """A run of task 0, task 1 and so on with these outcomes; None for a task that was not attempted.

    A list of outcomes holds the attempts at one task.
    """
    finished = []
    for number, own in enumerate(outcomes):
        for attempt, outcome in enumerate(own if isinstance(own, list) else [own], start=1):
            notes = (make_notes(),) * (3 if num_steps is None else num_steps[number])
            if outcome is not None:
                finished.append(make_finished(number, outcome, attempt=attempt, notes=notes, method=method))
    tasks = [make_task(number) for number in range(len(outcomes))]
    kind_of = {} if kinds is None else {task.task_id: kind for task, kind in zip(tasks, kinds, strict=True)}
    return write_run(folder, finished, tasks=tasks, kinds=kind_of, num_attempts=num_attempts)
