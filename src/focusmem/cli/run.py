"""`focusmem run`: an agent attempts the tasks of a suite, of a file, or on one page."""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from focusmem.cli.output import print_json, print_table, printable
from focusmem.cli.settings import Assignments, ConfigFile, DryRun, settled

if TYPE_CHECKING:
    from focusmem.recipes.run_settings import RunSettings

_PARTS, _MORE = "Parts of the agent", "Attempts and resuming"

SuiteName = Annotated[
    str,
    typer.Argument(help="lab, miniwob, webvoyager, ... (`focusmem suites list`), a file of tasks (.jsonl), or a page."),
]
DataPath = Annotated[Path | None, typer.Option(help="The tasks of a benchmark: its file or folder.")]
IdsFile = Annotated[
    Path | None, typer.Option(help="Attempt only these tasks: a file with an id in each line.", rich_help_panel=_MORE)
]
Instruction = Annotated[str | None, typer.Option(help="What to do on the page.")]
MemoryName = Annotated[
    str | None, typer.Option(help="none, words, retrieved, or a trained memory: full, action-only, ... Default: none.")
]
PolicyName = Annotated[
    str | None, typer.Option(help="lab (ships), a folder, a hub id, or the URL of a chat endpoint. Default: lab.")
]
ModelName = Annotated[
    str | None, typer.Option("--model", help="The name of the policy's model at its endpoint.", rich_help_panel=_PARTS)
]
ActionFormatName = Annotated[
    str | None,
    typer.Option(
        "--format",
        help="How the model writes actions: json (ours; the default), ui-tars-pixels, ui-tars-thousandths, ui-venus, "
        "molmoweb or fara. Only json works with memory.",
        rich_help_panel=_PARTS,
    ),
]
BankName = Annotated[str | None, typer.Option(help="The bank to search: a folder, or lab for the one that ships.")]
BrowserName = Annotated[
    str | None,
    typer.Option(help="chromium (FOCUSMEM_BROWSER chooses which); auto; raster (the laboratory only)."),
]
NumTasks = Annotated[int | None, typer.Option(help="Number of the laboratory's tasks, for each seed.")]
Seed = Annotated[int | None, typer.Option(help="The seed that draws the laboratory's tasks.")]
NumParallel = Annotated[int | None, typer.Option(help="Episodes that run at the same time. Default: 16.")]
Device = Annotated[str | None, typer.Option(help="cpu or cuda. Default: cpu.")]
Out = Annotated[Path | None, typer.Option(help="The run's folder; default: named after the options.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")]
CheckpointFolder = Annotated[Path | None, typer.Option(help="The folder of a trained memory.", rich_help_panel=_PARTS)]
EmbedderName = Annotated[
    str | None, typer.Option(help="The embedder that searches use: lab, a folder or a hub id.", rich_help_panel=_PARTS)
]
TrustedSources = Annotated[
    bool | None,
    typer.Option(
        "--trusted-sources",
        help="Search only trajectories from sources that the bank trusts (`focusmem bank trust`).",
        rich_help_panel=_PARTS,
    ),
]
GrounderAddress = Annotated[
    str | None,
    typer.Option(help="The URL of a grounding model's endpoint; default: match element names.", rich_help_panel=_PARTS),
]
GrounderModel = Annotated[str | None, typer.Option(help="The grounding model's name there.", rich_help_panel=_PARTS)]
CacheFolder = Annotated[
    Path | None,
    typer.Option(
        help="A folder for encoded items, which later runs and `focusmem bank encode` share. Without it, items are "
        "kept in memory only. The bank is encoded before the first episode, unless memory.encodes_bank is false.",
        rich_help_panel=_PARTS,
    ),
]
NumProcesses = Annotated[
    int | None, typer.Option(help="Processes that share the tasks, each with its own policy.", rich_help_panel=_PARTS)
]
NumAttempts = Annotated[int | None, typer.Option(help="Attempts at each task.", rich_help_panel=_MORE)]
MaxSteps = Annotated[int | None, typer.Option(help="The step budget of every task.", rich_help_panel=_MORE)]
Recipe = Annotated[
    str | None,
    typer.Option(help="Initial settings: lab or web; default: the one that suits the suite.", rich_help_panel=_MORE),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Resume the run in --out; never begin one.", rich_help_panel=_MORE)
]
HasPage = Annotated[bool, typer.Option(help="Write the trace page when the run is over.", rich_help_panel=_MORE)]

