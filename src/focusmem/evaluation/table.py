"""Several runs over the same tasks as one table: the figures of each run, and its gains over two other runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from focusmem.errors import ConfigError
from focusmem.evaluation.comparison import ReadRun, compare_runs
from focusmem.evaluation.overall import reduced
from focusmem.schemas.screening import Screening

_GAIN = ("num_pairs", "success_difference", "success_difference_interval", "steps_difference")


def tabulate(paths: Sequence[Path], screenings: Sequence[Screening] = ()) -> dict[str, Any]:
    """A row for each run, in the order given. Each run is compared with the first, and with the run above it. Runs of a
    screened suite are reduced to its frozen subset.
    """
    if len(paths) < 2:
        raise ConfigError("A table needs at least two runs; `focusmem report RUN` shows a single one.")
    runs = reduced([ReadRun.read(path) for path in paths], screenings)
    rows = [
        {
            "run": str(run.path),
            **run.figures,
            "over_first": _gain(run, runs[0]) if number else None,
            "over_previous": _gain(run, runs[number - 1]) if number else None,
        }
        for number, run in enumerate(runs)
    ]
    return {"rows": rows}


def _gain(run: ReadRun, other: ReadRun) -> dict[str, Any]:
    comparison = compare_runs(run, other)
    return {"other": str(other.path)} | {name: comparison[name] for name in _GAIN}
