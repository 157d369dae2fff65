"""`focusmem compare` and `focusmem table`: runs over the same tasks, task by task."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer


def compare(
    run: Annotated[Path, typer.Argument(help="The folder of a run.", metavar="RUN")],
    other: Annotated[Path, typer.Argument(help="The run it is measured against.", metavar="RUN2")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")] = False,
) -> None:
    """focusmem compare runs/full runs/none

    How much better RUN does than RUN2, with 95 % intervals: paired by task, and by kind of task where it is known.

    Runs of different tasks are refused. Tasks that either run could not finish (an error, a site that refused the
    agent) are left out of both, and counted.
    """
    from focusmem.cli.output import print_json, print_table, printable
    from focusmem.evaluation.comparison import compare as compared

    found = compared(run, other)
    if as_json:
        print_json(found)
        return
    rows = [_row(kind, one) for kind, one in [*found["by_kind"].items(), ("all", found)]]
    title = f"{found['first']['memory']} ({run}) against {found['second']['memory']} ({other})"
    print_table(printable(title), ("kind", "tasks", "success", "difference", "won alone", "steps"), rows)
    low, high = found["success_difference_interval"]
    typer.echo(f"Success differs by {found['success_difference']:+.1%} (95 % interval {low:+.1%} to {high:+.1%}).")
    between = found["steps_difference_interval"]
    told = "-" if between is None else f"{between[0]:+.2f} to {between[1]:+.2f}"
    typer.echo(f"Steps differ by {found['steps_difference']:+.2f} (95 % interval {told}).")
    typer.echo(
        f"{found['num_both_won']} tasks won by both, {found['num_both_lost']} by neither. Left out: "
        f"{found['num_not_judged_in_both']} not judged, {found['num_not_attempted_by_both']} not attempted by both."
    )


def _row(kind: str, one: dict[str, Any]) -> tuple[str, ...]:
    low, high = one["success_difference_interval"]
    first, second = one["success_rates"]
    return (
        kind,
        str(one["num_pairs"]),
        f"{first:.0%} / {second:.0%}",
        f"{one['success_difference']:+.0%} ({low:+.0%} to {high:+.0%})",
        f"{one['num_only_first_won']} / {one['num_only_second_won']}",
        " / ".join(f"{steps:.1f}" for steps in one["mean_steps"]),
    )


def table(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs; the first is the baseline.", metavar="RUN...")],
    plot: Annotated[Path | None, typer.Option(help="Also draw success with its intervals, as PNG.")] = None,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print a table to paste into a document.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")] = False,
) -> None:
    """focusmem table runs/none runs/replay runs/action-only runs/content runs/full --plot table.png

    Runs over the same tasks under one another: success, steps, time and tokens of each, which share of offered blocks
    came in, and how much it gains over the first run and over the one above it, paired by task, with 95 % intervals.
    """
    from focusmem.cli.output import print_json, print_markdown, print_table
    from focusmem.evaluation.table import tabulate
    from focusmem.evaluation.table_plot import plot_table

    found = tabulate(runs)
    if plot is not None:
        plot_table(found["rows"], plot)
    if as_json:
        print_json(found)
        return
    rows = [_table_row(one) for one in found["rows"]]
    if as_markdown:
        print_markdown(_COLUMNS, rows)
    else:
        print_table(f"{found['rows'][0]['num_tasks']} tasks", _COLUMNS, rows)


_COLUMNS = (
    "run", "success", "over the first", "over the one above", "steps", "Hit-Max", "s per task", "s per step",
    "tokens", "of memory", "passage",
)  # fmt: skip


def _table_row(one: dict[str, Any]) -> tuple[str, ...]:
    from focusmem.cli.output import printable

    return (
        printable(Path(one["run"]).name),
        _told(one["success_rate"], one["success_interval"], "{:.1%}"),
        *("-" if gain is None else _told_gain(gain) for gain in (one["over_first"], one["over_previous"])),
        _told(one["mean_steps"], None, "{:.2f}"),
        _told(one["hit_max_rate"], None, "{:.1%}"),
        _told(one["mean_task_s"], None, "{:.1f}"),
        _told(one["mean_step_s"], None, "{:.2f}"),
        _told(one["mean_prompt_tokens"], None, "{:.0f}"),
        _told(one["mean_memory_tokens"], None, "{:.0f}"),
        _told(one["accepted_rate"], None, "{:.1%}"),
    )


def _told_gain(gain: dict[str, Any]) -> str:
    return _told(gain["success_difference"], gain["success_difference_interval"], "{:+.1%}")


def _told(value: float | None, between: Sequence[float] | None, form: str) -> str:
    """A figure, with its interval where it has one; what a run could not tell is a dash, never 0."""
    if value is None:
        return "-"
    return form.format(value) + ("" if between is None else f" ({' to '.join(form.format(end) for end in between)})")
