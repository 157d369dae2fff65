"""Agreement of judges on the same attempts, with each other and with human labels."""

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, Final, TypeAlias

from focusmem.errors import RecordError
from focusmem.evaluation.metrics import departures_of
from focusmem.files import read_plain_file
from focusmem.judges.base import RULES
from focusmem.schemas import JudgeCost, StoredEpisode, Verdict
from focusmem.schemas.record import MAX_DOCUMENT_BYTES

HUMAN: Final = "human"

Where: TypeAlias = tuple[str, int]
"""A task and the number of an attempt at it."""

Wins: TypeAlias = Mapping[Where, bool]
"""For each judged attempt, whether the judge calls it a success."""

_LABEL_SUFFIX: Final = "_human_label"
_WORDS: Final = {"success": True, "failure": False, "1": True, "0": False}
_NO_LABELS: Final = frozenset({"2", "error", "blocked", "not_judged"})
"""Labels of attempts that could not be carried out; Online-Mind2Web writes 2."""


def judges_of(episodes: Iterable[StoredEpisode]) -> dict[str, dict[Where, Verdict]]:
    """The verdicts of each judge by its key. Verdicts that were decided by the rules alone count for every judge that
    stored them.
    """
    found: dict[str, dict[Where, Verdict]] = {}
    for stored in episodes:
        for key, verdict in stored.verdicts().items():
            if key != RULES:
                found.setdefault(key, {})[stored.episode.task.task_id, stored.episode.attempt] = verdict
    return found


def judging_figures(episodes: Sequence[StoredEpisode], labels: Wins | None = None) -> dict[str, Any]:
    """The decisions and the cost of each judge, and the agreement of each pair of judges, human labels included."""
    verdicts = judges_of(episodes)
    wins: dict[str, Wins] = {key: wins_of(own) for key, own in verdicts.items()}
    if labels is not None:
        wins[HUMAN] = named_as_in(episodes, labels)
    return {
        "judges": {key: about_judge(list(own.values())) for key, own in verdicts.items()},
        "agreement": [
            {"first": first, "second": second, **agreement(wins[first], wins[second])}
            for first, second in combinations(wins, 2)
        ],
    }


def wins_of(verdicts: Mapping[Where, Verdict]) -> dict[Where, bool]:
    judged = {where: verdict.outcome for where, verdict in verdicts.items()}
    return {where: outcome == "success" for where, outcome in judged.items() if outcome in ("success", "failure")}


def about_judge(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    cost = sum((verdict.cost for verdict in verdicts), JudgeCost())
    model = next((one.model for one in (verdict.consultation for verdict in verdicts) if one is not None), None)
    named = next((verdict for verdict in verdicts if verdict.judge != RULES), verdicts[0])
    return {
        "judge": named.judge,
        "profile": named.judge_profile,
        "model": model,
        "departures": departures_of(verdicts),
        **{f"num_{name}": sum(verdict.outcome == name for verdict in verdicts) for name in _OUTCOMES},
        "num_by_rules": sum(verdict.judge == RULES for verdict in verdicts),
        "num_unreadable": sum(verdict.num_unreadable for verdict in verdicts),
        "num_parser_disagreements": sum(verdict.has_disagreement for verdict in verdicts),
        "num_strict_unreadable": sum(verdict.strict == "unreadable" for verdict in verdicts),
        **cost.model_dump(mode="json"),
    }


_OUTCOMES: Final = ("success", "failure", "error", "not_judged")


def agreement(first: Wins, second: Wins) -> dict[str, Any]:
    """The agreement over the attempts that both judged. `table` counts them: rows are the first judge's failures and
    successes, columns the second's. Cohen's kappa is None if both judges give one and the same outcome to all attempts,
    because it is then not defined.
    """
    both = sorted(first.keys() & second.keys())
    table = [[sum((first[one], second[one]) == (row, column) for one in both) for column in (False, True)]
             for row in (False, True)]  # fmt: skip
    num = len(both)
    share = (table[0][0] + table[1][1]) / num if num else None
    return {
        "num_both": num,
        "num_only_one": len(first.keys() ^ second.keys()),
        "table": table,
        "agreement": share,
        "kappa": None if share is None else _kappa(table, num, share),
    }


def _kappa(table: Sequence[Sequence[int]], num: int, share: float) -> float | None:
    first_wins, second_wins = sum(table[1]), table[0][1] + table[1][1]
    by_chance = (first_wins * second_wins + (num - first_wins) * (num - second_wins)) / num**2
    return None if by_chance == 1 else (share - by_chance) / (1 - by_chance)


# Labels by people


def named_as_in(episodes: Iterable[StoredEpisode], labels: Wins) -> dict[Where, bool]:
    """The labels by the task ids of a run, which begin with the suite's name. Raises an error if no label fits an
    attempt of the run.
    """
    places = [(one.episode.task.task_id, one.episode.attempt) for one in episodes]
    known = {(name, attempt): (task_id, attempt) for task_id, attempt in places for name in _names(task_id)}
    found = {known[where]: label for where, label in labels.items() if where in known}
    if not found:
        raise RecordError(
            "No label is about an attempt of this run; labels name tasks as the run or its benchmark does."
        )
    return found


def _names(task_id: str) -> tuple[str, str]:
    """The task's id, with and without the suite's name."""
    return task_id, task_id.partition("/")[2] or task_id


def read_labels(path: Path, *, agent: str | None = None) -> dict[Where, bool]:
    """Human labels from JSON lines, or from a JSON list such as Online-Mind2Web's `human_label.json`.

    An entry has `task_id`, and a label that is success or failure, 1 or 0: in the field `label`, or in
    `<agent>_human_label`. `attempt` is 1 if missing. Labels of attempts that could not be carried out (2) are left out.
    """
    wins: dict[Where, bool] = {}
    for number, entry in enumerate(_entries(path), start=1):
        where, label = _entry(entry, agent, f"{path}, entry {number}")
        if where in wins:
            raise RecordError(f"{path}, entry {number}: {where[0]}, attempt {where[1]}, has two labels.")
        if label is not None:
            wins[where] = label
    return wins


def _entries(path: Path) -> list[Any]:
    data = read_plain_file(path, MAX_DOCUMENT_BYTES)
    try:
        if data.lstrip().startswith(b"["):
            entries: list[Any] = json.loads(data)
            return entries
        return [json.loads(line) for line in data.splitlines() if line.strip()]
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path} is neither a JSON list nor JSON lines: {error}.") from None


def _entry(entry: Any, agent: str | None, origin: str) -> tuple[Where, bool | None]:
    if not isinstance(entry, dict) or not isinstance(entry.get("task_id"), str):
        raise RecordError(f"{origin} is not an object with a task_id.")
    attempt = entry.get("attempt", 1)
    name = f"{agent}{_LABEL_SUFFIX}" if agent is not None else _label_field(entry, origin)
    label = str(entry.get(name)).lower()
    if type(attempt) is not int or label not in {*_WORDS, *_NO_LABELS}:
        raise RecordError(f"{origin}: {name} is {entry.get(name)!r}; use success or failure, 1 or 0, or 2 for neither.")
    return (entry["task_id"], attempt), _WORDS.get(label)


def _label_field(entry: Mapping[str, Any], origin: str) -> str:
    named = [name for name in entry if name == "label" or name.endswith(_LABEL_SUFFIX)]
    if len(named) != 1:
        agents = ", ".join(name.removesuffix(_LABEL_SUFFIX) for name in named) or "none"
        raise RecordError(f"{origin} should have one label, but has those of: {agents}. Say which with --label-agent.")
    return named[0]
