"""Several suites as one figure: the unweighted mean of the suites' success rates, taken before rounding."""

from collections.abc import Sequence
from typing import Any

from focusmem.errors import ConfigError
from focusmem.evaluation.comparison import ReadRun
from focusmem.schemas.screening import Screening


def overall(runs: Sequence[ReadRun], screenings: Sequence[Screening] = ()) -> dict[str, Any]:
    """Returns a row for each method, which is a policy with a memory. The rate of a run is computed over the suite's
    frozen subset, if the suite was screened. A method that lacks a rate in any suite has no overall rate.
    """
    runs = reduced(runs, screenings)
    rows: dict[tuple[str, str | None], dict[str, ReadRun]] = {}
    for run in runs:
        suite = run.manifest.suite
        own = rows.setdefault((run.method, run.policy), {})
        if suite in own:
            raise ConfigError(
                f"{own[suite].path} and {run.path} are runs of the same method ({run.method}) in the suite {suite}; "
                "give one of them."
            )
        own[suite] = run
    suites = list(dict.fromkeys(run.manifest.suite for run in runs))
    return {
        "suites": suites,
        "rows": [_row(memory, policy, own, suites) for (memory, policy), own in rows.items()],
    }


def reduced(runs: Sequence[ReadRun], screenings: Sequence[Screening]) -> list[ReadRun]:
    """The runs; a run of a screened suite is reduced to the suite's frozen subset."""
    subset_of = {screening.suite: screening for screening in screenings}
    if unused := subset_of.keys() - {run.manifest.suite for run in runs}:
        raise ConfigError(f"A frozen subset is given for {', '.join(sorted(unused))}, but no run of that suite.")
    return [run.within(subset_of[run.manifest.suite]) if run.manifest.suite in subset_of else run for run in runs]


def _row(memory: str, policy: str | None, own: dict[str, ReadRun], suites: Sequence[str]) -> dict[str, Any]:
    figures = {suite: {"run": str(own[suite].path), **own[suite].figures} for suite in suites if suite in own}
    rates = [figures[suite]["success_rate"] if suite in figures else None for suite in suites]
    return {"memory": memory, "policy": policy, "suites": figures, "overall": unweighted_mean(rates)}


def unweighted_mean(rates: Sequence[float | None]) -> float | None:
    """The mean of the rates; None if there is no rate, or if one is missing."""
    known = [rate for rate in rates if rate is not None]
    return sum(known) / len(known) if known and len(known) == len(rates) else None