_SETTING_OF: Final = {
    "suite": "suite.name",
    "data": "suite.data",
    "ids": "suite.ids",
    "instruction": "suite.instruction",
    "max_steps": "suite.max_steps",
    "attempts": "suite.num_attempts",
    "tasks": "suite.lab.num_tasks",
    "seed": "suite.lab.seed",
    "memory": "memory.name",
    "bank": "memory.bank",
    "checkpoint": "memory.checkpoint",
    "embedder": "memory.embedder",
    "trusted_sources": "memory.only_trusted",
    "cache": "memory.cache.folder",
    "policy": "policy.name",
    "model": "policy.model",
    "action_format": "policy.format",
    "device": "policy.device",
    "browser": "browser.kind",
    "grounder": "browser.grounder",
    "grounder_model": "browser.grounder_model",
    "parallel": "runner.num_parallel",
    "processes": "num_processes",
}
"""Which setting each option fills."""


def run(
    context: typer.Context,
    suite: SuiteName,
    instruction: Instruction = None,
    data: DataPath = None,
    memory: MemoryName = None,
    policy: PolicyName = None,
    model: ModelName = None,
    bank: BankName = None,
    browser: BrowserName = None,
    tasks: NumTasks = None,
    seed: Seed = None,
    parallel: NumParallel = None,
    device: Device = None,
    out: Out = None,
    as_json: AsJson = False,
    checkpoint: CheckpointFolder = None,
    embedder: EmbedderName = None,
    trusted_sources: TrustedSources = None,
    action_format: ActionFormatName = None,
    grounder: GrounderAddress = None,
    grounder_model: GrounderModel = None,
    cache: CacheFolder = None,
    processes: NumProcesses = None,
    attempts: NumAttempts = None,
    ids: IdsFile = None,
    max_steps: MaxSteps = None,
    recipe: Recipe = None,
    config: ConfigFile = None,
    assignments: Assignments = None,
    dry_run: DryRun = False,
    resume: Resume = False,
    page: HasPage = True,
) -> None:
    """focusmem run https://example.org/ --instruction "Find the opening hours" --policy Qwen/Qwen3-VL-8B-Instruct

    Let an agent attempt the tasks of a suite, the tasks of a file, or one task on any page. The same command resumes a
    run that was stopped.

    A file holds one task in each line: {"task_id": "mug", "instruction": "How much is the blue mug?", "start_url":
    "https://shop.example/", "site": "shop.example", "answer": "12 euros"}. The answer is optional; if the policy stops
    in a task without one, the episode is not judged.

    A hosted model: focusmem run tasks.jsonl --policy https://api.example.com/v1 --model their-model, with the key in
    FOCUSMEM_POLICY_KEY. --set policy.endpoint.prices='{"prompt": 1.25, "reply": 10}' adds up the costs (prices in
    dollars per million tokens). The run's folder keeps every reply, so a resumed run pays for none of them twice.

    On a laptop: focusmem run lab --memory full --tasks 5 --cache my-cache
    """
    from focusmem.recipes.run_settings import recipe as named
    from focusmem.recipes.run_settings import recipe_for

    base = named(recipe or recipe_for(suite))
    settings = settled(base, _given(context), config=config, assignments=assignments, dry_run=dry_run)
    folder = out or default_folder(settings)
    if resume:
        _check_begun(folder)
    results = _run(settings, folder)
    written = _write_page(folder) if page else None
    _tell(results, folder, written, as_json=as_json)


def _tell(results: dict[str, Any], folder: Path, page: str | None, *, as_json: bool) -> None:
    if as_json:
        print_json({**results, "run": printable(str(folder)), "page": page and printable(page)})
    else:
        _show(results, folder, page)


def _given(context: typer.Context) -> dict[str, Any]:
    """The options as settings; None for those that were not typed."""
    typed = {setting: context.params[name] for name, setting in _SETTING_OF.items()}
    return {setting: str(value) if isinstance(value, Path) else value for setting, value in typed.items()}


