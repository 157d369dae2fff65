"""`focusmem bench`: time the parts on this machine."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from focusmem.cli.output import print_json, print_table
from focusmem.cli.settings import Assignments, ConfigFile, DryRun, settled

app = typer.Typer(no_args_is_help=True)

OutOption = Annotated[Path, typer.Option(help="The file for the figures, as JSON.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the figures as JSON on standard output.")]


@app.callback()
def _group() -> None:
    pass


@app.command()
def readout(
    device: Annotated[str | None, typer.Option(help="cpu, or cuda.")] = None,
    width: Annotated[int | None, typer.Option(help="Compressor width; 4096 is the paper's.")] = None,
    dtype: Annotated[
        str | None, typer.Option(help="float32 or bfloat16; default: bfloat16 on a GPU, float32 elsewhere.")
    ] = None,
    repeats: Annotated[
        int | None, typer.Option(help="Number of timed calls of each kind; the median is reported.")
    ] = None,
    episodic_tokens: Annotated[int | None, typer.Option(help="Tokens of each episodic item.")] = None,
    working_tokens: Annotated[int | None, typer.Option(help="Tokens of each working item.")] = None,
    out: OutOption = Path("runs/bench/readout.json"),
    json: AsJson = False,
    config: ConfigFile = None,
    assignments: Assignments = None,
    dry_run: DryRun = False,
) -> None:
    """focusmem bench readout --device cpu --width 384

    Time the readout of six items in four ways: with projections at each refinement (naive), with projections once per
    call (once), with cached projections (cached), and with projections folded into the queries (absorbed).
    """
    from focusmem.diagnostics.readout_cost import ReadoutCostConfig, measure_readout

    values = {
        "device": device,
        "width": width,
        "dtype": dtype,
        "num_repeats": repeats,
        "episodic_tokens": episodic_tokens,
        "working_tokens": working_tokens,
    }
    settings = settled(ReadoutCostConfig(), values, config=config, assignments=assignments, dry_run=dry_run)
    _tell(measure_readout(settings), _show, out, json=json)


@app.command()
def bank(
    vectors: Annotated[int | None, typer.Option(help="Number of trajectories in the bank.")] = None,
    width: Annotated[int | None, typer.Option(help="Numbers per vector; 2048 is Qwen3-VL-Embedding-2B's.")] = None,
    kind: Annotated[str | None, typer.Option(help="clusters, or smooth (vectors without clear neighbours).")] = None,
    queries: Annotated[int | None, typer.Option(help="Number of timed searches; the median is reported.")] = None,
    top: Annotated[int | None, typer.Option(help="Hits per search.")] = None,
    seed: Annotated[int | None, typer.Option(help="The seed of the vectors.")] = None,
    folder: Annotated[
        Path | None,
        typer.Option(help="The folder for the bank, which is removed afterwards; a million vectors need 9 GB."),
    ] = None,
    out: OutOption = Path("runs/bench/bank.json"),
    json: AsJson = False,
    config: ConfigFile = None,
    assignments: Assignments = None,
    dry_run: DryRun = False,
) -> None:
    """focusmem bench bank --vectors 25737 --width 2048

    Make a bank of random vectors, search it with the leakage guard on, and compare the hits with those of an exact
    search.
    """
    from focusmem.diagnostics.bank_cost import BankCostConfig, measure_bank

    values = {
        "num_vectors": vectors,
        "width": width,
        "kind": kind,
        "num_queries": queries,
        "top": top,
        "seed": seed,
        "folder": folder,
    }
    settings = settled(BankCostConfig(), values, config=config, assignments=assignments, dry_run=dry_run)
    _tell(measure_bank(settings), _show_bank, out, json=json)


@app.command()
def step(
    tasks: Annotated[int | None, typer.Option(help="Number of laboratory episodes whose decisions are timed.")] = None,
    threads: Annotated[int | None, typer.Option(help="CPU threads of torch.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Repetitions of all episodes.")] = None,
    seed: Annotated[int | None, typer.Option(help="The seed that draws the tasks.")] = None,
    out: OutOption = Path("runs/bench/step.json"),
    json: AsJson = False,
    config: ConfigFile = None,
    assignments: Assignments = None,
    dry_run: DryRun = False,
) -> None:
    """focusmem bench step --tasks 4

    Time the parts of a step of the laboratory's agent. The same decisions are answered alternately without and with
    memory.
    """
    from focusmem.recipes.step_cost import StepCostConfig, measure_step

    values = {"num_tasks": tasks, "num_threads": threads, "num_rounds": rounds, "seed": seed}
    settings = settled(StepCostConfig(), values, config=config, assignments=assignments, dry_run=dry_run)
    _tell(measure_step(settings), _show_step, out, json=json)


@app.command()
def select(
    entries: Annotated[int | None, typer.Option(help="Number of entries in an item's list.")] = None,
    words: Annotated[int | None, typer.Option(help="Number of random words after the instruction.")] = None,
    tokens: Annotated[int | None, typer.Option(help="Memory tokens per item: 1, 2, 4, 8 or 16.")] = None,
    state: Annotated[
        str | None, typer.Option(help="The state to measure: joined, summed or embeddings (the paper's).")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Training steps of each memory.")] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Save and stop after this time. The same command resumes.")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="CPU threads of torch.")] = None,
    seed: Annotated[int | None, typer.Option(help="The seed of weights, names and codes.")] = None,
    folder: Annotated[Path, typer.Option(help="The folder to train both memories in.")] = Path("runs/bench/select"),
    out: OutOption = Path("runs/bench/select.json"),
    json: AsJson = False,
    config: ConfigFile = None,
    assignments: Assignments = None,
    dry_run: DryRun = False,
) -> None:
    """focusmem bench select --steps 800

    Train a small memory to choose. An item lists entries in words, and a decision needs one of them. Two memories are
    trained alike: one with a state that keeps the instruction apart, and one whose state is the mean over the whole
    context. This takes about eight minutes per memory on two idle CPU cores.
    """
    from focusmem.recipes.select_entry import SelectConfig, measure_selection

    values = {
        "num_entries": entries,
        "num_words": words,
        "num_tokens": tokens,
        "state_source": state,
        "num_steps": steps,
        "max_minutes": minutes,
        "num_threads": threads,
        "seed": seed,
    }
    settings = settled(SelectConfig(), values, config=config, assignments=assignments, dry_run=dry_run)
    _tell(measure_selection(settings, folder), _show_selection, out, json=json)


def _tell(figures: dict[str, Any], show: Callable[[dict[str, Any], Path], None], out: Path, *, json: bool) -> None:
    import json as json_module

    from focusmem.files import write_whole

    # Printed before writing, so that the figures are not lost if the folder cannot be written.
    if json:
        print_json(figures)
    else:
        show(figures, out)
    write_whole(out, json_module.dumps(figures, indent=2).encode())


def _show(figures: dict[str, Any], out: Path) -> None:
    rows = [
        (way, f"{seconds * 1000:.2f}", f"{figures['speedup_over_naive'][way]:.1f}")
        for way, seconds in figures["median_s"].items()
    ]
    print_table(f"readout of six items on {figures['device_name']}", ("way", "ms", "times naive's speed"), rows)
    typer.echo(
        f"The cached variant takes {figures['cached_over_floor']:.2f} times the minimum time for reading its bytes "
        f"({figures['cached_floor_s'] * 1000:.2f} ms). Figures: {out}"
    )


def _show_bank(figures: dict[str, Any], out: Path) -> None:
    recall = figures["recall"]
    rows = [
        ("search with the guard, median", f"{figures['median_s'] * 1000:.2f} ms"),
        ("search with the guard, 95 %", f"{figures['p95_s'] * 1000:.2f} ms"),
        ("search without it, median", f"{figures['median_unfiltered_s'] * 1000:.2f} ms"),
        (f"recall at {figures['config']['top']}", "nothing to find" if recall is None else f"{recall:.4f}"),
        ("first search, which reads the table", f"{figures['load_s']:.2f} s"),
        ("making the table", f"{figures['make_s']:.1f} s"),
        ("on disk", f"{figures['num_bytes_on_disk'] / 2**20:,.0f} MiB"),
    ]
    kind = "exact" if figures["is_exact"] else "through sketches"
    print_table(f"{figures['config']['num_vectors']:,} vectors, {kind}", ("what", "figure"), rows)
    typer.echo(f"Figures: {out}")


def _show_step(figures: dict[str, Any], out: Path) -> None:
    kinds = (figures["mean_s"], figures["floor_s"])
    rows = [
        (
            part,
            *(f"{kind[name][part] * 1000:.1f}" for name in ("none", "full") for kind in kinds),
        )
        for part in figures["mean_s"]["none"]
    ]
    headings = ("part", "none, ms", "lower bound", "full, ms", "lower bound")
    print_table(f"{figures['num_steps']} steps of the laboratory's agent, means", headings, rows)
    totals = figures["total_s"]
    typer.echo(
        f"Medians of a step: {totals['none']:.3f} s without memory, {totals['full']:.3f} s with it; the median "
        f"ratio is {figures['ratio']:.2f}. Figures: {out}"
    )


def _show_selection(figures: dict[str, Any], out: Path) -> None:
    words = {
        "own": "own states",
        "shuffled": "states of another decision",
        "fixed": "fixed queries",
        "mean_state": "own states, each the mean over the context",
    }
    rows = [(label, f"{figures[name]:.1%}") for name, label in words.items() if figures[name] is not None]
    num_entries, num_decisions = figures["config"]["num_entries"], figures["num_decisions"]
    title = (
        f"one of {num_entries} entries chosen, {num_decisions} decisions (a guess among them: {figures['guess']:.0%})"
    )
    print_table(title, ("blocks read with", "right"), rows)
    if not figures["is_finished"]:
        done = ", ".join(str(figures[name]["num_steps"]) for name in ("state", "mean") if name in figures)
        typer.echo(f"Not finished: {done} of {figures['config']['num_steps']} steps. The same command resumes.")
    typer.echo(f"Figures: {out}")
