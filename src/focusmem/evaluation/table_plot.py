"""A table of runs as a bar chart: the success rate of each with its interval."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from focusmem.plotting import write_figure

_BASELINE, _BETTER, _WORSE, _OPEN = "#777777", "#1f6fb4", "#c0392b", "#a9c4da"


def plot_table(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draws a bar for each run, in the table's order. A bar is pale if the difference from the first run may be due to
    chance, and red if the run is worse than the first.
    """
    figure = Figure(figsize=(7.2, 0.9 + 0.42 * len(rows)))
    axes = figure.add_subplot()
    for place, row in enumerate(rows):
        rate, (low, high) = row["success_rate"] or 0.0, row["success_interval"] or (0.0, 0.0)
        error = [[rate - low], [high - rate]]
        axes.barh(place, rate, color=_colour(row), xerr=error, ecolor="#333333", capsize=3, height=0.66)
        axes.text(max(high, 0.0) + 0.015, place, _label(row), va="center", fontsize=8.5)
    axes.set_yticks(range(len(rows)), [Path(row["run"]).name for row in rows])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.4)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0 %", "25 %", "50 %", "75 %", "100 %"])
    axes.set_xlabel("tasks solved, with 95 % intervals")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    write_figure(figure, path)


def _colour(row: Mapping[str, Any]) -> str:
    if row["over_first"] is None:
        return _BASELINE
    interval = row["over_first"]["success_difference_interval"]
    if interval is None or interval[0] <= 0 <= interval[1]:
        return _OPEN
    return _BETTER if interval[0] > 0 else _WORSE


def _label(row: Mapping[str, Any]) -> str:
    if row["success_rate"] is None:
        return "not judged"
    gain = row["over_first"]
    more = "" if gain is None else f" ({gain['success_difference']:+.1%})"
    num_errors, num_blocked = row["num_errors"], row["num_blocked"]
    errors = f", {num_errors} {'error' if num_errors == 1 else 'errors'}" if num_errors else ""
    errors += f", {num_blocked} blocked" if num_blocked else ""
    return f"{row['success_rate']:.1%}{more}{errors}"
