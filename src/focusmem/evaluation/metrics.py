"""The figures of a run, from its files; also of one that is not finished."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from focusmem.evaluation.run_store import RunStore
from focusmem.files import write_whole
from focusmem.intervals import wilson_interval
from focusmem.schemas import Episode, StepNotes


def summarise(store: RunStore) -> dict[str, Any]:
    """Also left in the folder, as `results.json`."""
    kind_of = store.kind_of()
    results = figures(store.episodes(list(kind_of)), kind_of)
    write_whole(store.folder / "results.json", json.dumps(results, indent=2).encode())
    return results


def is_judged(episode: Episode) -> bool:
    """Whether it was won or lost: errors are the world's, and say nothing about the policy."""
    return episode.outcome in ("success", "failure")


def has_hit_max(episode: Episode) -> bool:
    """Whether it came to the limit of steps; also where the last of them is an answer."""
    return len(episode.notes) >= episode.task.max_steps


def figures(episodes: Sequence[Episode], kind_of: Mapping[str, str | None]) -> dict[str, Any]:
    """Rates are over judged episodes; those over nothing, and means over nothing, are None.

    What the mind took is shared out over all it answered together, and waiting for its answer with others does not
    count. Looking and acting are timed by the clock, in an event loop that all episodes share: these times grow with
    the number of episodes side by side, so that only runs with equally many can be compared.
    """
    judged = [one for one in episodes if is_judged(one)]
    notes = [note for one in judged for note in one.notes]
    items = [item for note in notes for item in note.offered]
    num_steps, num_tasks = len(notes), len(judged)
    wins = sum(one.outcome == "success" for one in judged)
    seconds = sum(one.seconds for one in judged)
    num_blocked = sum(one.is_blocked for one in episodes)
    return {
        "memory": episodes[0].method if episodes else None,
        "num_tasks": num_tasks,
        "num_errors": sum(one.outcome == "error" for one in episodes) - num_blocked,
        "num_blocked": num_blocked,
        "num_not_judged": sum(one.outcome == "not_judged" for one in episodes),
        "num_missing": len(kind_of) - len(episodes),
        "success_rate": _share(wins, num_tasks),
        "success_interval": list(wilson_interval(wins, num_tasks)) if judged else None,
        "hit_max_rate": _share(sum(map(has_hit_max, judged)), num_tasks),
        "unreadable_rate": _share(sum(not note.is_readable for note in notes), num_steps),
        "repeat_rate": _share(sum(note.is_repeat for note in notes), num_steps),
        "mean_steps": _share(num_steps, num_tasks),
        "mean_task_s": _share(seconds, num_tasks),
        "mean_step_s": _share(seconds, num_steps),
        "mean_prompt_tokens": _share(sum(note.num_prompt_tokens for note in notes), num_steps),
        "mean_memory_tokens": _share(sum(note.num_memory_tokens for note in notes), num_steps),
        "accepted_rate": _share(sum(item.is_accepted for item in items), len(items)),
        "removed_per_step": _removed_per_step(notes),
        "by_kind": _by_kind([(kind_of.get(one.task.task_id), one.outcome == "success") for one in judged]),
    }


def _share(total: float, num: int) -> float | None:
    return total / num if num else None


def _removed_per_step(notes: Sequence[StepNotes]) -> dict[str, float]:
    """By key of the leakage guard."""
    keys = sorted({key for note in notes for key in note.num_removed})
    return {key: sum(note.num_removed.get(key, 0) for note in notes) / len(notes) for key in keys}


def _by_kind(won: Sequence[tuple[str | None, bool]]) -> dict[str, dict[str, float]]:
    kinds = sorted({kind for kind, _ in won if kind is not None})
    own = {kind: [is_won for name, is_won in won if name == kind] for kind in kinds}
    return {kind: {"num_tasks": len(own[kind]), "success_rate": sum(own[kind]) / len(own[kind])} for kind in kinds}