def default_folder(settings: "RunSettings") -> Path:
    """A folder name made of the options that usually differ between runs."""
    from focusmem.recipes.run_settings import LAB_SUITES

    suite, memory = settings.suite, settings.memory.name
    if suite.name in LAB_SUITES:
        name = f"{suite.name}-{memory}-{settings.browser.kind}-{suite.lab.seed}-{suite.lab.num_tasks}"
    elif suite.instruction is not None:
        from focusmem.files import sha256_hex

        name = f"page-{memory}-{sha256_hex(f'{suite.name} {suite.instruction}'.encode())[:8]}"
    else:
        name = f"{Path(suite.name).stem}-{memory}"
    if settings.policy.model is not None:
        name += "-" + re.sub(r"[^A-Za-z0-9.]+", "-", settings.policy.model.rpartition("/")[2]).strip("-.")
    return Path("runs") / name


def _check_begun(folder: Path) -> None:
    from focusmem.errors import ConfigError
    from focusmem.schemas.run_folder import RUN_FILE

    if not (folder / RUN_FILE).is_file():
        raise ConfigError(f"There is no run in {folder} to resume; leave out --resume to begin one.")


def _run(settings: "RunSettings", folder: Path) -> dict[str, Any]:
    """Make the run, with a live view."""
    typer.echo("Loading ...", err=True)
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # the bar would stay on the screen
    from contextlib import ExitStack

    from focusmem.cli.command_line import command_line
    from focusmem.cli.live_view import LiveView
    from focusmem.evaluation.watcher import Watcher
    from focusmem.recipes.run import run as make

    with ExitStack() as stack:

        def watch(attempts: Any, num_done: int) -> Watcher:
            name = settings.memory.name
            view = stack.enter_context(LiveView([name], attempts, num_done=num_done))
            return view.watcher(name)

        return make(settings, folder, watch=watch, command=command_line())


def _write_page(folder: Path) -> str:
    from focusmem.reports import write_page
    from focusmem.schemas import RunFolder

    return str(write_page([RunFolder.open(folder)], folder / "page.html").path)


def _show(results: dict[str, Any], folder: Path, page: str | None) -> None:
    from focusmem.reports.words import at_once, cache_state, judge_words, task_set

    rows = [(kind, _percent(one["success_rate"]), str(one["num_tasks"])) for kind, one in results["by_kind"].items()]
    if rows:
        print_table(f"memory: {results['memory']}", ("kind", "success", "tasks"), rows)
    if results["success_rate"] is None:
        typer.echo("No episode was judged, because the right answers are not known.")
    else:
        low, high = results["success_interval"]
        typer.echo(
            f"Success {_percent(results['success_rate'])} ({_percent(low)} to {_percent(high)}) of "
            f"{results['num_tasks']} tasks."
        )
        if results["num_not_judged"]:
            typer.echo(
                f"{results['num_not_judged']} episodes were not judged and count as not won; of the judged ones, "
                f"{_percent(results['judged_success_rate'])} succeeded."
            )
    if results["mean_step_s"] is not None:
        typer.echo(
            f"{results['mean_steps']:.1f} steps per episode, {_percent(results['hit_max_rate'])} at the step limit, "
            f"{results['unreadable_rate']:.2%} of replies unreadable."
        )
        typer.echo(
            f"{results['mean_step_s']:.2f} s per step from observation to action, with {at_once(results)} episodes at "
            f"once; items encoded: {cache_state(results)}."
        )
    for judge in results["judges"]:
        if judge["model"] is not None:
            typer.echo(printable(judge_words(judge)))
    if spending := results.get("spending"):
        typer.echo(_spending(spending))
    typer.echo(f"{results['num_errors']} episodes ended in an error, {results['num_blocked']} were blocked by a site.")
    typer.echo(printable(task_set(results)))
    typer.echo(printable(f"Run: {folder}") + ("" if page is None else printable(f"   Page: {page}")))


def _spending(spending: dict[str, Any]) -> str:
    tokens = f"{spending['num_prompt_tokens']:,} tokens of prompts and {spending['num_reply_tokens']:,} of replies"
    unknown = spending["num_without_cost"]
    cost = f"; the cost of {unknown} is not known" if unknown else ""
    return f"The endpoint's {spending['num_replies']} replies cost {spending['cost_usd']:.4f} USD ({tokens}{cost})."


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"
