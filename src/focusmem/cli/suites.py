"""`focusmem suites`: lists the suites, and checks whether the files of a benchmark can be read."""

from pathlib import Path
from typing import Annotated, Any

import typer

from focusmem.cli.output import print_json, print_table, printable

app = typer.Typer(no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of lines.")]
_NUM_SHOWN = 20


@app.callback()
def _group() -> None:
    pass


@app.command(name="list")
def list_suites(as_json: AsJson = False) -> None:
    """focusmem suites list

    List the suites that `focusmem run` knows, what each needs, and whether a needed package is installed.
    """
    from focusmem.recipes.suites import known_suites

    known = known_suites()
    if as_json:
        print_json({"suites": known})
        return
    print_table("", ("suite", "tasks", "needs"), [(one["suite"], one["about"], one["needs"]) for one in known])


@app.command()
def check(
    path: Annotated[Path, typer.Argument(help="A file or folder of a benchmark.")],
    as_json: AsJson = False,
) -> None:
    """focusmem suites check Downloads/WebVoyager/data

    Read the files of benchmarks as a run would. Print the number of tasks in each file, and every refused row with the
    reason. Nothing is run, and nothing is sent anywhere.
    """
    from focusmem.recipes.suites import check_files

    found = check_files(path)
    if as_json:
        print_json({"files": found})
    else:
        for one in found:
            _show(one)
    if not found:
        typer.echo(f"{path} holds no task files (.json or .jsonl).")
    if not any(one["num_tasks"] for one in found):
        raise typer.Exit(1)


def _show(one: dict[str, Any]) -> None:
    suite = one["suite"] or "no suite"
    typer.echo(printable(f"{one['path']}: {suite}, {one['num_tasks']} tasks, {len(one['refused'])} refused"))
    for sentence in one["refused"][:_NUM_SHOWN]:
        typer.echo(printable(f"  {sentence}"))
    if len(one["refused"]) > _NUM_SHOWN:
        typer.echo(f"  ... and {len(one['refused']) - _NUM_SHOWN} more; --json lists all")
    if one["num_tasks"]:
        typer.echo(printable(f"  revision: {one['revision']}"))
        typer.echo(printable(f"  run: focusmem run {one['suite']} --data {one['path']} --policy URL --model NAME"))
    elif one["help"]:
        typer.echo(printable(f"  {one['help']}"))


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="A suite, or the id of a task such as webvoyager/Booking--1.")],
    data: Annotated[Path | None, typer.Option(help="The file or folder of the benchmark.")] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting such as suite.dates_from=2027-01-01; repeatable."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """focusmem suites show miniwob

    Show what a suite is and where its data comes from; for MiniWoB++, its tasks and why others are left out.

    Show a task as the policy would get it: focusmem suites show webvoyager/Booking--1 --data data/WebVoyager_data.jsonl
    --set suite.dates_from=2027-01-01
    """
    from focusmem.recipes.suites import about_suite, one_task

    about = one_task(name, data, assignments or ()) if "/" in name else about_suite(name)
    if as_json:
        print_json(about)
        return
    for field, value in about.items():
        if isinstance(value, dict):
            typer.echo(f"{field}:")
            for key, text in value.items():
                typer.echo(printable(f"  {key}: {text}"))
        elif isinstance(value, list):
            typer.echo(printable(f"{field} ({len(value)}): {', '.join(map(str, value))}"))
        elif value is not None:
            typer.echo(printable(f"{field}: {value}"))
