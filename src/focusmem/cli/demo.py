"""`focusmem demo`: runs the demonstration, with a live view and a page."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack

    from focusmem.evaluation.watcher import Watcher
    from focusmem.lab.demo.story import TaskStory
    from focusmem.recipes.demo import Opening


def demo(
    seed: Annotated[int, typer.Option(min=0, help="The seed of the tasks; equal seeds draw equal tasks.")] = 0,
    tasks: Annotated[int, typer.Option(min=1, help="Number of tasks.")] = 3,
    browser: Annotated[
        str,
        typer.Option(
            help="chromium (FOCUSMEM_BROWSER chooses which); raster (pages are drawn without a browser); "
            "auto (raster if Chromium does not start)."
        ),
    ] = "auto",
    weights: Annotated[
        Path | None,
        typer.Option(help="A folder with policy, embedder, memory/full and bank; default: the shipped weights."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder for runs and page; an earlier demonstration there is replaced.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document, with a row for each task.")] = False,
    open: Annotated[bool, typer.Option("--open", help="Show the page in your browser.")] = False,
) -> None:
    """focusmem demo --seed 0

    Let a small policy solve a few tasks without and with memory, side by side. Write a page that shows every step of
    both runs.

    Tasks are drawn at random with the seed, on sites for which the bank holds a trajectory. They are not selected
    further.
    """
    typer.echo("Loading ...", err=True)
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # the bar would stay on the screen
    import time
    import webbrowser
    from contextlib import ExitStack

    from focusmem.cli.command_line import command_line
    from focusmem.cli.output import print_json, printable
    from focusmem.lab.demo.story import stories, told
    from focusmem.lab.shipped import Weights
    from focusmem.recipes.demo import DemoConfig, demonstrate

    started = time.monotonic()
    config = DemoConfig(seed=seed, num_tasks=tasks, browser=browser)  # type: ignore[arg-type]
    folder = out or Path("runs") / f"demo-{seed}"
    with ExitStack() as stack:
        parts = Weights() if weights is None else Weights(weights)
        opening, shown = demonstrate(config, parts, folder, lambda now: _watch(now, stack), command=command_line())
    found = stories(folder, opening.suite.lab_tasks)
    page = shown.page.path.absolute()
    if json:
        seconds = round(time.monotonic() - started, 1)
        print_json(_document(opening, page, found, {"seed": seed, "seconds": seconds, "folder": folder}))
    else:
        typer.echo()
        for line in told(found):
            typer.echo(printable(line))
        typer.echo(f"Every step of both, side by side: {printable(str(page))}")
    if open:
        webbrowser.open(page.as_uri())


def _document(opening: "Opening", page: Path, found: "list[TaskStory]", about: dict[str, Any]) -> dict[str, Any]:
    from dataclasses import asdict

    from focusmem.cli.output import printable
    from focusmem.lab.demo.demo import METHODS

    return {
        "page": printable(str(page)),
        "runs": {method: printable(str(about["folder"] / method)) for method in METHODS},
        "seed": about["seed"],
        "browser": opening.browser,
        "why_raster": opening.why_raster,
        "seconds": about["seconds"],
        "num_solved": {method: sum(story.outcomes[method] == "success" for story in found) for method in METHODS},
        "tasks": [{"seed": about["seed"], **asdict(story)} for story in found],
    }


def _watch(opening: "Opening", stack: "ExitStack") -> "Callable[[str], Watcher]":
    """Prints an introduction and opens the live view."""
    from focusmem.cli.live_view import LiveView
    from focusmem.cli.output import printable
    from focusmem.lab.demo.demo import LABELS
    from focusmem.reports.words import counted

    if opening.why_raster is not None:
        typer.echo(printable(f"Chromium does not start, so the pages are drawn here. {opening.why_raster}"), err=True)
    where = "in Chromium" if opening.browser == "chromium" else "on pages that are drawn here, without a browser"
    tasks = opening.suite.tasks
    typer.echo(f"{counted(len(tasks), 'task')} {where}, without and with memory at the same time:", err=True)
    for number, task in enumerate(tasks, start=1):
        typer.echo(printable(f"  {number}. {task.instruction}"), err=True)
    view = stack.enter_context(LiveView(list(LABELS.values()), [(task, 1) for task in tasks]))
    return lambda method: view.watcher(LABELS[method])
