"""`focusmem train`: memory for a real policy, from one's own trajectories."""

import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from focusmem.cli.bank import EmbedderName, load_embedder
from focusmem.cli.output import print_json, printable

if TYPE_CHECKING:
    from focusmem.data.preparation import Prepared
    from focusmem.model.backbone import Backbone
    from focusmem.schemas import Task

_LAB = "lab"
"""The policy that ships; it is asked in its own words."""


def train(
    variant: Annotated[str, typer.Argument(help="action-only, semantic, functional, content, readout or full.")],
    trajectories: Annotated[
        list[Path], typer.Argument(metavar="PATH...", help="Trajectory folders, or folders of many.")
    ],
    bank: Annotated[
        Path, typer.Option(help="The bank that is searched for each decision; other trajectories than these.")
    ],
    out: Annotated[Path, typer.Option(help="The run's folder; a run that was stopped goes on from it.")],
    policy: Annotated[
        str, typer.Option(help="The frozen policy: a folder, a hub id, a short name as qwen3-vl-8b, lab or toy.")
    ] = "qwen3-vl-8b",
    embedder: EmbedderName = "Qwen/Qwen3-VL-Embedding-2B",
    evaluation: Annotated[
        list[Path] | None,
        typer.Option(help="Tasks it will be judged by, a JSON record in a line; what could give one away is left out."),
    ] = None,
    prompts: Annotated[
        Path | None,
        typer.Option(help="A folder with other words than ours: agent, evidence and, if it has one, questions."),
    ] = None,
    min_steps: Annotated[int, typer.Option(help="Shorter trajectories are left out.")] = 8,
    max_steps: Annotated[
        int, typer.Option(help="Longer ones are left out; also the budget that prompts speak of.")
    ] = 15,
    any_outcome: Annotated[bool, typer.Option("--any-outcome", help="Learn from failures, too.")] = False,
    validation: Annotated[
        float, typer.Option(help="Share of trajectories that are kept back for the gate's threshold.")
    ] = 0.02,
    epochs: Annotated[int, typer.Option(min=1, help="How often each stage goes through the decisions.")] = 1,
    steps: Annotated[int | None, typer.Option(help="Stop each stage after so many steps instead.")] = None,
    batch: Annotated[int, typer.Option(min=1, help="Decisions per step, over all processes.")] = 32,
    passes: Annotated[int, typer.Option(min=1, help="Passes per step and process: less memory, the same step.")] = 1,
    tokens: Annotated[int, typer.Option(help="Tokens per block: 1, 2, 4, 8 or 16.")] = 8,
    state_layer: Annotated[
        int | None, typer.Option(help="Read the state off hidden states after so many blocks, not off embeddings.")
    ] = None,
    rate: Annotated[float, typer.Option(help="Learning rate of stage A; half of it in stage B.")] = 1e-5,
    workers: Annotated[int, typer.Option(help="Processes that draw batches.")] = 4,
    seed: Annotated[int, typer.Option(help="Order of decisions, and all else that is drawn.")] = 0,
    max_minutes: Annotated[float | None, typer.Option(help="Save and stop each stage after so long.")] = None,
    only_prepare: Annotated[
        bool,
        typer.Option("--only-prepare", help="Choose, find and teach, and stop there: several processes need that."),
    ] = False,
    device: Annotated[str, typer.Option(help="cuda or cpu.")] = "cuda",
    json: Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")] = False,
) -> None:
    """focusmem train full my-trajectories/ --bank my-bank --policy qwen3-vl-8b --out runs/memory

    Train memory for a frozen policy on your own trajectories, with the paper's values: choose them (successes of 8 to
    15 steps that give away neither the bank's tasks nor --evaluation's), find what the bank has for each decision, let
    the policy describe each item, then both stages and the gate's threshold. What is done is kept; the same line goes
    on.

    On several GPUs: the line with --only-prepare, then torchrun --nproc-per-node 8 -m focusmem.cli.main train ...

    A laptop-sized trial, on what `focusmem demo` has left: focusmem train full runs/demo-0/full --policy lab --embedder
    lab --bank src/focusmem/lab/weights/bank --min-steps 1 --any-outcome --steps 2 --batch 4 --workers 0 --device cpu
    --out runs/own
    """
    from dataclasses import replace

    from focusmem.data.decisions import DecisionsConfig, Words
    from focusmem.data.preparation import OwnData, load_prepared, prepare
    from focusmem.lab.policy.texts import PROMPTS as LAB_PROMPTS
    from focusmem.model.compressor import CompressorConfig
    from focusmem.model.config import MemoryConfig
    from focusmem.recipes.trajectory_training import OwnTraining, paper_variant, train_on_trajectories
    from focusmem.schemas import find_trajectories
    from focusmem.training.config import LoopConfig
    from focusmem.training.processes import own_device
    from focusmem.training.trajectory_batches import BatchingConfig

    chosen = paper_variant(variant)
    team = int(os.environ.get("WORLD_SIZE", "1"))
    if device == "cuda" and team > 1:
        device = str(own_device())
    data = OwnData(
        trajectories=[folder.resolve() for path in trajectories for folder in find_trajectories(path)],
        bank=bank,
        evaluation=[task for path in evaluation or () for task in _tasks(path)],
        words=Words(prompts or (LAB_PROMPTS if policy == _LAB else None)),
        min_steps=min_steps,
        max_steps=max_steps,
        takes_all_outcomes=any_outcome,
        validation_share=validation,
        seed=seed,
    )
    loop = LoopConfig(
        learning_rate=rate,
        num_steps=steps,
        num_passes=passes,
        num_workers=workers,
        seed=seed,
        max_minutes=max_minutes,
        recomputes_blocks=device.startswith("cuda"),
    )
    training = OwnTraining(
        memory=MemoryConfig(
            compressor=CompressorConfig(num_tokens=tokens),
            state_source="embeddings" if state_layer is None else "hidden",
            state_layer=state_layer,
        ),
        batching=BatchingConfig(num_decisions=batch, num_epochs=epochs, seed=seed),
        decisions=DecisionsConfig(max_steps=max_steps, seed=seed),
        stage_a=loop,
        stage_b=replace(loop, learning_rate=rate / 2),
    )
    backbone = _policy(policy, device)
    if team > 1:
        prepared = load_prepared(backbone, data, out / "prepared")
    else:
        prepared = prepare(
            backbone,
            lambda: load_embedder(embedder, None, device),
            data,
            out / "prepared",
            has_lessons=chosen.stage_a.content_weight > 0,
        )
    is_first = os.environ.get("RANK", "0") == "0"
    if is_first and not json:
        _tell_prepared(prepared)
    if only_prepare:
        if json:
            print_json({"prepared": str(prepared.folder), **_figures(prepared)})
        return
    # Processes that draw batches read trajectories from their folders, and never touch the table they inherit.
    warnings.filterwarnings("ignore", "lancedb fork support")
    memory = train_on_trajectories(backbone, variant, data, prepared, out, training)
    if not is_first:
        return
    if json:
        print_json({"memory": None if memory is None else str(memory), **_figures(prepared)})
    elif memory is None:
        typer.echo(f"Stopped in time; the same line goes on in {out}.")
    else:
        typer.echo(f"The memory is in {memory}. Load it with focusmem.Memory.load(policy, checkpoint, bank, embedder).")


