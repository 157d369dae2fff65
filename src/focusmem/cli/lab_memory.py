"""`focusmem lab embedder|bank|prepare|train|gate|benefit`: memory that learns in the small offline world."""

import os
from pathlib import Path
from typing import Annotated

import typer

from focusmem.cli.lab import PolicyOption, app, load_policy
from focusmem.cli.output import print_json

__all__ = ["app"]

_GATE_RATE = 3e-3
"""Of the gate alone: it is small, and nothing else moves."""

DeviceOption = Annotated[str, typer.Option(help="cuda, or cpu for a trial of the machinery.")]


@app.command()
def embedder(
    out: Annotated[Path, typer.Option(help="Where the embedder goes.")],
    policy: PolicyOption = None,
    steps: Annotated[int, typer.Option(help="Steps of training.")] = 300,
    pairs: Annotated[int, typer.Option(help="Moments per step.")] = 64,
    device: DeviceOption = "cuda",
    workers: Annotated[int, typer.Option(help="Processes that draw batches.")] = 13,
    tasks: Annotated[int, typer.Option(help="Evaluation tasks to measure recall with; 0 leaves it out.")] = 100,
    json: Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")] = False,
) -> None:
    """focusmem lab embedder --policy runs/policy/policy --out runs/embedder

    Teach the laboratory's policy to find trajectories, and measure how often it finds what a task needs.

    A laptop-sized trial: add --device cpu --steps 2 --pairs 4 --workers 0 --tasks 5
    """
    from itertools import islice

    from focusmem.lab.memory.embedder import EmbedderTrainingConfig, load_embedder, train_embedder
    from focusmem.lab.memory.recall import LabBank, LabRecall, recall_rate
    from focusmem.lab.world.rollout import iter_tasks
    from focusmem.lab.world.world import World

    backbone = load_policy(policy, device)
    train_embedder(backbone, EmbedderTrainingConfig(num_steps=steps, num_pairs=pairs, num_workers=workers), out)
    found = {}
    if tasks:
        world = World(0)
        recall = LabRecall.build(LabBank(world, "e"), load_embedder(backbone, out))
        found = recall_rate(recall, list(islice(iter_tasks(world, "e", "evaluation", 0), tasks)))
    if json:
        print_json({"embedder": str(out), **found})
        return
    typer.echo(f"The embedder is in {out}.")
    if found:
        low, high = found["right_way_interval"]
        typer.echo(
            f"Where the bank holds what a task needs, it is among the first {found['top']} in "
            f"{found['right_way_rate']:.1%} ({low:.1%} to {high:.1%}) of {found['num_moments']} moments."
        )


