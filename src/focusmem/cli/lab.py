"""`focusmem lab`: the sites, solvers and policy of the small offline world."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from focusmem.cli.output import print_json, print_table
from focusmem.cli.settings import Assignments, ConfigFile, DryRun, settled

if TYPE_CHECKING:
    from focusmem.lab.world.solving import Solved
    from focusmem.model.backbone import Backbone

app = typer.Typer(no_args_is_help=True)

PolicyOption = Annotated[
    Path | None,
    typer.Option(help="A policy folder, as `focusmem lab pretrain` writes it; default: the shipped one."),
]

SuiteOption = Annotated[str, typer.Option(help="lab (markets and encyclopedias) or lab-entries (offices).")]


@app.callback()
def _group() -> None:
    pass


@app.command()
def serve(
    seed: Annotated[int, typer.Option(help="The seed of the world: equal seeds give equal sites.")] = 0,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="The port to listen on; 0 takes a free one.")] = 8080,
    open: Annotated[bool, typer.Option("--open", help="Show the index page in your browser.")] = False,
) -> None:
    """focusmem lab serve --seed 7 --port 8080

    Serve the laboratory's sites as web pages on this machine, until Ctrl-C.
    """
    import webbrowser

    from focusmem.lab.world.server import LabServer
    from focusmem.lab.world.world import World

    with LabServer(World(seed), port) as server:
        typer.echo(f"The laboratory is at {server.url} (Ctrl-C stops it).")
        if open:
            webbrowser.open(server.url)
        wait_for_interrupt()
    typer.echo("Stopped.")


@app.command()
def zim(
    out: Annotated[Path, typer.Argument(help="The file to write, such as encyclopedia.zim.")],
    sites: Annotated[int, typer.Option(min=1, help="Number of the laboratory's encyclopedias to write.")] = 4,
    seed: Annotated[int, typer.Option(help="Which world: equal seeds give equal sites.")] = 0,
) -> None:
    """focusmem lab zim encyclopedia.zim

    Write articles of the laboratory's encyclopedias as a ZIM file, the format of offline Wikipedia. Needs the package
    libzim. To browse it: kiwix-serve --port 8888 encyclopedia.zim
    """
    from focusmem.lab.world.world import World
    from focusmem.lab.world.zim import write_zim

    num = write_zim(World(seed), out, num_sites=sites)
    typer.echo(f"{out}: {num} articles")


@app.command()
def solve(
    solver: Annotated[
        str,
        typer.Option(
            help="expert (knows each site's conventions), explorer (finds them by trying), nothing (stops at once)."
        ),
    ] = "expert",
    tasks: Annotated[int, typer.Option(min=1, help="Number of evaluation tasks.")] = 20,
    seed: Annotated[int, typer.Option(help="The seed of the tasks and of the explorer's choices.")] = 0,
    browser: Annotated[str, typer.Option(help="raster (draws the pages itself) or chromium.")] = "raster",
    world_seed: Annotated[int, typer.Option(help="The seed of the world: equal seeds give equal sites.")] = 0,
    suite: SuiteOption = "lab",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document, with a row for each task.")] = False,
) -> None:
    """focusmem lab solve --solver explorer --tasks 20

    Let a rule-based agent attempt evaluation tasks of the laboratory.
    """
    from focusmem.lab.suite import LabSuite, LabSuiteConfig
    from focusmem.lab.world import solving

    drawn = LabSuite(LabSuiteConfig(num_tasks=tasks, seed=seed, world_seed=world_seed), name=suite_name(suite))
    solved = solving.solve(drawn.world, drawn.lab_tasks, solver, seed, browser)
    if json:
        setting = {"suite": suite, "solver": solver, "browser": browser, "seed": seed, "world_seed": world_seed}
        print_json(setting | solving.summary(solved))
    else:
        _show(solved, f"{solver} in {browser}")


def _show(solved: "Sequence[Solved]", title: str) -> None:
    by_kind: defaultdict[str, list[Solved]] = defaultdict(list)
    for one in solved:
        by_kind[one.task.kind].append(one)
    groups = [*sorted(by_kind.items()), ("all", solved)]
    print_table(title, ("kind", "success", "tasks", "mean steps"), [_row(kind, group) for kind, group in groups])


def _row(kind: str, group: "Sequence[Solved]") -> tuple[str, str, str, str]:
    num = len(group)
    success = sum(one.is_success for one in group) / num
    return kind, f"{success:.1%}", str(num), f"{sum(len(one.actions) for one in group) / num:.1f}"


@app.command()
def statistics(
    suite: SuiteOption = "lab-entries",
    tasks: Annotated[int, typer.Option(min=1, help="How many evaluation tasks.")] = 400,
    seed: Annotated[int, typer.Option(help="The seed of the tasks.")] = 0,
    world_seed: Annotated[int, typer.Option(help="Which world: equal seeds give equal sites.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """focusmem lab statistics --suite lab-entries

    Count the bits of the values that a trajectory shows and some task may need, and the bits of the value that one
    decision needs.
    """
    from focusmem.errors import ConfigError
    from focusmem.lab.suite import LabSuite, LabSuiteConfig
    from focusmem.lab.world.statistics import summary

    if suite_name(suite) != "lab-entries":
        raise ConfigError("Only the tasks of lab-entries need entries of lists; use --suite lab-entries.")
    drawn = LabSuite(LabSuiteConfig(num_tasks=tasks, seed=seed, world_seed=world_seed), name=suite)
    found = summary(drawn.world, drawn.lab_tasks)
    if json:
        print_json({"suite": suite, "seed": seed, "world_seed": world_seed, "kinds": found})
        return
    columns = ("kind", "tasks", "decisions", "entries shown", "bits shown", "bits needed", "ratio", "least ratio")
    names = ("num_tasks", "num_decisions", "entries_shown", "bits_shown", "bits_needed", "mean_ratio", "least_ratio")
    print_table(
        f"bits in {suite}", columns, [(kind, *(f"{one[name]:.4g}" for name in names)) for kind, one in found.items()]
    )
    typer.echo(f"An action of the trajectory repeats the value in {found['all']['given_away_rate']:.1%} of decisions.")


@app.command()
def pretrain(
    out: Annotated[Path, typer.Option(help="The run's folder. The same command resumes a stopped run.")],
    minutes: Annotated[float | None, typer.Option(help="Time to train for, over all runs in this folder.")] = None,
    pause_after: Annotated[
        float | None, typer.Option(help="Save and stop after this many minutes, to be resumed later.")
    ] = None,
    start: Annotated[Path | None, typer.Option(help="Initial weights: the folder of an earlier policy.")] = None,
    reading_steps: Annotated[int | None, typer.Option(help="Number of first steps that mostly teach reading.")] = None,
    tokens: Annotated[int | None, typer.Option(help="Tokens per step.")] = None,
    drills: Annotated[
        bool | None, typer.Option("--drills", help="Train the policy of --start on single skills only.")
    ] = None,
    offices: Annotated[
        bool | None, typer.Option("--offices", help="Continue the policy of --start with the pages of lab-entries.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Processes that prepare batches.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the weights and the examples.")] = None,
    device: Annotated[str | None, typer.Option(help="cuda, or cpu for a trial.")] = None,
    config: ConfigFile = None,
    assignments: Assignments = None,
    dry_run: DryRun = False,
) -> None:
    """focusmem lab pretrain --out runs/policy --minutes 25

    Train the laboratory's policy from scratch: it learns to read pages, act, describe and answer. Useful results need a
    GPU.

    To train an earlier policy further: focusmem lab pretrain --out runs/more --start runs/policy/policy --reading-steps
    0

    To improve weak single skills: focusmem lab pretrain --out runs/mended --start runs/policy/policy --drills --minutes
    3

    To teach the pages of lab-entries: focusmem lab pretrain --out runs/offices --start runs/policy/policy --offices

    On a laptop: focusmem lab pretrain --out runs/trial --device cpu --minutes 1 --tokens 4000 --workers 1
    """
    from focusmem.lab.policy.pretrain import PretrainConfig
    from focusmem.lab.policy.pretrain import pretrain as run

    values = {
        "minutes": minutes,
        "pause_after": pause_after,
        "start": start,
        "num_reading_steps": reading_steps,
        "max_tokens": tokens,
        "drills": drills,
        "offices": offices,
        "num_workers": workers,
        "seed": seed,
        "device": device,
    }
    run(settled(PretrainConfig(), values, config=config, assignments=assignments, dry_run=dry_run), out)
    typer.echo(f"The policy and its card are in {out / 'policy'}, the metrics in {out / 'metrics.jsonl'}.")


@app.command()
def examine(
    policy: PolicyOption = None,
    values: Annotated[int | None, typer.Option(help="Number of values to read from the screen.")] = None,
    records: Annotated[int | None, typer.Option(help="Number of records to ask about.")] = None,
    entries: Annotated[int | None, typer.Option(help="Number of offices to ask for list entries. Default: 0.")] = None,
    requests: Annotated[
        int | None, typer.Option(help="Number of decisions at offices that need a value. Default: 0.")
    ] = None,
    probed: Annotated[int | None, typer.Option(help="Number of records to probe. Default: 0.")] = None,
    seed: Annotated[int | None, typer.Option(help="The seed of the tasks and records.")] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    batch: Annotated[int | None, typer.Option(help="Number of questions in a batch.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")] = False,
    config: ConfigFile = None,
    assignments: Assignments = None,
    dry_run: DryRun = False,
) -> None:
    """focusmem lab examine --values 40 --records 10

    Test single skills of a policy on sites it has never seen: read a value, describe a record, answer about it.

    For the pages of lab-entries, add --entries 40 --requests 40 --probed 10
    """
    from focusmem.lab.policy.examination import ExaminationConfig
    from focusmem.lab.policy.examination import examine as run

    given = {
        "num_values": values,
        "num_records": records,
        "num_entries": entries,
        "num_requests": requests,
        "num_probed": probed,
        "seed": seed,
        "batch_size": batch,
    }
    settings = settled(ExaminationConfig(), given, config=config, assignments=assignments, dry_run=dry_run)
    results = run(load_policy(policy, device), settings)
    if json:
        print_json(results)
        return
    for name, title in _SKILLS.items():
        if name not in results:
            continue
        parts = [(kind, f"{one['right_rate']:.1%}", str(one["num"])) for kind, one in results[name]["by_name"].items()]
        low, high = results[name]["interval"]
        print_table(title, ("", "right", "of"), parts)
        typer.echo(f"Together {results[name]['right_rate']:.1%} ({low:.1%} to {high:.1%}) of {results[name]['num']}.")


_SKILLS = {
    "values_read": "values read off the screen",
    "fields_right": "fields that are right",
    "entries_right": "entries of an office's lists",
    "requests_right": "decisions at offices that need a value",
    "probes_right": "clauses of answers to probes",
}


def load_policy(folder: Path | None, device: str) -> "Backbone":
    """The policy in a folder, or the shipped one."""
    from focusmem.lab.policy.policy import load_policy as load
    from focusmem.lab.shipped import Weights

    return load(Weights().policy if folder is None else folder, device)


def suite_name(suite: str) -> str:
    """The name of a suite of the laboratory, if it is one."""
    from focusmem.errors import ConfigError
    from focusmem.lab.suite import SPLITS_EVALUATED

    if suite not in SPLITS_EVALUATED:
        raise ConfigError(f"There is no suite '{suite}' in the laboratory; choose {' or '.join(SPLITS_EVALUATED)}.")
    return suite


def wait_for_interrupt() -> None:
    import threading

    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        typer.echo()
