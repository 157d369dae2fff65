"""`focusmem compare`: two runs over the same tasks, task by task."""

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
