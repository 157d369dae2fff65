"""`focusmem lab`: visit the small offline world."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from focusmem.cli.command_line import command_line
from focusmem.cli.output import print_json, print_table

if TYPE_CHECKING:
    from focusmem.lab.world.solving import Solved
    from focusmem.model.backbone import Backbone

app = typer.Typer(no_args_is_help=True)

PolicyOption = Annotated[
    Path | None,
    typer.Option(help="A policy folder, as `focusmem lab pretrain` writes it; default: the shipped one."),
]


@app.callback()
def _group() -> None:
    pass


@app.command()
def serve(
    seed: Annotated[int, typer.Option(help="Which world: equal seeds give equal sites.")] = 0,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Where to listen; 0 takes any that is free.")] = 8080,
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
def solve(
    solver: Annotated[str, typer.Option(help="expert (knows the site), explorer (finds out), or nothing.")] = "expert",
    tasks: Annotated[int, typer.Option(min=1, help="How many evaluation tasks.")] = 20,
    seed: Annotated[int, typer.Option(help="Which tasks, and what the explorer tries first.")] = 0,
    browser: Annotated[str, typer.Option(help="raster (draws the pages itself) or chromium.")] = "raster",
    world_seed: Annotated[int, typer.Option(help="Which world: equal seeds give equal sites.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="One JSON document, with a row for each task.")] = False,
) -> None:
    """focusmem lab solve --solver explorer --tasks 20

    Let an agent made of rules solve evaluation tasks of the laboratory.
    """
    from itertools import islice

    from focusmem.lab.world import solving
    from focusmem.lab.world.rollout import iter_tasks
    from focusmem.lab.world.world import World

    world = World(world_seed)
    drawn = list(islice(iter_tasks(world, "e", "evaluation", seed), tasks))
    solved = solving.solve(world, drawn, solver, seed, browser)
    if json:
        setting = {"solver": solver, "browser": browser, "seed": seed, "world_seed": world_seed}
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
def pretrain(
    out: Annotated[Path, typer.Option(help="The run's folder; a run that was stopped goes on from it.")],
    minutes: Annotated[float, typer.Option(help="Time to train for, over all runs in this folder.")] = 25.0,
    pause_after: Annotated[
        float | None, typer.Option(help="Save and stop after so many minutes; the same line goes on from there.")
    ] = None,
    device: Annotated[str, typer.Option(help="cuda, or cpu for a trial of the machinery.")] = "cuda",
    start: Annotated[Path | None, typer.Option(help="Weights to begin with: an earlier policy folder.")] = None,
    reading_steps: Annotated[int, typer.Option(help="So many steps are mostly about reading pages.")] = 1500,
    rate: Annotated[float, typer.Option(help="Learning rate of matrices; a tenth of it for all else.")] = 0.015,
    workers: Annotated[int, typer.Option(help="Processes that draw batches.")] = 14,
    tokens: Annotated[int, typer.Option(help="Tokens per step.")] = 65_536,
    drills: Annotated[bool, typer.Option("--drills", help="Mend the policy of --start by single skills.")] = False,
    half: Annotated[
        bool | None, typer.Option("--half/--full", help="Compute in bfloat16 or not; default: on a GPU.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the weights and the examples.")] = 0,
) -> None:
    """focusmem lab pretrain --out runs/policy --minutes 25

    Teach the laboratory's policy from nothing: to read pages, act, describe, answer. Needs a GPU to get anywhere.

    To go on from an earlier policy: focusmem lab pretrain --out runs/more --start runs/policy/policy --reading-steps 0

    To mend what it does badly: focusmem lab pretrain --out runs/mended --start runs/policy/policy --drills --minutes 3

    A laptop-sized trial: focusmem lab pretrain --out runs/trial --device cpu --minutes 1 --tokens 4000 --workers 1
    """
    from focusmem.lab.policy.pretrain import PretrainConfig
    from focusmem.lab.policy.pretrain import pretrain as run

    config = PretrainConfig(
        minutes=minutes,
        pause_after=pause_after,
        device=device,
        start=None if start is None else str(start),
        num_reading_steps=reading_steps,
        matrix_rate=rate,
        other_rate=rate / 10,
        num_workers=workers,
        max_tokens=tokens,
        drills=drills,
        is_half=half,
        seed=seed,
    )
    run(config, out)
    typer.echo(f"The policy and its card are in {out / 'policy'}, the metrics in {out / 'metrics.jsonl'}.")


@app.command()
def evaluate(
    policy: PolicyOption = None,
    memory: Annotated[
        str, typer.Option(help="none, notes, replay, retrieved; or a memory that was trained: action-only, full, ...")
    ] = "none",
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="The trained memory's folder; default: the shipped policy's, of full and action-only."),
    ] = None,
    embedder: Annotated[
        Path | None,
        typer.Option(help="The embedder's folder, where trajectories are found; default: the shipped policy's."),
    ] = None,
    history: Annotated[bool, typer.Option("--history", help="Show events that left the window raw as well.")] = False,
    bank: Annotated[
        Path | None, typer.Option(help="A bank on disk to find trajectories in; tasks then come from its sites.")
    ] = None,
    bank_sites: Annotated[
        int | None, typer.Option(help="Only what `lab bank --sites N` writes; tasks then come from these sites.")
    ] = None,
    sites: Annotated[str | None, typer.Option(help="Sites that tasks come from, such as e-0,e-7.")] = None,
    tasks: Annotated[int, typer.Option(help="How many evaluation tasks, for each seed.")] = 400,
    seed: Annotated[int, typer.Option(help="Which tasks.")] = 0,
    seeds: Annotated[int, typer.Option(help="How many seeds, from --seed on.")] = 1,
    browser: Annotated[str, typer.Option(help="raster or chromium.")] = "raster",
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    batch: Annotated[int, typer.Option(help="Episodes that go on side by side, in each process.")] = 16,
    processes: Annotated[
        int, typer.Option(min=1, help="Processes that share the tasks, each with its own policy: keeps a GPU busier.")
    ] = 1,
    episode_s: Annotated[
        float, typer.Option(help="Seconds after which an episode that hangs is ended, as an error.")
    ] = 1800.0,
    out: Annotated[Path | None, typer.Option(help="The run's folder; default: named after the options.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Only go on with a run that is there; never begin one.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")] = False,
) -> None:
    """focusmem lab evaluate --memory full --tasks 20

    Let a policy act in whole episodes on sites it has never seen. A run that was stopped goes on from its folder when
    the same line is typed again.

    On a GPU: focusmem lab evaluate --memory full --tasks 400 --device cuda --batch 100 --processes 4

    The tasks of the first 100 demonstrations: focusmem lab evaluate --memory full --bank-sites 8 --tasks 3 --seeds 100
    """
    from focusmem.errors import ConfigError
    from focusmem.lab.evaluate import EvaluateConfig
    from focusmem.recipes.lab_evaluation import BankChoice, EvaluationPlan, memory_kind
    from focusmem.recipes.lab_evaluation import evaluate as run

    chosen = BankChoice(folder=bank, num_sites=bank_sites)
    config = EvaluateConfig(
        memory=memory_kind(memory),
        name=memory,
        num_tasks=tasks,
        seed=seed,
        num_seeds=seeds,
        sites=chosen.sites(0) if sites is None else tuple(name.strip() for name in sites.split(",")),
        bank=chosen.words,
        browser=browser,  # type: ignore[arg-type]
        shows_history=history,
        batch_size=batch,
        episode_s=episode_s,
    )
    which = f"{seed}-{tasks}" + (f"x{seeds}" if seeds > 1 else "") + ("" if config.sites is None else "-some-sites")
    folder = out or Path("runs") / f"lab-{memory}{'-history' if history else ''}-{browser}-{which}"
    if resume and not (folder / "config.json").is_file():
        raise ConfigError(f"There is no run in {folder} to go on with; leave out --resume to begin one.")
    plan = EvaluationPlan(
        config=config,
        folder=folder,
        policy=policy,
        checkpoint=checkpoint,
        embedder=embedder,
        bank=chosen,
        device=device,
        command=command_line(),
    )
    results = run(plan, num_processes=processes)
    if json:
        print_json(results)
        return
    rows = [(kind, f"{one['success_rate']:.1%}", str(one["num_tasks"])) for kind, one in results["by_kind"].items()]
    print_table(f"memory: {memory}, {browser}", ("kind", "success", "tasks"), rows)
    if results["num_tasks"]:
        low, high = results["success_interval"]
        typer.echo(f"Success {results['success_rate']:.1%} ({low:.1%} to {high:.1%}) of {results['num_tasks']} tasks.")
        typer.echo(f"{results['mean_steps']:.1f} steps, {results['hit_max_rate']:.1%} of episodes at the limit.")
    else:
        typer.echo("No task was judged, so there are no rates.")
    if results["mean_step_s"] is not None:
        typer.echo(f"{results['unreadable_rate']:.2%} of actions unreadable, {results['mean_step_s']:.2f} s per step.")
    typer.echo(
        f"{results['num_errors']} episodes ended in an error, {results['num_blocked']} were refused. Run: {folder}"
    )


@app.command()
def examine(
    policy: PolicyOption = None,
    values: Annotated[int, typer.Option(help="How many values to read off the screen.")] = 200,
    records: Annotated[int, typer.Option(help="How many records to ask about.")] = 100,
    seed: Annotated[int, typer.Option(help="Which tasks and records.")] = 0,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    batch: Annotated[int, typer.Option(help="Questions asked at once.")] = 16,
    json: Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")] = False,
) -> None:
    """focusmem lab examine --values 40 --records 10

    Ask a policy for single skills on sites it has never seen: read a value, describe a record, answer about it.
    """
    from focusmem.lab.policy.examination import ExaminationConfig
    from focusmem.lab.policy.examination import examine as run

    config = ExaminationConfig(num_values=values, num_records=records, seed=seed, batch_size=batch)
    results = run(load_policy(policy, device), config)
    if json:
        print_json(results)
        return
    for title, name in (("values read off the screen", "values_read"), ("fields told right", "fields_right")):
        parts = [(kind, f"{one['right_rate']:.1%}", str(one["num"])) for kind, one in results[name]["by_name"].items()]
        low, high = results[name]["interval"]
        print_table(title, ("", "right", "of"), parts)
        typer.echo(f"Together {results[name]['right_rate']:.1%} ({low:.1%} to {high:.1%}) of {results[name]['num']}.")


def load_policy(folder: Path | None, device: str) -> "Backbone":
    """The policy in a folder, or the shipped one."""
    from focusmem.lab.policy.policy import load_policy as load
    from focusmem.lab.shipped import Weights

    return load(Weights().policy if folder is None else folder, device)


def wait_for_interrupt() -> None:
    import threading

    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        typer.echo()
