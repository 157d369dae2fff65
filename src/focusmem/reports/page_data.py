"""Runs as plain JSON for the page: a small index that is read at once, and parts that are read when they are shown."""

import math
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any, Final

from focusmem.errors import StorageError
from focusmem.reports.figures import figures_of
from focusmem.reports.pictures import Pictures
from focusmem.reports.run_folder import RunFolder, StoredEpisode, plain_json
from focusmem.schemas import AttentionMap, OfferedItem, Step, StepNotes, StoredTrajectory

LEVELS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
"""A heat map is a letter for each visual token: dark to bright."""

Watcher = Callable[[bool], None]
"""Told after each episode whether it could be read."""


class PageData:
    """Everything a page shows. Episodes are turned into plain values as they are read, and pictures made small."""

    def __init__(
        self,
        runs: Sequence[RunFolder],
        watch: Watcher = lambda is_read: None,
        *,
        labels: Sequence[str] | None = None,
    ) -> None:
        """`labels` call the runs something else than their method and folder."""
        self.pictures = Pictures.none()
        self.recalled: list[dict[str, Any]] = []
        """Trajectories that memory offered; offered items name them by their place here."""
        self._recalled_places: dict[tuple[int, str], int | None] = {}
        self.episodes = [self._episodes(place, run, watch) for place, run in enumerate(runs)]
        """For each run, its episodes in the order of its tasks."""
        self.index = self._index(runs, labels)

    def _episodes(self, place: int, run: RunFolder, watch: Watcher) -> list[dict[str, Any]]:
        found = []
        for stored in run.episodes():
            watch(stored is not None)
            if stored is not None:
                found.append(self._episode(place, run, stored))
        if not found:
            raise StorageError(f"No episode of {run.path} can be read. {run.problems[0]}")
        places = run.task_places()
        return sorted(found, key=lambda episode: places.get(episode["task"]["task_id"], len(places)))

    def _index(self, runs: Sequence[RunFolder], labels: Sequence[str] | None) -> dict[str, Any]:
        """What the list and the header need."""
        about = []
        names: Sequence[str | None] = labels or [None] * len(runs)
        for run, episodes, label in zip(runs, self.episodes, names, strict=True):
            results, run_id, method = run.results(), run.run.run_id, episodes[0]["method"]
            about.append(
                {
                    "run_id": run_id,
                    "label": label or method,
                    "folder": None if label or run_id == method else run_id,
                    "figures": figures_of(results, episodes),
                    "record": plain_json(run.run),
                    "results": results,
                }
            )
        problems = [problem for run in runs for problem in run.problems]
        problems += self.pictures.missing.values()
        return {"runs": about, "rows": rows_of(self.episodes), "problems": problems}

    def _episode(self, place: int, run: RunFolder, stored: StoredEpisode) -> dict[str, Any]:
        episode, trajectory = stored.episode, stored.trajectory
        texts: dict[str, int] = {}
        steps = []
        for step, notes in zip_longest(trajectory.steps if trajectory else (), episode.notes):
            if step is None:
                break  # a note without its step has nothing to be shown with
            self.pictures.add(step.screenshot.sha256, stored.screenshots)
            steps.append(self._step(place, run, step, notes or StepNotes(), texts))
        return {
            "task": episode.task.model_dump(mode="json", exclude_none=True),
            "method": episode.method,
            "state": "blocked" if episode.is_blocked else episode.outcome,
            "hit_max": len(steps) >= episode.task.max_steps,
            "answer": episode.answer,
            "error": episode.error,
            "seconds": episode.seconds,
            "steps": steps,
            "texts": list(texts),
        }

    def _step(self, place: int, run: RunFolder, step: Step, notes: StepNotes, texts: dict[str, int]) -> dict[str, Any]:
        return {
            **seen_and_done(step),
            "reply": step.reply,
            # Turns come again in every step, so that a step names them by their place in the episode's texts.
            "prompt": [texts.setdefault(text, len(texts)) for text in notes.prompt],
            "offered": [self._offered(place, run, item) for item in notes.offered],
            "num_removed": notes.num_removed,
            "num_prompt_tokens": notes.num_prompt_tokens,
            "num_memory_tokens": notes.num_memory_tokens,
            "is_repeat": notes.is_repeat,
            "seconds": {part: round(seconds, 4) for part, seconds in notes.seconds.items()},
        }

    def _offered(self, place: int, run: RunFolder, item: OfferedItem) -> dict[str, Any]:
        plain = item.model_dump(mode="json", exclude={"attention"})
        source = self._place_of(place, run, item.trajectory_id) if item.trajectory_id is not None else None
        return {**plain, "recalled": source, "maps": heat_maps(item.attention)}

    def _place_of(self, place: int, run: RunFolder, trajectory_id: str) -> int | None:
        key = (place, trajectory_id)
        if key not in self._recalled_places:
            stored = run.recalled(trajectory_id)
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


