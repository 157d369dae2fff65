"""Output of the `focusmem bank` commands."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from focusmem.cli.output import print_json, print_table, printable

if TYPE_CHECKING:
    from focusmem.bank.reports import Added, Entry, Failure
    from focusmem.bank.retrieval import Hits
    from focusmem.schemas import LeftOut


def tell(figures: dict[str, Any], failures: "Sequence[Failure]", *, json: bool, verb: str = "left out") -> None:
    """Prints figures, then every failure by name. If there are failures, the command ends with exit code 1."""
    if json:
        print_json({**figures, "num_failed": len(failures), "failures": [asdict(failure) for failure in failures]})
    else:
        for failure in failures:
            typer.echo(f"{verb} {printable(failure.name)}: {printable(failure.reason)}")
        parts = {**figures, "num_failed": len(failures)}
        typer.echo(", ".join(f"{name.removeprefix('num_')} {printable(str(value))}" for name, value in parts.items()))
    if failures:
        raise typer.Exit(1)


def shortening(shortened: "Sequence[tuple[str, LeftOut]]") -> dict[str, int]:
    """How much the embedder left out of trajectories, as figures."""
    return {
        "num_shortened": len(shortened),
        "num_frames_left_out": sum(left_out.num_frames for _, left_out in shortened),
        "num_characters_left_out": sum(left_out.num_characters for _, left_out in shortened),
    }


def tell_shortened(shortened: "Sequence[tuple[str, LeftOut]]", bank: Path) -> None:
    if shortened:
        typer.echo(
            f"{len(shortened)} were not read whole by the embedder. This affects only how searches find them. To see "
            f"how much was left out: focusmem bank show {printable(str(bank))} {printable(shortened[0][0])}"
        )


def tell_added(report: "Added", bank: Path, *, json: bool) -> None:
    figures: dict[str, Any] = {
        "path": str(bank),
        "num_added": len(report.added),
        "num_known": len(report.known),
        "num_skipped": report.num_skipped,
        **shortening(report.shortened),
    }
    if report.num_skipped and not json:
        why = "they did not end in success (--any-outcome adds such trajectories), or have no step"
        typer.echo(f"{report.num_skipped} skipped: {why}.")
    if not json:
        tell_shortened(report.shortened, bank)
    if json:
        figures["newly_trusted"] = list(report.newly_trusted)
    elif report.newly_trusted:
        sources, name = printable(", ".join(report.newly_trusted)), printable(str(bank))
        typer.echo(f"The new bank trusts what the export trusts: {sources}. To change this: focusmem bank trust {name}")
    tell(figures, report.failures, json=json)


def show_hits(found: "Hits", *, json: bool) -> None:
    removal = found.removed
    if json:
        removed = {
            "num_candidates": removal.num_candidates,
            "num_removed": removal.num_removed,
            "num_by_key": removal.num_by_key,
            "ids_by_key": {key: removal.ids(key) for key in removal.num_by_key},
        }
        hits = [hit.model_dump() for hit in found.hits]
        print_json({"hits": hits, "removed": removed, "is_exact": found.is_exact})
        return
    for hit in found.hits:
        typer.echo(f"{hit.score:.4f}  {hit.trajectory_id}")
    typer.echo(f"Leakage guard: {removal}.")


def show_entry(entry: "Entry", *, is_trusted: bool) -> None:
    rows = [(name, printable(str(value))) for name, value in entry if value is not None]
    rows += [("is_trusted", str(is_trusted))]
    print_table(printable(entry.trajectory_id), ("what", "value"), rows)
