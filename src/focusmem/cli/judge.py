"""`focusmem judge`: judge the episodes of a run again, or screen a suite."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from focusmem.recipes.judge import JudgeRequest

_MODEL, _WHAT = "Judge model", "What is done"

RunFolderPath = Annotated[Path, typer.Argument(help="The folder of a run.", metavar="RUN")]
Judges = Annotated[
    list[str] | None,
    typer.Option(
        "--judge",
        metavar="NAME[:PROFILE][@MODEL]",
        help="mmina, webvoyager, deepshop, online-mind2web, exact, automatic; repeatable. Default: the suite's judge.",
    ),
]
Tasks = Annotated[Path | None, typer.Option(help="A task file (.jsonl) with corrected answers.")]
Profile = Annotated[
    str | None,
    typer.Option(help="The variant of the judge's rules: paper, official or holistic.", rich_help_panel=_MODEL),
]
Model = Annotated[
    str | None,
    typer.Option(help="The judge model; default: the model that the profile names.", rich_help_panel=_MODEL),
]
Url = Annotated[
    str | None,
    typer.Option(
        help="The judge model's endpoint, such as http://localhost:8000/v1. The key is read from FOCUSMEM_JUDGE_KEY.",
        rich_help_panel=_MODEL,
    ),
]
Prompts = Annotated[Path | None, typer.Option(help="A folder with other judge prompts.", rich_help_panel=_MODEL)]
Together = Annotated[
    int | None,
    typer.Option("--parallel", min=1, help="Number of questions sent at the same time.", rich_help_panel=_MODEL),
]
Price = Annotated[
    tuple[float, float] | None,
    typer.Option(
        metavar="PROMPT REPLY",
        help="Dollars per million prompt tokens and per million reply tokens.",
        rich_help_panel=_MODEL,
    ),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Any other judge setting, such as endpoint.timeout_s=60; repeatable.",
        rich_help_panel=_MODEL,
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Only estimate calls, images, tokens and dollars.", rich_help_panel=_WHAT)
]
Replay = Annotated[
    bool, typer.Option("--replay", help="Only parse stored replies again; nothing is sent.", rich_help_panel=_WHAT)
]
Again = Annotated[
    bool,
    typer.Option(
        "--again",
        help="Judge again what is already judged, from stored replies if there are any.",
        rich_help_panel=_WHAT,
    ),
]
Beside = Annotated[bool, typer.Option("--beside", help="Do not change which verdicts count.", rich_help_panel=_WHAT)]
Screen = Annotated[
    bool,
    typer.Option(
        "--screen", help="Audit the failed episodes, and freeze the accessible subset.", rich_help_panel=_WHAT
    ),
]
Labels = Annotated[
    Path | None, typer.Option(help="A file with human labels, to compare the verdicts with.", rich_help_panel=_WHAT)
]
LabelAgent = Annotated[
    str | None,
    typer.Option(
        help="The agent whose labels to use, if the file has labels for several agents.", rich_help_panel=_WHAT
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of lines.")]


def judge(
    run: RunFolderPath,
    judges: Judges = None,
    tasks: Tasks = None,
    profile: Profile = None,
    model: Model = None,
    url: Url = None,
    prompts: Prompts = None,
    together: Together = None,
    price: Price = None,
    assignments: Assignments = None,
    dry_run: DryRun = False,
    replay: Replay = False,
    again: Again = False,
    beside: Beside = False,
    screen: Screen = False,
    labels: Labels = None,
    label_agent: LabelAgent = None,
    as_json: AsJson = False,
) -> None:
    """focusmem judge runs/webvoyager-full --profile paper --url https://example.org/v1 --dry-run

    Judge the finished episodes of a run again. No episode is repeated. The verdicts of the first judge replace those
    that count; every judge's verdicts are kept beside them. The same command resumes after a stop, and nothing that is
    already judged is paid for again.

    Several judges, and their agreement: focusmem judge RUN --judge webvoyager:paper --judge webvoyager:official@gpt-4o

    Screen a live suite once, with a run of a reference policy: focusmem judge RUN --screen --url https://example.org/v1

    On a laptop, without a model: focusmem judge runs/lab-full-raster-0-5
    """
    from focusmem.cli.output import print_json
    from focusmem.recipes.judge import JudgeRequest

    _check(screen=screen, replay=replay, dry_run=dry_run)
    given: dict[str, Any] = {
        "profile": profile,
        "model": model,
        "url": url,
        "prompts": prompts and str(prompts),
        "num_together": together,
        "endpoint.prices": price and {"prompt": price[0], "reply": price[1]},
    }
    request = JudgeRequest(
        judges=tuple(judges or ()),
        changes={name: value for name, value in given.items() if value is not None},
        assignments=tuple(assignments or ()),
        tasks=tasks,
        again=again,
        beside=beside,
        labels=labels,
        label_agent=label_agent,
    )
    found, show = _work(run, request, dry_run=dry_run, replay=replay, screens=screen)
    if as_json:
        print_json(found)
    else:
        show(run, found)


def _check(*, screen: bool, replay: bool, dry_run: bool) -> None:
    from focusmem.errors import ConfigError

    if replay and (screen or dry_run):
        raise ConfigError("--replay only parses stored replies, which costs nothing. Leave out --dry-run and --screen.")


def _work(
    run: Path, request: "JudgeRequest", *, dry_run: bool, replay: bool, screens: bool
) -> tuple[dict[str, Any], Any]:
    from focusmem.recipes.judge import estimate_run, estimate_screen, judge_run, parse_run_again, screen_run

    if dry_run:
        return (estimate_screen if screens else estimate_run)(run, request), _show_estimate
    if screens:
        return screen_run(run, request), _show_screening
    return (parse_run_again if replay else judge_run)(run, request), _show_judging


def _show_estimate(run: Path, found: Mapping[str, Any]) -> None:
    usd = found["about_usd"]
    dollars = "unknown dollars; give --price" if usd is None else f"about {usd:.2f} dollars"
    typer.echo(
        f"At most {found['at_most_calls']} calls with {found['at_most_images']} images: roughly "
        f"{found['about_prompt_tokens']} tokens of prompts and {found['about_reply_tokens']} of replies, {dollars}. "
        "Nothing was sent."
    )


def _show_screening(run: Path, found: Mapping[str, Any]) -> None:
    from focusmem.cli.output import print_table, printable
    from focusmem.schemas.run_folder import SCREENING_FILE

    blocked = found["blocked"]
    if blocked:
        rows = [(printable(one["task_id"]), one["kind"], str(one["step"]), printable(one["reason"])) for one in blocked]
        print_table(f"{found['suite']}: blocked by {found['model']}", ("task", "kind", "step", "reason"), rows)
    typer.echo(
        f"{len(found['kept'])} tasks kept, {len(blocked)} blocked. {found['num_audited']} failed episodes audited, "
        f"{found['num_unreadable']} replies unreadable (kept), {found['num_errors']} errors (not audited, kept)."
    )
    _show_departures(found["departures"])
    typer.echo(printable(f"Frozen subset: {run / SCREENING_FILE}"))


def _show_judging(run: Path, found: Mapping[str, Any]) -> None:
    from focusmem.cli.output import print_table, printable

    judging = found["judging"]
    if judging["judges"]:
        rows = [_judge_row(one) for one in judging["judges"].values()]
        print_table("Judges", _JUDGE_COLUMNS, rows)
        _show_departures(sorted({text for one in judging["judges"].values() for text in one["departures"]}))
    if judging["agreement"]:
        print_table("Agreement", _AGREEMENT_COLUMNS, [_agreement_row(one) for one in judging["agreement"]])
    typer.echo(
        f"{found['num_episodes']} episodes judged, {found['num_changed']} outcomes changed. "
        + printable(f"Figures: {run / 'results.json'}, {run / 'judging.json'}")
    )


_JUDGE_COLUMNS = (
    "judge", "model", "success", "failure", "error", "not judged", "unreadable", "strict parser differs", "calls",
    "dollars",
)  # fmt: skip
_AGREEMENT_COLUMNS = ("judges", "both judged", "both success", "only first", "only second", "agree", "kappa")


def _judge_row(one: Mapping[str, Any]) -> tuple[str, ...]:
    from focusmem.cli.output import printable

    name = one["judge"] if one["profile"] is None else f"{one['judge']} ({one['profile']})"
    counts = (one[f"num_{name}"] for name in ("success", "failure", "error", "not_judged", "unreadable"))
    usd = "-" if one["usd"] is None else f"{one['usd']:.2f}"
    return (
        printable(name),
        printable(one["model"] or "-"),
        *map(str, counts),
        str(one["num_parser_disagreements"]),
        str(one["num_calls"]),
        usd,
    )


def _agreement_row(one: Mapping[str, Any]) -> tuple[str, ...]:
    (_, only_second), (only_first, both) = one["table"]
    share, kappa = one["agreement"], one["kappa"]
    return (
        f"{one['first']} / {one['second']}",
        str(one["num_both"]),
        *map(str, (both, only_first, only_second)),
        "-" if share is None else f"{share:.1%}",
        "-" if kappa is None else f"{kappa:.2f}",
    )


def _show_departures(departures: list[str]) -> None:
    from focusmem.cli.output import printable

    for departure in departures:
        typer.echo(printable(f"Departure: {departure}."))
