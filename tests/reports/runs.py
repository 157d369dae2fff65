"""Small run folders with real records and real pictures."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from factories import make_trajectory
from focusmem.files import write_whole
from focusmem.schemas import (
    AttentionMap,
    Environment,
    Episode,
    OfferedItem,
    Run,
    Screenshot,
    StepNotes,
    Task,
    Trajectory,
    dump_record,
    save_trajectory,
)

STARTED = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def write_run(folder: Path, episodes: list[tuple[Episode, "Attempt | None"]], **results: Any) -> Path:
    """A run folder of these episodes; figures only where some are given."""
    run = Run(
        run_id=folder.name,
        command=("focusmem", "lab", "evaluate"),
        status="finished",
        config={"seed": 0},
        environment=Environment(),
        started_at=STARTED,
        finished_at=STARTED,
        num_tasks=len(episodes),
    )
    write_whole(folder / "run.json", dump_record(run))
    if results:
        write_whole(folder / "results.json", json.dumps(results).encode())
    for episode, attempt in episodes:
        own = folder / "episodes" / episode.task.task_id
        write_whole(own / "episode.json", dump_record(episode))
        if attempt is not None:
            save_trajectory(own / "trajectory", *attempt)
    return folder


Attempt = tuple[Trajectory, dict[str, Screenshot]]


def make_task(number: int, **changes: Any) -> Task:
    values = {
        "task_id": f"task-{number}",
        "instruction": f"How much is mug number {number}?",
        "start_url": "https://shop.example/",
        "site": "shop.example",
        "answer": "12 euros",
    }
    return Task(**values | changes)


def make_episode(
    number: int, outcome: str = "success", *, num_steps: int = 3, attempt: Attempt | None = None, **changes: Any
) -> tuple[Episode, Attempt]:
    """An attempt at task `number`; equal numbers see equal pages and do equal things."""
    attempt = attempt or make_trajectory(num_steps, seed=number)
    notes = tuple(make_notes() for _ in attempt[0].steps)
    values = {
        "task": make_task(number),
        "method": "full",
        "outcome": outcome,
        "answer": "12 euros",
        "notes": notes,
        "seconds": 2.5,
    }
    return Episode(**values | changes), attempt


def make_notes(*offered: OfferedItem, **changes: Any) -> StepNotes:
    values = {
        "prompt": ("system: You act on web pages.", "user: Decide."),
        "offered": offered,
        "num_prompt_tokens": 600,
        "num_memory_tokens": sum(item.num_tokens for item in offered if item.is_accepted),
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
        "num_steps": len(trajectory.steps),
        "score": 0.83,
        "trust": 0.91 if is_accepted else 0.12,
        "is_accepted": is_accepted,
        "num_tokens": 8,
        "attention": maps,
    }
    return OfferedItem(**values | changes)


def with_action(attempt: Attempt, place: int, action: Any) -> Attempt:
    """The same attempt, but for what was done at one step."""
    trajectory, screenshots = attempt
    steps = list(trajectory.steps)
    steps[place] = steps[place].model_copy(update={"action": action})
    return trajectory.model_copy(update={"steps": tuple(steps)}), screenshots
