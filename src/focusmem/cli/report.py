"""`focusmem report`: the trace page of a run."""

from pathlib import Path
from typing import Annotated

import typer

_NUM_PROBLEMS = 10


def report(
    run: Annotated[Path, typer.Argument(help="The folder of a run.", metavar="RUN")],
    other: Annotated[Path | None, typer.Argument(help="Another run, shown beside it.", metavar="RUN2")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="The page to write; default: page.html in RUN.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of lines.")] = False,
) -> None:
    """focusmem report runs/full runs/none --out page.html

    Write the trace page of a run, or of two runs beside each other: every step with its screenshot, action, prompt,
    memory and times, and the verdict. The page is one file that needs no network.

    A very large page keeps its pictures in a folder beside it. Damaged episodes are skipped and named.
    """
    import sys

    from focusmem.cli.output import print_json, printable
    from focusmem.evaluation.metrics import figures
    from focusmem.progress import Progress
    from focusmem.reports import write_page
    from focusmem.schemas import RunFolder

    runs = [RunFolder.open(path) for path in (run, other) if path is not None]
    with Progress("read", total=sum(len(folder.places(folder.manifest())) for folder in runs)) as line:
        page = write_page(
            runs,
            out or run / "page.html",
            watch=lambda is_read: line.step(failed=not is_read),
            count_figures=figures,
        )
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