def _policy(source: str, device: str) -> "Backbone":
    from focusmem.lab.policy.policy import load_policy
    from focusmem.lab.shipped import Weights
    from focusmem.model.backbone import Backbone
    from focusmem.model.devices import fast_dtype, usable_device
    from focusmem.model.sizes import TOY

    if source == TOY:
        return Backbone.toy().to(device)
    if source == _LAB:
        return load_policy(Weights().policy, device)
    found = usable_device(device)
    return Backbone.load(source, dtype=fast_dtype(found), device=found)


def _tasks(path: Path) -> list["Task"]:
    """Task records, one in a line."""
    from focusmem.files import read_plain_file
    from focusmem.schemas import Task, parse_record
    from focusmem.schemas.record import MAX_DOCUMENT_BYTES

    lines = enumerate(read_plain_file(path, MAX_DOCUMENT_BYTES).splitlines(), start=1)
    return [parse_record(Task, line, f"{path}, line {number}") for number, line in lines if line.strip()]


def _figures(prepared: "Prepared") -> dict[str, Any]:
    figures: dict[str, Any] = {
        "num_trajectories": len(prepared.found),
        "num_validation": len(prepared.validation),
        "num_decisions": sum(len(one.decisions) for one in prepared.found),
        "left_out": prepared.chosen.num_left_out,
        "unusable": prepared.chosen.unusable,
        "removed_by": {key: len(ids) for key, ids in prepared.chosen.removed_by.items()},
    }
    if prepared.taught is not None:
        taught = prepared.taught
        figures["lessons"] = {
            "num_made": taught.num_made,
            "num_found": taught.num_found,
            "num_targets": taught.num_targets,
            "num_discarded": dict(taught.discarded),
        }
    return figures


def _tell_prepared(prepared: "Prepared") -> None:
    typer.echo(str(prepared.chosen))
    for name, reason in prepared.chosen.unusable.items():
        typer.echo(printable(f"left out {name}: {reason}"))
    if prepared.taught is not None:
        taught = prepared.taught
        typer.echo(
            f"{taught.num_made + taught.num_found} items have a lesson, with {taught.num_targets} functional answers; "
            f"{taught.discarded.total()} answers could not be used."
        )