@app.command()
def bank(
    out: Annotated[Path, typer.Option(help="Where the bank goes; a new folder.")],
    sites: Annotated[int, typer.Option(min=1, help="Trajectories of so many evaluation sites, the first ones.")] = 8,
    policy: PolicyOption = None,
    embedder: Annotated[Path | None, typer.Option(help="The embedder's folder; default: the shipped policy's.")] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    json: Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")] = False,
) -> None:
    """focusmem lab bank --out runs/bank --sites 8

    Fill a bank with the experts' trajectories of the first evaluation sites, as the shipped one is made.
    """
    from focusmem.errors import ConfigError
    from focusmem.lab.memory.embedder import load_embedder
    from focusmem.lab.memory.expert_bank import write_expert_bank
    from focusmem.lab.shipped import Weights
    from focusmem.lab.world.world import World

    if policy is not None and embedder is None:
        raise ConfigError("The shipped embedder belongs to the shipped policy; give this policy's own with --embedder.")
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
    variant: Annotated[str, typer.Argument(help="action-only, semantic, functional, content, readout, full, ...")],
    out: Annotated[Path, typer.Option(help="The run's folder; a run that was stopped goes on from it.")],
    policy: PolicyOption = None,
    start: Annotated[
        Path | None,
        typer.Option(
            help="A memory to begin with: one's own, to learn on; `content`'s, to train stage B alone; for "
            "content, also `action-only`'s."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Which episodes.")] = 0,
    episodes: Annotated[int, typer.Option(help="New episodes per step.")] = 8,
    drills: Annotated[int, typer.Option(help="Comparisons besides, and as many decisions about ways, per step.")] = 32,
    course: Annotated[
        bool | None,
        typer.Option(
            "--course/--no-course",
            help="Begin with short drills alone, from easy to hard; unless told, where there is no --start.",
        ),
    ] = None,
    steps: Annotated[int, typer.Option(help="Steps of stage A, those of a course included.")] = 4000,
    more_steps: Annotated[int, typer.Option(help="Steps of stage B.")] = 1000,
    gate_steps: Annotated[
        int,
        typer.Option(min=0, help="Steps of the gate alone, after stage B; 0 leaves them out."),
    ] = 400,
    rate: Annotated[float, typer.Option(help="Learning rate of stage A; half of it in stage B.")] = 2e-4,
    state_layer: Annotated[
        int | None, typer.Option(help="Read the state off hidden states after so many blocks, whatever the variant.")
    ] = None,
    tokens: Annotated[
        int | None,
        typer.Option(help="Tokens per block: 1, 2, 4, 8 or 16, whatever the variant; may be fewer than --start has."),
    ] = None,
    content_weight: Annotated[
        float | None, typer.Option(help="How much the content losses count; unless told, the variant's own weight.")
    ] = None,
    gate_weight: Annotated[
        float | None, typer.Option(help="How much the gate's loss counts; unless told, the variant's own weight.")
    ] = None,
    gate_rate: Annotated[
        float, typer.Option(help="The gate's learning rate in stage B, in multiples of the others'.")
    ] = 10.0,
    max_minutes: Annotated[
        float | None, typer.Option(help="Save and stop after so long, all that comes before the first step included.")
    ] = None,
    device: DeviceOption = "cuda",
    workers: Annotated[int, typer.Option(help="Processes that draw batches.")] = 6,
) -> None:
    """focusmem lab train full --policy runs/policy/policy --out runs/memory/full

    Train one variant of memory in the laboratory, both stages where it has two, and then its gate, where it has one.

    A laptop-sized trial: add --device cpu --steps 2 --more-steps 2 --gate-steps 0 --episodes 1 --no-course --drills 0
    --workers 0
    """
    from dataclasses import replace

    from focusmem.lab.memory.decisions import LabDecisionsConfig
    from focusmem.lab.memory.drills import Drills
    from focusmem.lab.memory.stream import COURSE, StreamConfig
    from focusmem.lab.memory.training import train_memory
    from focusmem.lab.memory.variants import LabTraining
    from focusmem.training.config import LoopConfig
    from focusmem.training.processes import own_device

    team = int(os.environ.get("WORLD_SIZE", "1"))
    if device == "cuda" and team > 1:
        device = str(own_device())
    is_on_gpu = device.startswith("cuda")
    stage_a = LoopConfig(
        learning_rate=rate, num_steps=steps, num_workers=workers, save_every_steps=250,
        packs_rows=is_on_gpu, stores_half=True, max_group_tokens=262_144,
    )  # fmt: skip
    stage_b = replace(stage_a, learning_rate=rate / 2, gate_rate_times=gate_rate, num_steps=more_steps)
    gate = replace(
        stage_a, learning_rate=_GATE_RATE, num_steps=max(1, gate_steps),
        betas=(0.9, 0.98), max_gradient_norm=0.3, warmup_share=0.05,
    )  # fmt: skip
    training = LabTraining(
        stage_a=stage_a,
        stage_b=stage_b,
        gate=gate if gate_steps else None,
        content_weight=content_weight,
        gate_weight=gate_weight,
        state_layer=state_layer,
        num_tokens=tokens,
        max_minutes=max_minutes,
    )
    backbone = load_policy(policy, device)
    is_fresh = start is None if course is None else course
    stream = StreamConfig(
        num_episodes=episodes,
        drills=Drills(num_numbers=drills, num_ways=drills),
        course=COURSE if is_fresh else (),
    )
    decisions = LabDecisionsConfig(seed=seed)
    memory = train_memory(backbone, variant, out, training, stream=stream, decisions=decisions, start=start)
    if team > 1 and os.environ.get("RANK", "0") != "0":
        return
    typer.echo(
        f"The memory is in {memory}."
        if memory
        else f"Stopped in time; the same line goes on in {out}, and `unfinished` there is the memory so far."
    )


@app.command()
def gate(
    memory: Annotated[str, typer.Argument(help="Which variant the checkpoint is: action-only, content, full, ...")],
    checkpoint: Annotated[Path, typer.Option(help="The trained memory's folder.")],
    policy: PolicyOption = None,
    trajectories: Annotated[int, typer.Option(help="Held-out episodes to measure on.")] = 100,
    learnt: Annotated[int, typer.Option(help="Episodes that the probe learns from.")] = 2000,
    layer: Annotated[
        list[int] | None, typer.Option(help="Also probe with hidden states after so many blocks; may be repeated.")
    ] = None,
    set_threshold: Annotated[
        bool,
        typer.Option("--set-threshold", help="Keep the threshold that validation sites choose."),
    ] = False,
    device: DeviceOption = "cuda",
    workers: Annotated[int, typer.Option(help="Processes that draw batches.")] = 6,
    json: Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")] = False,
) -> None:
    """focusmem lab gate full --policy runs/policy/policy --checkpoint runs/memory/full/gate/memory

    Measure how well right blocks are told from misleading ones on sites never trained on, and choose the threshold.
    """
    from focusmem.lab.memory.gate import measure_gate

    figures = measure_gate(
        load_policy(policy, device),
        checkpoint,
        memory,
        num_trajectories=trajectories,
        num_learnt=learnt,
        layers=layer or (),
        num_workers=workers,
        sets_threshold=set_threshold,
    )
    if json:
        print_json(figures)
        return
    typer.echo(
        f"A probe tells right from misleading blocks with an area under the curve of {figures['probe_auc']:.3f} "
        f"({figures['num_right']} right, {figures['num_misleading']} misleading)."
    )
    for number, found in figures["probe_auc_by_layer"].items():
        typer.echo(f"With the state after {number} blocks: {found:.3f}.")
    if "gate_auc" in figures:
        threshold = figures["chosen_on_validation"]["threshold"]
        typer.echo(
            f"The memory's own gate: {figures['gate_auc']:.3f}. At the threshold {threshold:.3f}, chosen on validation "
            f"sites, {figures['right_passage']:.1%} of right and {figures['misleading_passage']:.1%} of misleading "
            "blocks pass on evaluation sites."
        )


@app.command()
def benefit(
    memory: Annotated[str, typer.Argument(help="Which variant the checkpoint is: action-only, content, full, ...")],
    checkpoint: Annotated[Path, typer.Option(help="The trained memory's folder.")],
    policy: PolicyOption = None,
    split: Annotated[str, typer.Option(help="Sites: v (validation), e (evaluation), or m (trained on).")] = "v",
    episodes: Annotated[int, typer.Option(help="Expert episodes whose decisions are asked about.")] = 60,
    device: DeviceOption = "cuda",
    workers: Annotated[int, typer.Option(help="Processes that draw batches.")] = 6,
    json: Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")] = False,
) -> None:
    """focusmem lab benefit full --checkpoint runs/memory/full/gate/memory

    How likely the expert's actions are with a memory and without it, on sites never trained on; nothing is played.

    A laptop-sized trial: add --device cpu --episodes 4 --workers 0
    """
    from focusmem.lab.memory.benefit import measure_benefit

    figures = measure_benefit(
        load_policy(policy, device), checkpoint, memory, split=split, num_episodes=episodes, num_workers=workers
    )
    if json:
        print_json(figures)
        return
    for group, words in (("useful", "an item in front can help with"), ("others", "it cannot")):
        own = figures[group]
        if not own["num_decisions"]:
            continue
        parts = [
            f"{way} {one['mean_nats']:.2f} nats, {one['likely_rate']:.1%} likely"
            for way, one in (("alone", own["alone"]), ("with memory", own["with_memory"]))
        ]
        typer.echo(f"{own['num_decisions']} decisions that {words}: {'; '.join(parts)}.")
