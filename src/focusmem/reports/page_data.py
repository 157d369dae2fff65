"""Converts runs to plain JSON for the page: a small index that the page reads at once, and episodes that it reads when
they are shown.
"""

import math
from collections.abc import Callable, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

from focusmem.errors import StorageError, UserError
from focusmem.reports.pictures import Pictures
from focusmem.schemas import (
    AttentionMap,
    Manifest,
    OfferedItem,
    Record,
    RunFolder,
    Step,
    StepNotes,
    StoredEpisode,
    StoredTrajectory,
    load_trajectory,
    read_episode,
)
from focusmem.schemas.screenshot import ScreenshotRef

LEVELS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
"""The letters of a heat map, one per visual token, from dark to bright."""

ValueT = TypeVar("ValueT")

Watcher: TypeAlias = Callable[[bool], None]
"""Called after each episode, with True if it could be read."""

CountFigures: TypeAlias = Callable[[Manifest, Sequence[StoredEpisode]], dict[str, Any]]
"""Computes the figures of a run that has stored none."""


def no_figures(manifest: Manifest, episodes: Sequence[StoredEpisode]) -> dict[str, Any]:
    return {}


class PageData:
    """Everything a page shows. Damaged episodes are skipped and named."""

    def __init__(
        self,
        runs: Sequence[RunFolder],
        watch: Watcher = lambda is_read: None,
        *,
        labels: Sequence[str] | None = None,
        count_figures: CountFigures = no_figures,
    ) -> None:
        """`labels` name the runs; otherwise their methods and folders do."""
        self._watch, self._count_figures = watch, count_figures
        self.pictures = Pictures.none()
        self.problems: list[str] = []
        """A sentence for each file that could not be read."""
        self.num_skipped = 0
        """Episodes that could not be read."""
        self.recalled: list[dict[str, Any]] = []
        """Trajectories that memory offered; offered items name them by their index here."""
        self._recalled_places: dict[tuple[int, str], int | None] = {}
        self.episodes: list[list[dict[str, Any]]] = []
        """The episodes of each run, task by task."""
        names: Sequence[str | None] = labels or [None] * len(runs)
        about = [self._run(place, folder, name) for place, (folder, name) in enumerate(zip(runs, names, strict=True))]
        self.problems += self.pictures.missing.values()
        self.index: dict[str, Any] = {"runs": about, "rows": rows_of(self.episodes), "problems": self.problems}
        """The data of the list and the header."""

    def _run(self, place: int, folder: RunFolder, label: str | None) -> dict[str, Any]:
        """Reads the episodes of a run; returns the data about the run."""
        run, manifest, stored_episodes = folder.run(), folder.manifest(), []
        self.episodes.append([])
        places = folder.places(manifest)
        if not places:
            raise StorageError(f"{folder.path} has no finished episode.")
        for episode_folder in places:
            read = self._read(episode_folder)
            self._watch(read is not None)
            if read is not None:
                stored_episodes.append(read[0])
                self.episodes[place].append(self._episode(place, folder, *read))
        if not stored_episodes:
            raise StorageError(f"No episode of {folder.path} can be read. {self.problems[-1]}")
        method = stored_episodes[0].episode.method
        results = self._optional(folder.results) if run.status == "finished" else None
        environment = self._optional(folder.environment)
        return {
            "run_id": run.run_id,
            "label": label or method,
            "folder": None if label or run.run_id == method else run.run_id,
            "figures": results if results is not None else self._count_figures(manifest, stored_episodes),
            "record": plain_json(run),
            "environment": None if environment is None else plain_json(environment),
        }

    def _read(self, folder: Path) -> tuple[StoredEpisode, StoredTrajectory | None] | None:
        try:
            stored = read_episode(folder)
            return stored, stored.trajectory()
        except UserError as error:
            self.num_skipped += 1
            self.problems.append(f"The episode in {folder.parent.name}/{folder.name} was skipped: {error}")
            return None

    def _optional(self, read: Callable[[], ValueT]) -> ValueT | None:
        try:
            return read()
        except UserError as error:
            self.problems.append(str(error))
            return None

    def _episode(
        self, place: int, folder: RunFolder, stored: StoredEpisode, recording: StoredTrajectory | None
    ) -> dict[str, Any]:
        episode, trajectory = stored.episode, recording and recording.trajectory
        closing = trajectory and trajectory.closing
        if recording is not None:
            for digest in recording.screenshots:
                self.pictures.add(digest, recording.screenshots)
        texts: dict[str, int] = {}
        steps = [
            self._step(place, folder, step, notes or StepNotes(), texts)
            for step, notes in zip_longest(trajectory.steps if trajectory else (), episode.notes)
            if step is not None  # notes without a step cannot be shown
        ]
        return {
            "task": episode.task.model_dump(mode="json", exclude_none=True),
            "attempt": episode.attempt,
            "method": episode.method,
            "state": "blocked" if episode.is_blocked else stored.outcome,
            "verdict": plain_json(stored.verdict),
            "num_broken": episode.num_broken,
            "hit_max": len(steps) >= episode.task.max_steps,
            "answer": episode.answer,
            "error": episode.error,
            "seconds": episode.seconds,
            "steps": steps,
            "closing": closing and {**picture_of(closing.screenshot), "url": closing.url},
            "texts": list(texts),
        }

    def _step(
        self, place: int, folder: RunFolder, step: Step, notes: StepNotes, texts: dict[str, int]
    ) -> dict[str, Any]:
        return {
            **seen_and_done(step),
            "reply": step.reply,
            # Turns recur in every step, so a step names them by their index in the episode's texts.
            "prompt": [texts.setdefault(text, len(texts)) for text in notes.prompt],
            "offered": [self._offered(place, folder, item) for item in notes.offered],
            "num_removed": notes.num_removed,
            "left_out": notes.left_out and plain_json(notes.left_out),
            "num_prompt_tokens": notes.num_prompt_tokens,
            "num_memory_tokens": notes.num_memory_tokens,
            "is_repeat": notes.is_repeat,
            "wall_s": notes.wall_s,
            "num_together": notes.num_together,
            "seconds": {part: round(seconds, 4) for part, seconds in notes.seconds.items()},
        }

    def _offered(self, place: int, folder: RunFolder, item: OfferedItem) -> dict[str, Any]:
        plain = item.model_dump(mode="json", exclude={"attention"})
        source = self._place_of(place, folder, item.trajectory_id) if item.trajectory_id is not None else None
        return {**plain, "recalled": source, "maps": heat_maps(item.attention)}

    def _place_of(self, place: int, run: RunFolder, trajectory_id: str) -> int | None:
        key = (place, trajectory_id)
        if key not in self._recalled_places:
            folder = run.recalled(trajectory_id)
            stored = None if folder is None else self._optional(lambda: load_trajectory(folder))
            self._recalled_places[key] = None if stored is None else self._keep(stored)
        return self._recalled_places[key]

    def _keep(self, stored: StoredTrajectory) -> int:
        trajectory = stored.trajectory
        for step in trajectory.steps:
            self.pictures.add(step.screenshot.sha256, stored.screenshots)
        plain = {
            "trajectory_id": trajectory.trajectory_id,
            "instruction": trajectory.instruction,
            "outcome": trajectory.outcome,
            "steps": [seen_and_done(step) for step in trajectory.steps],
        }
        if plain not in self.recalled:  # two runs often share a bank
            self.recalled.append(plain)
        return self.recalled.index(plain)


