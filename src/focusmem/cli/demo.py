"""`focusmem demo`: memory at work, to watch and to read about."""

import os
from pathlib import Path
from typing import Annotated

import typer


def demo(
    seed: Annotated[int, typer.Option(min=0, help="Which tasks: equal seeds draw equal tasks.")] = 0,
    tasks: Annotated[int, typer.Option(min=1, help="How many.")] = 3,
    browser: Annotated[
        str, typer.Option(help="chromium; raster (pages are drawn here, without a browser); auto: Chromium if there.")
    ] = "auto",
    weights: Annotated[
        Path | None,
        typer.Option(help="A folder with policy, embedder, memory/full and bank; default: what ships with focusmem."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Where runs and page go; what an earlier demo left there is replaced.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON document, with a row for each task.")] = False,
    open: Annotated[bool, typer.Option("--open", help="Show the page in your browser.")] = False,
) -> None:
    """focusmem demo --seed 0

    Let the laboratory's policy solve a few tasks without and with memory, side by side, and write a page in which every
    step of both can be read.

    Tasks are those that the seed draws first, on sites that the bank holds a trajectory of. Nothing sees to it that
    memory helps with them.
    """
    typer.echo("Loading ...", err=True)
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # loading takes a second, and the line would stay
    import time
    import webbrowser
    from dataclasses import asdict

    from focusmem.cli.command_line import command_line
    from focusmem.cli.demo_view import DemoView
    from focusmem.cli.output import print_json, printable
    from focusmem.lab.demo.demo import METHODS, DemoConfig, demonstrate
    from focusmem.lab.demo.story import stories, told
    from focusmem.lab.shipped import Weights

    started = time.monotonic()
    config = DemoConfig(seed=seed, num_tasks=tasks, browser=browser)  # type: ignore[arg-type]
    folder = out or Path("runs") / f"demo-{seed}"
    with DemoView() as view:
        parts = Weights() if weights is None else Weights(weights)
        shown = demonstrate(config, parts, folder, view, command=command_line())
    found = stories(shown)
    page = shown.page.path.absolute()
    if json:
        print_json(
            {
                "page": printable(str(page)),
                "runs": {method: printable(str(folder / method)) for method in METHODS},
                "seed": seed,
                "browser": shown.browser,
                "why_raster": shown.why_raster,
                "seconds": round(time.monotonic() - started, 1),
                "num_solved": {
                    method: sum(story.outcomes[method] == "success" for story in found) for method in METHODS
                },
                "tasks": [{"seed": seed, **asdict(story)} for story in found],
            }
        )
    else:
        typer.echo()
        for line in told(found):
            typer.echo(printable(line))
        typer.echo(f"Every step of both, side by side: {printable(str(page))}")
    if open:
        webbrowser.open(page.as_uri())
