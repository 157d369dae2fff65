"""`focusmem lab embedder|bank|train|gate|benefit`: memory that learns in the small offline world."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from focusmem.cli.lab import PolicyOption, SuiteOption, app, load_policy
from focusmem.cli.output import print_json
from focusmem.cli.settings import Assignments, ConfigFile, DryRun, settled, variant_of

if TYPE_CHECKING:
    from focusmem.lab.memory.training import LabTraining

__all__ = ["app"]

_SIZES = "Sizes of a step"
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")]
DeviceOption = Annotated[str, typer.Option(help="cuda, or cpu for a trial.")]
VariantArgument = Annotated[str, typer.Argument(help="The variant of the memory: action-only, content, full, ...")]
StartOption = Annotated[
    Path | None,
    typer.Option(
        help="Train this memory further, without the course of stage A. Give a memory of the same variant, or a "
        "memory from stage A of a variant with an equal stage A. A variant without stage B may also start from "
        "action-only."
    ),
]
NumDrills = Annotated[
    int | None, typer.Option(help="Drills per step, of each kind (numbers, conventions).", rich_help_panel=_SIZES)
]
WorkersOption = Annotated[int | None, typer.Option(help="Processes that prepare batches.")]


@app.command()
def embedder(
    out: Annotated[Path, typer.Option(help="The folder to write the embedder to.")],
    policy: PolicyOption = None,
    steps: Annotated[int | None, typer.Option(help="Steps of training.")] = None,
    pairs: Annotated[
        int | None, typer.Option(help="Search moments per training step; each has one right trajectory.")
    ] = None,
    device: DeviceOption = "cuda",
    workers: WorkersOption = None,
    tasks: Annotated[
        int, typer.Option(help="Number of evaluation tasks for measuring recall; 0 skips the measurement.")
    ] = 100,
    json: AsJson = False,
    config: ConfigFile = None,
    assignments: Assignments = None,
    dry_run: DryRun = False,
) -> None:
    """focusmem lab embedder --policy runs/policy/policy --out runs/embedder

    Teach the laboratory's policy to find trajectories, and measure how often it finds what a task needs.

    On a laptop: add --device cpu --steps 2 --pairs 4 --workers 0 --tasks 5
    """
    from itertools import islice

    from focusmem.lab.memory.embedder import EmbedderTrainingConfig, load_embedder, train_embedder
    from focusmem.lab.memory.recall import LabBank, recall_rate, searchable
    from focusmem.lab.world.rollout import iter_tasks
    from focusmem.lab.world.world import World

    values = {"num_steps": steps, "num_pairs": pairs, "num_workers": workers}
    settings = settled(EmbedderTrainingConfig(), values, config=config, assignments=assignments, dry_run=dry_run)
    backbone = load_policy(policy, device)
    train_embedder(backbone, settings, out)
    figures: dict[str, Any] = {}
    if tasks:
        world, trained = World(0), load_embedder(backbone, out)
        experts, asked = LabBank(world, "e"), list(islice(iter_tasks(world, "e", "evaluation", 0), tasks))
        figures = recall_rate(experts, searchable(experts, trained), trained, asked)
    if json:
        print_json({"embedder": str(out), **figures})
        return
    typer.echo(f"The embedder is in {out}.")
    if figures:
        low, high = figures["right_way_interval"]
        typer.echo(
            f"In {figures['right_way_rate']:.1%} ({low:.1%} to {high:.1%}) of {figures['num_moments']} moments for "
            f"which the bank holds what the task needs, it is among the first {figures['top']}."
        )


@app.command()
def bank(
    out: Annotated[Path, typer.Option(help="The folder to write the bank to; it must be new.")],
    sites: Annotated[int, typer.Option(min=1, help="Number of evaluation sites, counted from the first.")] = 8,
    policy: PolicyOption = None,
    embedder: Annotated[Path | None, typer.Option(help="The embedder's folder; default: the shipped policy's.")] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    json: AsJson = False,
) -> None:
    """focusmem lab bank --out runs/bank --sites 8

    Fill a bank with the experts' trajectories of the first evaluation sites. The shipped bank was made in this way.
    """
    from focusmem.errors import ConfigError
    from focusmem.lab.memory.embedder import load_embedder
    from focusmem.lab.memory.expert_bank import write_expert_bank
    from focusmem.lab.shipped import Weights
    from focusmem.lab.world.world import World

    if policy is not None and embedder is None:
        raise ConfigError(
            "The shipped embedder works only with the shipped policy; name this policy's embedder with --embedder."
        )
    backbone = load_policy(policy, device)
    made = write_expert_bank(out, World(0), load_embedder(backbone, embedder or Weights().embedder), num_sites=sites)
    if json:
        print_json(
            {
                "bank": str(made.folder),
                "num_sites": sites,
                "num_trajectories": made.num_trajectories,
                "num_steps": made.num_steps,
                "num_bytes": made.num_bytes,
            }
        )
        return
    typer.echo(
        f"{made.folder}: {made.num_trajectories} trajectories of {made.num_steps} steps, {made.num_bytes / 1e6:.2f} MB."
    )


@app.command()
def train(
    variant: Annotated[
        str | None, typer.Argument(help="action-only, content, readout, full, fixed-4, probe-semantic, ...")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder. The same command resumes a stopped run.")] = None,
    suite: SuiteOption = "lab",
    policy: PolicyOption = None,
    start: StartOption = None,
    seed: Annotated[int | None, typer.Option(help="The seed that draws the episodes.")] = None,
    steps: Annotated[int | None, typer.Option(help="Steps of stage A, the course included.")] = None,
    more_steps: Annotated[int | None, typer.Option(help="Steps of stage B.")] = None,
    gate_steps: Annotated[
        int | None, typer.Option(min=0, help="Steps of the last stage, which trains the gate alone; 0 leaves it out.")
    ] = None,
    episodes: Annotated[int | None, typer.Option(help="New episodes per step.", rich_help_panel=_SIZES)] = None,
    drills: Annotated[
        int | None,
        typer.Option(help="Drills per step, of each kind (numbers, conventions).", rich_help_panel="Sizes of a step"),
    ] = None,
    workers: WorkersOption = None,
    device: Annotated[str | None, typer.Option(help="cuda, or cpu for a trial.")] = None,
    config: ConfigFile = None,
    assignments: Assignments = None,
    dry_run: DryRun = False,
) -> None:
    """focusmem lab train full --policy runs/policy/policy --out runs/memory/full

    Train one variant of memory in the laboratory. The training has a course of short drills, stage A, stage B if the
    variant has one, and a last stage for the gate if the variant has one. With --suite lab-entries, it trains on
    offices.

    On a laptop: add --device cpu --steps 2 --more-steps 2 --gate-steps 0 --episodes 1 --drills 0 --workers 0 --set
    stream.course=[]
    """
    from focusmem.errors import ConfigError
    from focusmem.recipes.lab_training import recipe
    from focusmem.settings import everywhere

    base = recipe(suite, variant_of(variant, config))
    values: dict[str, Any] = {
        "policy": policy,
        "start": start,
        "stream.course": None if start is None else (),
        "decisions.seed": seed,
        "loop_a.num_steps": steps,
        "loop_b.num_steps": more_steps,
        "gate.num_steps": gate_steps or None,
        "stream.num_episodes": episodes,
        **_num_drills(suite, drills),
        "device": device,
        **everywhere(base, "num_workers", workers),
    }
    no_gate = ["gate=null"] if gate_steps == 0 else []
    training = settled(base, values, config=config, assignments=[*no_gate, *(assignments or ())], dry_run=dry_run)
    if out is None:
        raise ConfigError("The run's folder is missing; give it with --out FOLDER.")
    _train(training, out)


def _num_drills(suite: str, num: int | None) -> dict[str, Any]:
    """The settings that `--drills` fills."""
    if suite == "lab-entries":
        return {"stream.drills.entries.num": num}
    return {"stream.drills.num_numbers": num, "stream.drills.num_ways": num}


def _train(training: "LabTraining", out: Path) -> None:
    from focusmem.cli.command_line import command_line
    from focusmem.lab.memory.training import train_memory
    from focusmem.training.processes import own_device
    from focusmem.training.record import is_first_process

    is_alone = os.environ.get("WORLD_SIZE", "1") == "1"
    device = training.device if is_alone or training.device != "cuda" else str(own_device())
    memory = train_memory(load_policy(training.policy, device), training, out, command=command_line())
    if is_first_process():
        stopped = f"Stopped in time. The same command resumes the training in {out}; `unfinished` is the memory so far."
        typer.echo(stopped if memory is None else f"The memory is in {memory}.")


@app.command()
def gate(
    memory: VariantArgument,
    checkpoint: Annotated[Path, typer.Option(help="The trained memory's folder.")],
    policy: PolicyOption = None,
    trajectories: Annotated[int | None, typer.Option(help="Held-out episodes to measure on.")] = None,
    learnt: Annotated[
        int | None, typer.Option(help="Episodes to train the probe on: a new gate with labels, for comparison.")
    ] = None,
    set_threshold: Annotated[
        bool, typer.Option("--set-threshold", help="Store the threshold that was chosen on validation sites.")
    ] = False,
    device: DeviceOption = "cuda",
    workers: WorkersOption = None,
    json: AsJson = False,
    config: ConfigFile = None,
    assignments: Assignments = None,
    dry_run: DryRun = False,
) -> None:
    """focusmem lab gate full --policy runs/policy/policy --checkpoint runs/memory/full/gate/memory

    Measure how well a gate separates right from misleading blocks on sites that were not trained on, and choose the
    threshold.

    On a laptop: add --device cpu --trajectories 8 --learnt 8 --workers 0
    """
    from focusmem.lab.memory.gate import GateMeasurement, measure_gate
    from focusmem.model.gate import trust_of

    values = {"num_trajectories": trajectories, "num_learnt": learnt, "num_workers": workers}
    settings = settled(GateMeasurement(), values, config=config, assignments=assignments, dry_run=dry_run)
    figures = measure_gate(load_policy(policy, device), checkpoint, memory, settings, sets_threshold=set_threshold)
    if json:
        print_json(figures)
        return
    typer.echo(
        f"A probe separates right from misleading blocks with an area under the curve of {figures['probe_auc']:.3f} "
        f"({figures['num_right']} right, {figures['num_misleading']} misleading)."
    )
    for number, auc in figures["probe_auc_by_layer"].items():
        typer.echo(f"With the state after {number} blocks: {auc:.3f}.")
    if "gate_auc" in figures:
        threshold_logit = figures["chosen_on_validation"]["threshold_logit"]
        typer.echo(
            f"The memory's own gate: {figures['gate_auc']:.3f}. At the threshold of logit {threshold_logit:.3f} "
            f"(trust {trust_of(threshold_logit):.3g}), chosen on validation sites, "
            f"{figures['right_passage']:.1%} of right and {figures['misleading_passage']:.1%} of misleading "
            "blocks pass on evaluation sites."
        )


@app.command()
def benefit(
    memory: VariantArgument,
    checkpoint: Annotated[Path, typer.Option(help="The trained memory's folder.")],
    policy: PolicyOption = None,
    split: Annotated[
        str | None, typer.Option(help="The sites: v (validation), e (evaluation), or m (trained on).")
    ] = None,
    episodes: Annotated[int | None, typer.Option(help="Number of expert episodes whose decisions are scored.")] = None,
    device: DeviceOption = "cuda",
    workers: WorkersOption = None,
    json: AsJson = False,
    config: ConfigFile = None,
    assignments: Assignments = None,
    dry_run: DryRun = False,
) -> None:
    """focusmem lab benefit full --checkpoint runs/memory/full/gate/memory

    Measure how likely the expert's actions are with a memory and without it, on sites that were not trained on. No
    episode is played.

    On a laptop: add --device cpu --episodes 4 --workers 0
    """
    from focusmem.lab.memory.benefit import BenefitConfig, measure_benefit

    values = {"split": split, "num_episodes": episodes, "num_workers": workers}
    settings = settled(BenefitConfig(), values, config=config, assignments=assignments, dry_run=dry_run)
    figures = measure_benefit(load_policy(policy, device), checkpoint, memory, settings)
    if json:
        print_json(figures)
        return
    for group, words in (("useful", "an item in front can help with"), ("others", "no item in front can help with")):
        figures_of_group = figures[group]
        if not figures_of_group["num_decisions"]:
            continue
        parts = [
            f"{way} {one['mean_nats']:.2f} nats, {one['likely_rate']:.1%} likely"
            for way, one in (("alone", figures_of_group["alone"]), ("with memory", figures_of_group["with_memory"]))
        ]
        typer.echo(f"{figures_of_group['num_decisions']} decisions that {words}: {'; '.join(parts)}.")
    if "readout" in figures:
        typer.echo(_readout_words(figures["readout"]))


def _readout_words(readout: dict[str, Any]) -> str:
    from focusmem.training.vital_signs import INERT_NATS

    words = (
        f"The readout changes queries by {readout['query_change_rms']:.3f} (root mean square; base queries: "
        f"{readout['base_query_rms']:.3f}). {readout['num_decisions']} decisions with a block before the prompt: "
        f"{readout['own_nats']:.3f} nats per action with their own states"
    )
    if readout["is_inert"] is None:
        return f"{words}; there is no other decision whose state could be used."
    verdict = "inert" if readout["is_inert"] else "active"
    return (
        f"{words}, {readout['shuffled_nats']:.3f} with the states of neighbouring decisions. The readout is {verdict} "
        f"(inert: a difference below {INERT_NATS:g})."
    )
