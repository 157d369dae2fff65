"""`focusmem report`: a page in which a person reads a run."""

from pathlib import Path
from typing import Annotated

import typer

_NUM_PROBLEMS = 10


def report(
    run: Annotated[Path, typer.Argument(help="The folder of a run.", metavar="RUN")],
    other: Annotated[Path | None, typer.Argument(help="Another run, to read beside it.", metavar="RUN2")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="The page to write; page.html in the run's folder unless told.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of lines.")] = False,
) -> None:
    """focusmem report runs/full runs/none --out page.html

    Write the trace page of a run, or of two beside each other: every step with its screenshot, action, prompt, memory
    and times, in one file that needs no network.

    A page that would be too large for comfort keeps its pictures in a folder beside it. Episodes that cannot be read
    are skipped and named.
    """
    import sys

    from focusmem.cli.output import print_json, printable
    from focusmem.progress import Progress
    from focusmem.reports import RunFolder, write_page

    runs = [RunFolder.open(path) for path in (run, other) if path is not None]
    with Progress("read", total=sum(opened.num_episodes for opened in runs)) as line:
        page = write_page(runs, out or run / "page.html", watch=lambda is_read: line.step(failed=not is_read))
    for problem in page.problems[:_NUM_PROBLEMS]:
        sys.stderr.write(f"{printable(problem)}\n")
    if len(page.problems) > _NUM_PROBLEMS:
        sys.stderr.write(f"... and {len(page.problems) - _NUM_PROBLEMS} more, which the page lists\n")
    if as_json:
        print_json(
            {
                "page": printable(str(page.path)),
                "picture_folder": printable(str(page.picture_folder)) if page.picture_folder else None,
                "num_episodes": page.num_episodes,
                "num_skipped": page.num_skipped,
                "num_bytes": page.num_bytes,
            }
        )
        return
    skipped = f", {page.num_skipped} skipped" if page.num_skipped else ""
    beside = f" (pictures in {printable(str(page.picture_folder))})" if page.picture_folder else ""
    size = f"{page.num_bytes / 1e6:.1f} MB"
    print(f"{printable(str(page.path))}: {page.num_episodes} episodes{skipped}, {size}{beside}")
