"""`focusmem judge`: judge the episodes of a run again."""

from pathlib import Path
from typing import Annotated

import typer


def judge(
    run: Annotated[Path, typer.Argument(help="The folder of a run.", metavar="RUN")],
    tasks: Annotated[
        Path | None, typer.Option(help="The file of tasks (.jsonl) with right answers; default: the run's own suite.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of lines.")] = False,
) -> None:
    """focusmem judge runs/mytasks-none

    Judge the finished episodes of a run again, with the judge of its suite. No episode is repeated. Verdicts, outcomes
    and results.json are replaced.
    """
    from focusmem.cli.output import print_json, printable
    from focusmem.recipes.judge import judge_run

    found = judge_run(run, tasks)
    if as_json:
        print_json(found)
        return
    typer.echo(
        f"{found['num_episodes']} episodes judged again, {found['num_changed']} outcomes changed. "
        + printable(f"Figures: {run / 'results.json'}")
    )
