"""`focusmem compare` and `focusmem table`: runs over the same tasks, compared task by task."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from focusmem.schemas.screening import Screening


def compare(
    run: Annotated[Path, typer.Argument(help="The folder of a run.", metavar="RUN")],
    other: Annotated[Path, typer.Argument(help="The run to compare it with.", metavar="RUN2")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")] = False,
) -> None:
    """focusmem compare runs/full runs/none

    Print how much better RUN does than RUN2, over all tasks and for each kind of task. Runs are paired by task; figures
    have 95 % intervals.

    An error or a blocked episode counts as not won. A task that one of the runs has not attempted or not judged is left
    out, and the number of such tasks is printed. Runs of different tasks are refused.
    """
    from focusmem.cli.output import print_json, print_table, printable
    from focusmem.evaluation.comparison import compare as compared

    found = compared(run, other)
    if as_json:
        print_json(found)
        return
    rows = [_row(kind, part) for kind, part in [*found["by_kind"].items(), ("all", found)]]
    title = f"{found['first']['memory']} ({run}) and {found['second']['memory']} ({other})"
    print_table(printable(title), ("kind", "tasks", "success", "difference", "better", "steps"), rows)
    success = _gain(found, "success_difference", "{:+.1%}")
    typer.echo(f"Difference in success: {success}. Difference in steps: {_gain(found, 'steps_difference', '{:+.2f}')}.")
    errors, blocks = (f"{found['first'][name]} and {found['second'][name]}" for name in ("num_errors", "num_blocked"))
    typer.echo(
        f"Both won {found['num_both_won']} tasks, neither won {found['num_both_lost']}. Errors: {errors}. Blocks: "
        f"{blocks}. Tasks left out: "
        f"{found['num_not_attempted_by_both']} because a run did not attempt them, {found['num_not_judged_in_both']} "
        "because a run did not judge them."
    )
    _show_judges([found["first"], found["second"]])


def _row(kind: str, part: Mapping[str, Any]) -> tuple[str, ...]:
    from focusmem.cli.output import printable

    return (
        printable(kind),
        str(part["num_pairs"]),
        " / ".join(f"{rate:.0%}" for rate in part["success_rates"]),
        _gain(part, "success_difference", "{:+.0%}"),
        f"{part['num_first_better']} / {part['num_second_better']}",
        " / ".join(f"{steps:.1f}" for steps in part["mean_steps"] or ()) or "-",
    )


def _show_judges(runs: Sequence[Mapping[str, Any]], *, only_models: bool = False) -> None:
    """Names every judge, its model, and its departures from its profile."""
    from focusmem.cli.output import printable
    from focusmem.reports.words import judge_words

    judges = [judge for one in runs for judge in one["judges"] if judge["model"] is not None or not only_models]
    for words in dict.fromkeys(map(judge_words, judges)):
        typer.echo(("\n" if only_models else "") + printable(words))


def table(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs; the first is the baseline.", metavar="RUN...")],
    by_kind: Annotated[bool, typer.Option("--by-kind", help="Print the success rate for each kind of task.")] = False,
    is_overall: Annotated[
        bool,
        typer.Option(
            "--overall", help="Compare runs of several suites: a row for each method, with the mean over suites."
        ),
    ] = False,
    subsets: Annotated[
        list[Path] | None,
        typer.Option(
            "--subset",
            help="Use only the tasks of a frozen subset: screening.json, or the run that was screened; repeatable.",
        ),
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Also draw the success rates with their intervals, as PNG.")] = None,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print a table in Markdown.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")] = False,
) -> None:
    """focusmem table runs/none runs/replay runs/action-only runs/content runs/full --plot table.png

    Print a row for each run over the same tasks: its success, errors, steps, time and tokens, and the share of offered
    blocks that were accepted. A step's time is wall-clock time from observation to action. Compare step times only
    between runs with the same number of episodes at once.

    Each row also shows the gains over the first run and over the run above, paired by task, with 95 % intervals.

    Several suites: focusmem table --overall runs/webvoyager-full runs/deepshop-full runs/webvoyager-none
    """
    from focusmem.cli.output import print_json, print_markdown, print_table, printable
    from focusmem.evaluation.screening import read_screening
    from focusmem.evaluation.table import tabulate
    from focusmem.evaluation.table_plot import plot_table
    from focusmem.reports.words import task_set

    screenings = [read_screening(path) for path in subsets or ()]
    if is_overall:
        _print_overall(runs, screenings, as_markdown=as_markdown, as_json=as_json)
        return
    found = tabulate(runs, screenings)["rows"]
    if plot is not None:
        plot_table(found, plot)
    if as_json:
        print_json({"rows": found})
        return
    kinds = sorted({kind for one in found for kind in one["by_kind"]})
    columns = ("run", "all", *map(printable, kinds)) if by_kind else _COLUMNS
    rows = [_kind_row(one, kinds) if by_kind else _table_row(one) for one in found]
    if as_markdown:
        print_markdown(columns, rows)
        typer.echo()
        typer.echo(printable(task_set(found[0])))
        _show_judges(found, only_models=True)
        return
    print_table(f"{found[0]['num_tasks']} tasks{_attempts(found)}", columns, rows)
    typer.echo(printable(task_set(found[0])))
    _show_judges(found)


def _attempts(rows: Sequence[Mapping[str, Any]]) -> str:
    """States how many attempts each run made at each task, if a run made several."""
    numbers = sorted({row["num_attempts"] for row in rows})
    if numbers == [1]:
        return ""
    return f", {' or '.join(map(str, numbers))} attempts at each"


def _print_overall(
    runs: Sequence[Path], screenings: Sequence["Screening"], *, as_markdown: bool, as_json: bool
) -> None:
    from focusmem.cli.output import print_json, print_markdown, print_table, printable
    from focusmem.evaluation.comparison import ReadRun
    from focusmem.evaluation.overall import overall

    found = overall([ReadRun.read(path) for path in runs], screenings)
    if as_json:
        print_json(found)
        return
    columns = ("memory", "policy", *map(printable, found["suites"]), "overall")
    rows = [_overall_row(one, found["suites"]) for one in found["rows"]]
    judged = [figures for one in found["rows"] for figures in one["suites"].values()]
    if as_markdown:
        print_markdown(columns, rows)
        _show_judges(judged, only_models=True)
        return
    print_table("Success in each suite, with failed / errors / blocked, and the unweighted mean", columns, rows)
    _show_judges(judged)


def _overall_row(one: Mapping[str, Any], suites: Sequence[str]) -> tuple[str, ...]:
    from focusmem.cli.output import printable

    cells = [one["suites"].get(suite) for suite in suites]
    return (
        printable(one["memory"]),
        printable(one["policy"] or "-"),
        *("-" if cell is None else f"{_rate(cell)} of {cell['num_tasks']}; {_lost(cell)}" for cell in cells),
        _figure(one["overall"], None, "{:.2%}"),
    )


def _lost(one: Mapping[str, Any]) -> str:
    return " / ".join(str(one[name]) for name in ("num_failed", "num_errors", "num_blocked"))


_COLUMNS = (
    "run", "success", "failed", "errors", "blocked", "not judged", "gain over the first", "over the one above", "steps",
    "Hit-Max", "s per task",
    "s per step", "at once", "items encoded", "tokens", "of memory", "accepted",
)  # fmt: skip


def _table_row(one: Mapping[str, Any]) -> tuple[str, ...]:
    from focusmem.cli.output import printable
    from focusmem.reports.words import at_once, cache_state

    gains = (one["over_first"], one["over_previous"])
    return (
        printable(Path(one["run"]).name),
        _rate(one),
        *(str(one[name]) for name in ("num_failed", "num_errors", "num_blocked", "num_not_judged")),
        *("-" if gain is None else _gain(gain, "success_difference", "{:+.1%}") for gain in gains),
        _figure(one["mean_steps"], None, "{:.2f}"),
        _figure(one["hit_max_rate"], None, "{:.1%}"),
        _figure(one["mean_task_s"], None, "{:.1f}"),
        _figure(one["mean_step_s"], None, "{:.2f}"),
        at_once(one),
        cache_state(one),
        _figure(one["mean_prompt_tokens"], None, "{:.0f}"),
        _figure(one["mean_memory_tokens"], None, "{:.0f}"),
        _figure(one["accepted_rate"], None, "{:.1%}"),
    )


def _kind_row(one: Mapping[str, Any], kinds: Sequence[str]) -> tuple[str, ...]:
    from focusmem.cli.output import printable

    parts = [one["by_kind"].get(kind) for kind in kinds]
    return printable(Path(one["run"]).name), _rate(one), *("-" if part is None else _rate(part) for part in parts)


def _rate(one: Mapping[str, Any]) -> str:
    return _figure(one["success_rate"], one["success_interval"], "{:.1%}")


def _gain(one: Mapping[str, Any], name: str, form: str) -> str:
    return _figure(one[name], one.get(f"{name}_interval"), form)


def _figure(value: float | None, interval: Sequence[float] | None, form: str) -> str:
    """A figure with its interval if it has one. A missing figure is a dash, never 0."""
    if value is None:
        return "-"
    ends = "" if interval is None else f" ({' to '.join(form.format(end) for end in interval)})"
    return form.format(value) + ends