def plain_json(record: Record) -> dict[str, Any]:
    plain: dict[str, Any] = record.model_dump(mode="json", exclude_none=True)
    return plain


def picture_of(ref: ScreenshotRef) -> dict[str, Any]:
    return {"picture": ref.sha256, "size": [ref.width, ref.height]}


def seen_and_done(step: Step) -> dict[str, Any]:
    """The data that is the same for a step of an episode and a step of a recalled trajectory."""
    shot = step.screenshot
    point = step.click_point and [step.click_point[0] / shot.width, step.click_point[1] / shot.height]
    return {
        **picture_of(shot),
        "point": point and [round(min(share, 1.0), 4) for share in point],
        "action": step.action and step.action.model_dump(mode="json", exclude_none=True),
        "url": step.url,
        "error": step.error,
    }


def heat_maps(attention: Sequence[AttentionMap]) -> list[dict[str, Any]]:
    """Heat maps whose brightness is the square root of the weight, relative to the item's largest, so that weak
    attention is visible.
    """
    peak = max((max(looked.weights) for looked in attention), default=0.0)
    return [
        {
            **picture_of(looked.screenshot),
            "num_rows": looked.num_rows,
            "num_columns": looked.num_columns,
            "share": round(math.fsum(looked.weights), 4),
            "levels": "".join(_level(weight, peak) for weight in looked.weights),
        }
        for looked in attention
    ]


def _level(weight: float, peak: float) -> str:
    return LEVELS[round(math.sqrt(weight / peak) * (len(LEVELS) - 1))] if peak else LEVELS[0]


# Two runs side by side


def rows_of(episodes: Sequence[Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """A row for each attempt at each task, in the order of the first run. A row holds the episode of each run that made
    this attempt.
    """
    places: dict[tuple[str, int], list[int | None]] = {}
    for run, own in enumerate(episodes):
        for place, episode in enumerate(own):
            key = (episode["task"]["task_id"], episode["attempt"])
            places.setdefault(key, [None] * len(episodes))[run] = place
    has_attempts = any(attempt > 1 for _, attempt in places)
    return [_row(episodes, row, has_attempts=has_attempts) for row in places.values()]


def _row(
    episodes: Sequence[Sequence[dict[str, Any]]], places: list[int | None], *, has_attempts: bool
) -> dict[str, Any]:
    row = [None if place is None else episodes[run][place] for run, place in enumerate(places)]
    present = [episode for episode in row if episode is not None]
    task = present[0]["task"]
    return {
        "task_id": task["task_id"],
        "attempt": present[0]["attempt"] if has_attempts else None,
        "instruction": task["instruction"],
        "site": task["site"],
        "episodes": places,
        "states": [episode and episode["state"] for episode in row],
        "answers": [episode and episode["answer"] for episode in row],
        "num_steps": [episode and len(episode["steps"]) for episode in row],
        "has_closing": [episode is not None and episode["closing"] is not None for episode in row],
        "divergence": first_divergence(present[0]["steps"], present[1]["steps"]) if len(present) == 2 else None,
    }


def first_divergence(first: Sequence[dict[str, Any]], second: Sequence[dict[str, Any]]) -> int | None:
    """The first step whose actions differ, or that only one episode has. The reasoning of an action is not compared.
    Replies that are not actions are compared as text.
    """
    for place, (one, other) in enumerate(zip_longest(first, second)):
        if one is None or other is None or _decision(one) != _decision(other):
            return place
    return None


def _decision(step: dict[str, Any]) -> Any:
    action = step["action"]
    if action is None:
        return step.get("reply")
    arguments = {name: value for name, value in action["arguments"].items() if name != "reasoning"}
    return action["name"], arguments
