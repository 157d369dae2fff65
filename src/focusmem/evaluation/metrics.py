"""The figures of a run, computed from its files. The run may be unfinished."""

import json
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from focusmem.files import write_whole
from focusmem.intervals import grouped_interval, wilson_interval
from focusmem.judges.base import RULES
from focusmem.schemas import (
    JudgeCost,
    Manifest,
    ManifestTask,
    Preparation,
    RunFolder,
    StepNotes,
    StoredEpisode,
    Verdict,
)
from focusmem.schemas.run_folder import RESULTS_FILE


def summarise(folder: RunFolder) -> dict[str, Any]:
    """Computes the figures and stores them in the folder as `results.json`."""
    results = figures(folder.manifest(), folder.episodes(), folder.preparation())
    write_whole(folder.path / RESULTS_FILE, json.dumps(results, indent=2).encode())
    return results


def figures(
    manifest: Manifest, episodes: Sequence[StoredEpisode], preparation: Preparation | None = None
) -> dict[str, Any]:
    """The figures of a run. A rate or a mean over nothing is None.

    `success_rate` is over the frozen set of tasks, each attempted `num_attempts` times: an attempt that is an error,
    blocked, missing or not judged counts as not won. `judged_success_rate` is over the judged attempts.
    """
    kinds = sorted({task.kind for task in manifest.tasks if task.kind is not None})
    num_blocked = sum(one.episode.is_blocked for one in episodes)
    scores = [one.verdict.score for one in episodes if one.verdict.score is not None]
    return {
        "memory": episodes[0].episode.method if episodes else None,
        "num_tasks": len(manifest.tasks),
        "subset": subset_figures(manifest),
        "num_attempts": manifest.num_attempts,
        "num_won": sum(one.is_won for one in episodes),
        "num_judged": sum(one.is_judged for one in episodes),
        "num_failed": sum(one.outcome == "failure" for one in episodes),
        "num_errors": sum(one.outcome == "error" for one in episodes) - num_blocked,
        "num_blocked": num_blocked,
        "num_not_judged": sum(one.outcome == "not_judged" for one in episodes),
        "num_missing": len(manifest.tasks) * manifest.num_attempts - len(episodes),
        "num_broken": sum(one.episode.num_broken for one in episodes),
        **_success(manifest.tasks, manifest.num_attempts, episodes),
        "mean_score": _mean(scores) if is_rated(episodes) else None,
        **_steps([one for one in episodes if is_complete(one)]),
        "judge_calls": sum(one.verdict.cost.num_calls for one in episodes),
        "judge_s": sum(one.verdict.cost.seconds for one in episodes),
        "judge_usd": sum((one.verdict.cost for one in episodes), JudgeCost()).usd,
        "judge_unreadable": sum(one.verdict.num_unreadable for one in episodes),
        "judge_parser_disagreements": sum(one.verdict.has_disagreement for one in episodes),
        "judges": judges_named(episodes),
        **_prepared(preparation),
        "by_kind": {kind: _of_kind(kind, manifest, episodes) for kind in kinds},
    }


def subset_figures(manifest: Manifest) -> dict[str, Any]:
    """The set of tasks over which rates are computed, as every report prints it."""
    subset = manifest.subset
    return {
        "suite": manifest.suite,
        "sha256": None if subset is None else subset.sha256,
        "revision": None if subset is None else subset.revision,
        "num_days": None if subset is None else subset.num_days,
        "num_left_out": 0 if subset is None else len(subset.left_out),
    }


def judges_named(episodes: Iterable[StoredEpisode]) -> list[dict[str, Any]]:
    """The judges whose verdicts count, with their models and their departures from their profiles. Verdicts that were
    decided by the rules alone name no judge.
    """
    judges: dict[tuple[str, str | None, str | None], list[Verdict]] = {}
    for verdict in (one.verdict for one in episodes if one.verdict.judge != RULES):
        model = None if verdict.consultation is None else verdict.consultation.model
        judges.setdefault((verdict.judge, verdict.judge_profile, model), []).append(verdict)
    return [
        {"judge": judge, "profile": profile, "model": model, "departures": departures_of(own), "num_verdicts": len(own)}
        for (judge, profile, model), own in judges.items()
    ]


def departures_of(verdicts: Iterable[Verdict]) -> list[str]:
    """Each departure from the judge's profile once."""
    asked = (verdict.consultation for verdict in verdicts)
    return sorted({departure for one in asked if one is not None for departure in one.departures})


def _prepared(done: Preparation | None) -> dict[str, Any]:
    """Figures of the preparation before the first episode. No other figure includes this time."""
    return {
        "preparation_s": None if done is None else done.encode_s + done.warm_up_s,
        "num_encoded_beforehand": None if done is None else done.num_ready,
        "num_not_encoded_beforehand": None if done is None else done.num_left_out + done.num_failed,
    }


def is_rated(episodes: Sequence[StoredEpisode]) -> bool:
    """Whether a success rate has a meaning. It has none before the first episode or without a judge.

    Without a judge, an episode that never stopped is still a failure by the rules; all others are not judged.
    """
    if all(one.outcome != "not_judged" for one in episodes):
        return bool(episodes)
    return any(one.is_judged and one.verdict.judge != RULES for one in episodes)


