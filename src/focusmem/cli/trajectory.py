"""`focusmem trajectory`: check stored trajectories."""

from pathlib import Path
from typing import Annotated, Any

import typer

from focusmem.errors import UserError

app = typer.Typer(no_args_is_help=True, help="Check stored trajectories.")


@app.callback()
def trajectory() -> None:
    """Check stored trajectories."""


@app.command()
def check(
    path: Annotated[Path, typer.Argument(help="A trajectory folder, its trajectory.json, or a folder of many.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of lines.")] = False,
) -> None:
    """focusmem trajectory check my-trajectories/

    List what is wrong with stored trajectories: unreadable records, damaged screenshots, stray files.

    The exit code is 1 if there are problems.
    """
    from focusmem.cli.output import print_json
    from focusmem.progress import Progress
    from focusmem.schemas.trajectory_folder import find_trajectories

    folders = find_trajectories(path)
    found = []
    with Progress("check", total=len(folders)) as line:
        for folder in folders:
            found.append(_check_one(folder))
            line.step(failed=not found[-1]["is_valid"])
    num_valid = sum(result["is_valid"] for result in found)
    if as_json:
        summary = {
            "num_trajectories": len(found),
            "num_valid": num_valid,
            "valid_rate": num_valid / len(found),
        }
        print_json({**summary, "trajectories": found})
    else:
        for result in found:
            for problem in result["problems"]:
                print(problem)
        print(f"{num_valid} of {len(found)} trajectories are valid.")
    if num_valid < len(found):
        raise typer.Exit(1)


def _check_one(folder: Path) -> dict[str, Any]:
    from focusmem.cli.output import printable
    from focusmem.schemas.trajectory_folder import check_trajectory, load_trajectory

    problems = check_trajectory(folder)
    try:
        num_steps = len(load_trajectory(folder).trajectory.steps)
    except UserError:
        num_steps = None
    return {
        "path": printable(str(folder)),
        "is_valid": not problems,
        "num_steps": num_steps,
        "problems": [printable(problem) for problem in problems],
    }
