"""`focusmem trajectory`: look after stored trajectories."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from focusmem.errors import UserError

app = typer.Typer(no_args_is_help=True, help="Look after stored trajectories.")


@app.callback()
def trajectory() -> None:
    """Look after stored trajectories."""


@app.command()
def check(
    path: Annotated[Path, typer.Argument(help="A trajectory folder, its trajectory.json, or a folder of many.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of lines.")] = False,
) -> None:
    """focusmem trajectory check my-trajectories/

    Say what is wrong with stored trajectories: unreadable records, damaged screenshots, stray files.

    The exit code is 0 when all of them are sound and 1 when there are problems.
    """
    from focusmem.cli.output import print_json
    from focusmem.progress import Progress

    folders = _find_trajectories(path)
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


def _find_trajectories(path: Path) -> list[Path]:
    from focusmem.schemas.trajectory_folder import TRAJECTORY_FILE

    if path.name == TRAJECTORY_FILE and os.path.lexists(path) and not path.is_dir():
        return [path.parent]
    if not path.exists():
        raise UserError(f"{path} does not exist.")
    if not path.is_dir():
        raise UserError(f"{path} is neither a folder nor a {TRAJECTORY_FILE}.")
    found = []
    for folder, subfolders, files in os.walk(path):
        if TRAJECTORY_FILE in files:
            found.append(Path(folder))
            subfolders.clear()
        # Hidden folders are unfinished or replaced ones.
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
    if not found:
        raise UserError(f"{path} holds no trajectory: there is no {TRAJECTORY_FILE} in it or below it.")
    return found


def _check_one(folder: Path) -> dict[str, Any]:
    from focusmem.schemas.trajectory_folder import check_trajectory, load_trajectory

    problems = check_trajectory(folder)
    try:
        num_steps = len(load_trajectory(folder).trajectory.steps)
    except UserError:
        num_steps = None
    return {
        "path": _printable(str(folder)),
        "is_valid": not problems,
        "num_steps": num_steps,
        "problems": [_printable(problem) for problem in problems],
    }


def _printable(text: str) -> str:
    """File names can hold anything; what is printed stays one line of valid text."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
