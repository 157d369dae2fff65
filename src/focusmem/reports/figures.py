"""The figures at the top of the page: a run's own where it left them, counted from its episodes where it did not."""

from collections.abc import Iterable, Sequence
from typing import Any

from focusmem.intervals import wilson_interval

NAMES = (
    "success_rate",
    "success_interval",
    "hit_max_rate",
    "mean_steps",
    "mean_step_s",
    "mean_prompt_tokens",
    "mean_memory_tokens",
    "accepted_rate",
)


def figures_of(results: dict[str, Any], episodes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Counts are always those of the episodes on the page; a missing figure is None, never 0."""
    states = [episode["state"] for episode in episodes]
    counts = {f"num_{state}": states.count(state) for state in ("success", "failure", "error", "blocked", "not_judged")}
    counted = _counted(episodes, counts["num_success"], counts["num_success"] + counts["num_failure"])
    shown = {name: results[name] if name in results else counted[name] for name in NAMES}
    return {"num_episodes": len(states), **counts, **shown}


def _counted(episodes: Sequence[dict[str, Any]], num_success: int, num_judged: int) -> dict[str, Any]:
    judged = [episode for episode in episodes if episode["state"] in ("success", "failure")]
    steps = [step for episode in judged for step in episode["steps"]]
    offered = [item for step in steps for item in step["offered"]]
    return {
        "success_rate": num_success / num_judged if num_judged else None,
        "success_interval": list(wilson_interval(num_success, num_judged)) if num_judged else None,
        "hit_max_rate": _mean(episode["hit_max"] for episode in judged),
        "mean_steps": _mean(len(episode["steps"]) for episode in judged),
        "mean_step_s": _mean(sum(step["seconds"].values()) for step in steps if step["seconds"]),
        "mean_prompt_tokens": _mean(step["num_prompt_tokens"] for step in steps),
        "mean_memory_tokens": _mean(step["num_memory_tokens"] for step in steps),
        "accepted_rate": _mean(item["is_accepted"] for item in offered),
    }


def _mean(values: Iterable[float]) -> float | None:
    found = list(values)
    return sum(found) / len(found) if found else None