def is_complete(one: StoredEpisode) -> bool:
    """Whether the episode ended because the policy stopped or its step budget was used up. Other episodes
    lack steps.
    """
    return one.outcome != "error"


def has_hit_max(one: StoredEpisode) -> bool:
    """Whether the episode used its whole step budget, even if the last step is an answer."""
    return len(one.episode.notes) >= one.episode.task.max_steps


def by_task(episodes: Iterable[StoredEpisode]) -> dict[str, list[StoredEpisode]]:
    """The finished attempts at each task that has at least one."""
    found: dict[str, list[StoredEpisode]] = {}
    for one in episodes:
        found.setdefault(one.episode.task.task_id, []).append(one)
    return found


def _success(tasks: Sequence[ManifestTask], num_attempts: int, episodes: Sequence[StoredEpisode]) -> dict[str, Any]:
    finished = by_task(episodes)
    judged = [[one.is_won for one in finished.get(task.task_id, ()) if one.is_judged] for task in tasks]
    planned = [own + [False] * (num_attempts - len(own)) for own in judged]
    has_rate = is_rated(episodes)
    return {
        **_rate("success", planned if has_rate else []),
        **_rate("judged_success", judged if has_rate else []),
    }


def _rate(name: str, won: Sequence[Sequence[bool]]) -> dict[str, Any]:
    """`won` holds the attempts at each task. Attempts at one task tend to have the same outcome, so the interval treats
    them as a group.
    """
    trials = list(chain.from_iterable(won))
    is_grouped = any(len(own) > 1 for own in won)
    interval = grouped_interval(won) if is_grouped else wilson_interval(sum(trials), len(trials))
    return {f"{name}_rate": _mean(trials), f"{name}_interval": list(interval) if trials else None}


def _of_kind(kind: str, manifest: Manifest, episodes: Sequence[StoredEpisode]) -> dict[str, Any]:
    tasks = [task for task in manifest.tasks if task.kind == kind]
    names = {task.task_id for task in tasks}
    own = [one for one in episodes if one.episode.task.task_id in names]
    return {"num_tasks": len(tasks), **_success(tasks, manifest.num_attempts, own)}


def _steps(episodes: Sequence[StoredEpisode]) -> dict[str, Any]:
    """Times are wall-clock times of steps, waiting included. Compare only runs with equal `parallel` and `cache`.
    `step_parts_s` has the same denominator as `mean_step_s`.
    """
    notes = [note for one in episodes for note in one.episode.notes]
    items = [item for note in notes for item in note.offered]
    seconds = sum(one.episode.seconds for one in episodes)
    parts = sorted({part for note in notes for part in note.seconds})
    return {
        "hit_max_rate": _mean(map(has_hit_max, episodes)),
        "unreadable_rate": _mean(not note.is_readable for note in notes),
        "repeat_rate": _mean(note.is_repeat for note in notes),
        "mean_steps": len(notes) / len(episodes) if episodes else None,
        "mean_task_s": seconds / len(episodes) if episodes else None,
        "mean_step_s": seconds / len(notes) if notes else None,
        "step_parts_s": {part: sum(note.seconds.get(part, 0.0) for note in notes) / len(notes) for part in parts},
        **_conditions(episodes, notes),
        "mean_prompt_tokens": _mean(num for note in notes if (num := note.num_prompt_tokens) is not None),
        "mean_memory_tokens": _mean(num for note in notes if (num := note.num_memory_tokens) is not None),
        "accepted_rate": _mean(item.is_accepted for item in items),
        "removed_per_step": _removed_per_step(notes),
    }


def _conditions(episodes: Sequence[StoredEpisode], notes: Sequence[StepNotes]) -> dict[str, Any]:
    """The conditions that the times depend on. They may change when a run is resumed, so `parallel` and `num_before`
    list every value.

    Every step of a batch records the number of items that were encoded for the whole batch. Each step therefore
    contributes its share of that number.
    """
    known = [one.episode.conditions for one in episodes if one.episode.conditions is not None]
    encoded = [
        note.num_encoded / note.num_together for note in notes if note.num_together and note.num_encoded is not None
    ]
    return {
        "parallel": sorted({one.num_parallel for one in known}),
        "mean_together": _mean(num for note in notes if (num := note.num_together) is not None),
        "cache": {
            "num_before": sorted({num for one in known if (num := one.num_encoded_before) is not None}),
            "num_encoded": round(sum(encoded)) if encoded else None,
        },
    }


def _removed_per_step(notes: Sequence[StepNotes]) -> dict[str, float]:
    """The mean number of removed trajectories per step, by key of the leakage guard."""
    keys = sorted({key for note in notes for key in note.num_removed})
    return {key: sum(note.num_removed.get(key, 0) for note in notes) / len(notes) for key in keys}


def _mean(values: Iterable[float]) -> float | None:
    listed = list(values)
    return sum(listed) / len(listed) if listed else None
