"""`focusmem reproduce`: makes our results again, in units that go on where they were stopped."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from focusmem.cli.output import print_json, print_table

if TYPE_CHECKING:
    from focusmem.recipes.reproduce.plan import Plan

app = typer.Typer(no_args_is_help=True)
lab_app = typer.Typer(no_args_is_help=True)
app.add_typer(lab_app, name="lab", help="The results of the laboratory.")


@app.callback()
def _group() -> None:
    pass


@lab_app.callback()
def _lab_group() -> None:
    pass


@lab_app.command()
def ladder(
    out: Annotated[Path, typer.Option(help="The folder of units and results. The same command goes on there.")] = Path(
        "runs/ladder"
    ),
    scale: Annotated[
        str, typer.Option(help="full, for one GPU, or tiny: a rehearsal on a CPU whose figures mean nothing.")
    ] = "full",
    max_minutes: Annotated[
        float | None, typer.Option(help="Save and stop after this time, a little before a host would end the call.")
    ] = None,
    only: Annotated[str | None, typer.Option(help="Work on this unit alone.")] = None,
    parallel: Annotated[int, typer.Option(min=1, help="Units that run at the same time, each in a process.")] = 1,
    pack: Annotated[
        Path | None, typer.Option(help="Write the state of all units into this folder, in few files, and stop.")
    ] = None,
    unpack: Annotated[
        Path | None, typer.Option(help="Fill --out with what was packed into this folder, and stop.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the units with their state, and stop.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")] = False,
) -> None:
    """focusmem reproduce lab ladder --max-minutes 9 --parallel 4

    Train policy, embedder and memories for lab-entries with equal budgets, and evaluate all of them on the same tasks.
    The same command goes on until the ladder is finished; its table is in the folder --out after every call.

    To carry an unfinished ladder to another machine: add --pack FOLDER here, and --unpack FOLDER with the same --out
    there.

    On a laptop: focusmem reproduce lab ladder --scale tiny --out runs/rehearsal
    """
    from functools import partial

    from focusmem.recipes.reproduce.ladder import make_ladder
    from focusmem.recipes.reproduce.ladder_settings import settings_for

    _check(pack, unpack, dry_run=dry_run)
    make = partial(make_ladder, settings_for(scale), out)
    plan = make()
    plan.check()
    if dry_run:
        _show(plan, json=json)
    elif pack is not None or unpack is not None:
        _carry(plan, pack, unpack)
    else:
        from focusmem.recipes.reproduce.ladder_table import write_results
        from focusmem.recipes.reproduce.side_by_side import carry_out

        try:
            carry_out(make, num_parallel=parallel, max_minutes=max_minutes, only=only)
        finally:
            write_results(plan, scale)
        _show(plan, json=json)


def _check(pack: Path | None, unpack: Path | None, *, dry_run: bool) -> None:
    from focusmem.errors import ConfigError

    if sum((pack is not None, unpack is not None, dry_run)) > 1:
        raise ConfigError("--pack, --unpack and --dry-run exclude each other; give one of them.")


def _carry(plan: "Plan", pack: Path | None, unpack: Path | None) -> None:
    from focusmem.recipes.reproduce.packing import pack as write_pack
    from focusmem.recipes.reproduce.packing import unpack as read_pack

    if pack is not None:
        sizes = write_pack(plan, pack)
        print_table(str(pack), ("unit", "MiB"), [(name, f"{size / 2**20:.1f}") for name, size in sizes.items()])
    if unpack is not None:
        names = read_pack(plan, unpack)
        typer.echo(f"{plan.folder} holds {len(names)} units of {unpack}: {', '.join(names)}.")


def _show(plan: "Plan", *, json: bool) -> None:
    rows = list(plan.rows())
    left = sum(unit.minutes for unit, status, _ in rows if status != "finished")
    if json:
        units = [
            {
                "unit": unit.name, "needs": list(unit.needs), "num_steps": unit.num_steps, "status": status,
                "minutes_estimated": unit.minutes, "minutes_spent": spent,
            }
            for unit, status, spent in rows
        ]  # fmt: skip
        print_json({"out": str(plan.folder), "units": units, "minutes_left_estimated": round(left, 1)})
        return
    cells = [
        (unit.name, status, "-" if unit.num_steps is None else str(unit.num_steps), f"{unit.minutes:g}", f"{spent:.1f}")
        for unit, status, spent in rows
    ]
    print_table(f"{plan.name} in {plan.folder}", ("unit", "state", "steps", "minutes, estimated", "spent"), cells)
    num = sum(status == "finished" for _, status, _ in rows)
    typer.echo(
        f"{num} of {len(rows)} units are finished; the others take about {left:.0f} minutes of a GPU (one unit beside "
        "three others; an estimate). Units that wait need another one first."
    )
