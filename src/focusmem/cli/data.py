"""`focusmem data`: imports the results of other agents, and exports runs for the benchmarks' own scripts."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from focusmem.schemas.import_record import Rejection

app = typer.Typer(no_args_is_help=True)

_NUM_SHOWN = 20

AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]


@app.callback()
def _group() -> None:
    pass


@app.command(name="import")
def import_(
    format: Annotated[
        str, typer.Argument(metavar="FORMAT", help="webvoyager, online-mind2web, molmoweb, browser-use, or comem.")
    ],
    path: Annotated[Path, typer.Argument(metavar="PATH", help="One result, or a folder of many.")],
    out: Annotated[Path, typer.Option("--out", help="A new folder for the run that the results become.")],
    suite: Annotated[
        str | None, typer.Option(help="The first part of task ids, such as deepshop; default: the format's benchmark.")
    ] = None,
    agent: Annotated[str | None, typer.Option(help="The agent's name in reports; default: the format's name.")] = None,
    source: Annotated[
        str | None, typer.Option(help="The source that a bank records; default: the format and the folder's name.")
    ] = None,
    instructions: Annotated[
        Path | None,
        typer.Option(
            help='A JSON object {"file name without .json": "instruction"}, for browser-use histories that do not '
            "name their task."
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """focusmem data import webvoyager WebVoyager/results/examples --out runs/webvoyager-gpt4v

    Import the results of another agent as a run for `focusmem judge`, `focusmem report` and `focusmem bank add`.
    Actions are translated into our seven actions. A result with an action that has no equivalent, or with a damaged
    file, is refused as a whole; import.json in the run lists each with its reason.

    Results without a verdict are not judged: `focusmem judge RUN --judge webvoyager:official --url URL` judges them.

    The exit code is 1 if some results were refused, and 2 if all were.
    """
    from focusmem.cli.command_line import command_line
    from focusmem.cli.output import print_json, printable
    from focusmem.recipes.interchange import ImportRequest, import_results
    from focusmem.schemas.run_folder import IMPORT_FILE

    request = ImportRequest(
        format=format,
        path=path,
        out=out,
        suite=suite,
        agent=agent,
        source=source,
        instructions={} if instructions is None else _instructions(instructions),
        command=command_line(),
    )
    record = import_results(request)
    if json:
        print_json(record.model_dump(mode="json"))
    else:
        _show(record.rejected, record.num_by_reason, rest=str(out / IMPORT_FILE))
        typer.echo(printable(f"{record.num_imported} imported, {len(record.rejected)} refused: {out}"))
    if record.rejected:
        raise typer.Exit(1)


@app.command()
def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    format: Annotated[str, typer.Argument(metavar="FORMAT", help="webvoyager, online-mind2web, or molmoweb.")],
    out: Annotated[Path, typer.Option("--out", help="A new folder.")],
    attempt: Annotated[int, typer.Option(min=1, help="The number of the attempt to export for each task.")] = 1,
    json: AsJson = False,
) -> None:
    """focusmem data export runs/webvoyager-full webvoyager --out results/

    Write a run as the result folders of a benchmark, so that its own scripts can judge it. DeepShop's scripts read
    WebVoyager's folders.

    Attempts that ended in an error or have no step are left out and named; the exit code is then 1. The command prints
    what the format cannot store.
    """
    from collections import Counter

    from focusmem.cli.output import print_json, printable
    from focusmem.recipes.interchange import export_run

    done = export_run(run, format, out, attempt=attempt)
    if json:
        print_json(
            {
                "path": printable(str(out)),
                "num_exported": len(done.names),
                "left_out": [one.model_dump() for one in done.left_out],
                "changes": {name: list(changed) for name, changed in done.changes.items()},
                "cannot_hold": list(done.cannot_hold),
            }
        )
    else:
        _show(done.left_out, Counter(one.reason for one in done.left_out), verb="left out")
        for name, changed in done.changes.items():
            typer.echo(printable(f"changed {name}: {'; '.join(changed)}"))
        typer.echo(f"Not in this format: {'; '.join(done.cannot_hold)}.")
        typer.echo(printable(f"{len(done.names)} exported, {len(done.left_out)} left out: {out}"))
    if done.left_out:
        raise typer.Exit(1)


def _show(
    rejected: "tuple[Rejection, ...]", num_by_reason: dict[str, int], *, verb: str = "refused", rest: str | None = None
) -> None:
    """The first few by name, and how many for each reason."""
    from focusmem.cli.output import printable

    shown = rejected if rest is None else rejected[:_NUM_SHOWN]
    for one in shown:
        typer.echo(f"{verb} {printable(one.name)}: {printable(one.detail)}")
    if len(shown) < len(rejected):
        typer.echo(printable(f"... and {len(rejected) - len(shown)} more, which {rest} lists."))
    for reason, num in num_by_reason.items():
        typer.echo(printable(f"{verb} for '{reason}': {num}"))


def _instructions(path: Path) -> dict[str, str]:
    from focusmem.data.importers.base import as_object, as_text, read_json

    return {name: as_text(text, f"{path}: {name}") for name, text in as_object(read_json(path), str(path)).items()}