def seen_and_done(step: Step) -> dict[str, Any]:
    """What trajectories that act and trajectories that are remembered have in common."""
    shot = step.screenshot
    point = step.click_point and [step.click_point[0] / shot.width, step.click_point[1] / shot.height]
    return {
        "picture": shot.sha256,
        "size": [shot.width, shot.height],
        "point": point and [round(min(share, 1.0), 4) for share in point],
        "action": step.action and step.action.model_dump(mode="json", exclude_none=True),
        "url": step.url,
        "error": step.error,
    }


def heat_maps(attention: Sequence[AttentionMap]) -> list[dict[str, Any]]:
    """Brightness is relative to the brightest token of the item, by the root: weak attention stays visible."""
    peak = max((max(found.weights) for found in attention), default=0.0)
    return [
        {
            "picture": found.screenshot.sha256,
            "size": [found.screenshot.width, found.screenshot.height],
            "num_rows": found.num_rows,
            "num_columns": found.num_columns,
            "share": round(math.fsum(found.weights), 4),
            "levels": "".join(_level(weight, peak) for weight in found.weights),
        }
        for found in attention
    ]


def _level(weight: float, peak: float) -> str:
    return LEVELS[round(math.sqrt(weight / peak) * (len(LEVELS) - 1))] if peak else LEVELS[0]


# Two runs beside each other


def rows_of(episodes: Sequence[Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """A row for each task, in the order of the first run: which episode of each run belongs to it, if any."""
    places: dict[tuple[str, int], list[int | None]] = {}
    for run, own in enumerate(episodes):
        num_seen: dict[str, int] = {}
        for place, episode in enumerate(own):
            task_id = episode["task"]["task_id"]
            again = num_seen[task_id] = num_seen.get(task_id, 0) + 1  # a task may be attempted more than once
            places.setdefault((task_id, again), [None] * len(episodes))[run] = place
    return [_row(episodes, row) for row in places.values()]


def _row(episodes: Sequence[Sequence[dict[str, Any]]], places: list[int | None]) -> dict[str, Any]:
    own = [None if place is None else episodes[run][place] for run, place in enumerate(places)]
    present = [episode for episode in own if episode is not None]
    task = present[0]["task"]
    both = len(present) == 2
    return {
        "task_id": task["task_id"],
        "instruction": task["instruction"],
        "site": task["site"],
        "episodes": places,
        "states": [episode and episode["state"] for episode in own],
        "answers": [episode and episode["answer"] for episode in own],
        "num_steps": [episode and len(episode["steps"]) for episode in own],
        "divergence": first_divergence(present[0]["steps"], present[1]["steps"]) if both else None,
    }


def first_divergence(first: Sequence[dict[str, Any]], second: Sequence[dict[str, Any]]) -> int | None:
    """The first step whose actions differ, or that only one has. The reasons given for an action do not count; replies
    that are no action differ by their words.
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
