"""Actions, outcomes and counts in words, for people who watch a run or read about it."""

from collections.abc import Mapping, Sequence
from typing import Any

from focusmem.schemas import Outcome
from focusmem.schemas.action import AnyAction

_NUM_HEX = 12

OUTCOMES: dict[Outcome, str] = {
    "success": "solved",
    "failure": "not solved",
    "error": "broken off",
    "not_judged": "not judged",
}


def in_words(action: AnyAction | None) -> str:
    """An action in words; None stands for an unreadable reply."""
    if action is None:
        return "wrote something that is no action"
    arguments = action.arguments.model_dump(exclude_none=True, exclude={"reasoning"})
    values = " in ".join(repr(value) if name != "direction" else value for name, value in arguments.items())
    return f"{action.name.replace('_', ' ')} {values}".strip()


def at_once(figures: Mapping[str, Any]) -> str:
    """The number of episodes at the same time; several numbers if the run was resumed with another number."""
    return _numbers(figures["parallel"])


def cache_state(figures: Mapping[str, Any]) -> str:
    """The number of items encoded before the first episode, and while acting; a dash without a cache."""
    before, num_encoded = figures["cache"]["num_before"], figures["cache"]["num_encoded"]
    return "-" if num_encoded is None else f"{_numbers(before or [0])} before, {num_encoded} while acting"


def task_set(figures: Mapping[str, Any]) -> str:
    """Which tasks the rates are over, in one line that another lab can compare with its own."""
    subset = figures["subset"]
    parts = [f"Tasks: {figures['num_tasks']} of {subset['suite']}"]
    if subset["revision"] is not None:
        parts.append(f"revision {subset['revision']}")
    if subset["num_days"] is not None:
        parts.append(f"dates moved by {subset['num_days']} days")
    if subset["num_left_out"]:
        parts.append(f"{subset['num_left_out']} left out")
    if subset["sha256"] is not None:
        parts.append(f"subset {subset['sha256'][:_NUM_HEX]}")
    return ", ".join(parts) + "."


def _numbers(values: Sequence[int]) -> str:
    return " or ".join(map(str, values)) or "-"


def judge_words(judge: Mapping[str, Any]) -> str:
    """A judge with its model, and what departs from its profile."""
    profile = "" if judge["profile"] is None else f" ({judge['profile']})"
    model = "" if judge["model"] is None else f" by {judge['model']}"
    departures = "; ".join(judge["departures"])
    return f"Judged with {judge['judge']}{profile}{model}." + (f" Departures: {departures}." if departures else "")


def counted(num: int, word: str) -> str:
    return f"{num} {word}{'' if num == 1 else 's'}"
