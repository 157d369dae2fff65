"""Several runs over the same tasks as one table: each by itself, and paired with the first and with the one before."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from focusmem.errors import ConfigError
from focusmem.evaluation.comparison import compare
from focusmem.evaluation.metrics import figures
from focusmem.evaluation.run_store import RunStore


def tabulate(runs: Sequence[Path]) -> dict[str, Any]:
    """A row per run, in the order given; the first is what all others are measured against."""
    if len(runs) < 2:
        raise ConfigError("A table needs two runs or more; `focusmem report RUN` tells of a single one.")
    rows = []
    for number, run in enumerate(runs):
        store = RunStore(run)
        kind_of = store.kind_of()
        rows.append(
            {
                "run": str(run),
                **figures(store.episodes(list(kind_of)), kind_of),
                "over_first": _gain(run, runs[0]) if number else None,
                "over_previous": _gain(run, runs[number - 1]) if number else None,
            }
        )
    return {"rows": rows}


def _gain(run: Path, other: Path) -> dict[str, Any]:
    found = compare(run, other)
    names = ("num_pairs", "success_difference", "success_difference_interval", "steps_difference")
    return {"other": str(other)} | {name: found[name] for name in names}
