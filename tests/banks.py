"""A small embedder, trajectories and runs for tests of the bank; light enough for processes of their own."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from factories import make_trajectory
from focusmem.bank.forms import Moment
from focusmem.errors import ConfigError
from focusmem.files import sha256_hex, write_whole
from focusmem.schemas import (
    Annotations,
    Episode,
    LeftOut,
    Manifest,
    Outcome,
    Run,
    RunFolder,
    StoredTrajectory,
    Task,
    Verdict,
    dump_record,
    save_trajectory,
)

KINDS = (
    "How much is the {}?",
    "Where is the {} made?",
    "Compare the {} with its neighbours",
    "List the colours of the {}",
    "Buy the {} for me",
)


class WordEmbedder:
    """The sum of a vector for each word of the instruction: alike in words is alike in direction."""

    def __init__(self, identity: str = "words-1", width: int = 96) -> None:
        self.identity, self.width = identity, width
        self.num_embedded = 0

    def embed_trajectories(self, items: Sequence[StoredTrajectory]) -> np.ndarray:
        for item in items:
            if "unembeddable" in item.trajectory.instruction:
                raise ConfigError("This trajectory cannot be embedded.")
        self.num_embedded += len(items)
        return np.stack([self.vector(item.trajectory.instruction) for item in items])

    def embed_queries(self, moments: Sequence[Moment]) -> np.ndarray:
        return np.stack([self.vector(moment.instruction) for moment in moments])

    def left_out_of_query(self, moment: Moment) -> LeftOut:
        return LeftOut()

    def left_out_of_trajectory(self, item: StoredTrajectory) -> LeftOut:
        """All screenshots but one: it does not look at them, but banks should record something."""
        return LeftOut(num_frames=len(item.trajectory.steps) - 1)

    def vector(self, text: str) -> np.ndarray:
        words = re.findall(r"\w+", text.lower()) or [""]
        total = np.sum([self._word(word) for word in words], axis=0)
        return (total / np.linalg.norm(total)).astype(np.float32)

    def _word(self, word: str) -> np.ndarray:
        seed = int(sha256_hex(f"{self.identity} {word}".encode())[:16], 16)
        return np.random.default_rng(seed).standard_normal(self.width)


def make_stored(number: int = 0, *, num_steps: int = 2, **changes) -> StoredTrajectory:
    """Each of its own task, instance and (for the first five) kind of wording."""
    trajectory, screenshots = make_trajectory(num_steps, number)
    thing = f"thing{chr(97 + number % 26)}{chr(97 + number // 26 % 26)}"
    values = {
        "instruction": KINDS[number % len(KINDS)].format(thing),
        "annotations": Annotations(instance=thing, template=f"{KINDS[number % len(KINDS)]}, wording {number}"),
    }
    return StoredTrajectory(trajectory.model_copy(update=values | changes), screenshots)


def make_many(num: int, start: int = 0, *, num_steps: int = 2) -> list[StoredTrajectory]:
    return [make_stored(number, num_steps=num_steps) for number in range(start, start + num)]


def ids_of(items: Sequence[StoredTrajectory]) -> list[str]:
    return [item.trajectory.trajectory_id for item in items]


def make_run(folder: Path, outcomes: dict[tuple[int, int], Outcome], *, key: str, start: int = 0) -> Path:
    """A run with these outcomes by task number and attempt. An attempt that ended in an error has no step.

    For each task that was won, the run keeps a trajectory that memory offered.
    """
    num_tasks = 1 + max(number for number, _ in outcomes)
    tasks = [
        Task(task_id=f"shop/{number}", instruction=f"Buy thing {number}", start_url="", site="shop.example")
        for number in range(num_tasks)
    ]
    num_attempts = max(attempt for _, attempt in outcomes)
    run = Run(run_id=folder.name, key=key, command=(), status="running", config={}, started_at=datetime.now(UTC))
    write_whole(folder / "run.json", dump_record(run))
    write_whole(folder / "tasks.json", dump_record(Manifest.of("shop", tasks, {}, num_attempts=num_attempts)))
    for (number, attempt), outcome in outcomes.items():
        place = RunFolder(folder).place(f"shop/{number}", attempt)
        name = None if outcome == "error" else f"{number}.{attempt}.{key}"
        if name is not None:
            # As a killed run leaves it: judged again, but its trajectory does not say so yet.
            stored = make_stored(start + number, trajectory_id=name, task_id=f"shop/{number}", outcome="not_judged")
            save_trajectory(place / "trajectory", stored.trajectory, stored.screenshots)
        verdict = Verdict(task_id=f"shop/{number}", outcome=outcome, reason="so it was", judge="test")
        episode = Episode(task=tasks[number], attempt=attempt, trajectory_id=name, method="none")
        write_whole(place / "verdict.json", dump_record(verdict))
        write_whole(place / "episode.json", dump_record(episode))
        if outcome == "success":
            recalled = make_stored(700 + number)
            save_trajectory(folder / "recalled" / f"recalled-{number}", recalled.trajectory, recalled.screenshots)
    return folder
