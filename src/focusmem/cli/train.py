"""`focusmem train`: memory for a frozen policy, from your own trajectories."""

import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from focusmem.cli.bank import load_embedder
from focusmem.cli.output import print_json, printable
from focusmem.cli.settings import Assignments, ConfigFile, DryRun, settled, variant_of

if TYPE_CHECKING:
    from collections import Counter

    from focusmem.data.preparation import Prepared
    from focusmem.model.backbone import Backbone
    from focusmem.recipes.training import TrajectoryTraining

_LAB = "lab"
"""The shipped policy. Its prompts use the laboratory's wording."""
_MORE = "Trust, several processes and output"


VariantArgument = Annotated[
    str | None, typer.Argument(help="action-only, content, readout, full, fixed-4, probe-semantic, ...")
]
Trajectories = Annotated[
    list[Path] | None, typer.Argument(metavar="PATH...", help="Trajectory folders, or folders that hold many of them.")
]
BankOption = Annotated[
    Path | None,
    typer.Option(help="The bank to search at each decision. Training leaves out trajectories of the bank's tasks."),
]
Policy = Annotated[
    str | None, typer.Option(help="The frozen policy: a folder, a hub id, qwen3-vl-8b, lab (ships) or toy.")
]
EmbedderOption = Annotated[
    str | None, typer.Option(help="The embedder that searches use: a folder, a hub id, lab (ships) or toy.")
]
TrustedSources = Annotated[
    bool | None,
    typer.Option(
        "--trusted-sources",
        help="Search only trajectories from sources that the bank trusts (`focusmem bank trust`).",
        rich_help_panel=_MORE,
    ),
]
Evaluation = Annotated[
    list[Path] | None,
    typer.Option(help="Tasks of a later evaluation (.jsonl). Trajectories that could give one away are left out."),
]
RecipeOption = Annotated[
    str,
    typer.Option(
        help="paper, paper-lab (the same settings at the size of the laboratory's policy), or focusmem (the paper's "
        "settings with a readout whose state keeps the instruction apart).",
        rich_help_panel="Settings",
    ),
]
OnlyPrepare = Annotated[
    bool,
    typer.Option(
        "--only-prepare",
        help="Choose trajectories, search the bank and ask the teacher, then stop.",
        rich_help_panel=_MORE,
    ),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on standard output.", rich_help_panel=_MORE)
]


def train(
    variant: VariantArgument = None,
    trajectories: Trajectories = None,
    bank: BankOption = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder. The same command resumes a stopped run.")] = None,
    policy: Policy = None,
    embedder: EmbedderOption = None,
    trusted_sources: TrustedSources = None,
    evaluation: Evaluation = None,
    epochs: Annotated[int | None, typer.Option(help="How many times each stage goes through the decisions.")] = None,
    steps: Annotated[int | None, typer.Option(help="Stop each stage after this many steps.")] = None,
    batch: Annotated[int | None, typer.Option(help="Decisions per step, over all processes.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of all random choices.")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes that prepare batches.")] = None,
    device: Annotated[str | None, typer.Option(help="cuda or cpu.")] = None,
    recipe: RecipeOption = "paper",
    config: ConfigFile = None,
    assignments: Assignments = None,
    dry_run: DryRun = False,
    only_prepare: OnlyPrepare = False,
    json: AsJson = False,
) -> None:
    """focusmem train full my-trajectories/ --bank my-bank --policy qwen3-vl-8b --out runs/memory

    Train a memory for a frozen policy on your own trajectories, with the paper's settings. The command chooses
    successful trajectories of 8 to 15 steps that share no task with the bank or with --evaluation. It then searches the
    bank at each decision, lets the policy describe each item, trains both stages, and sets the gate's threshold. The
    same command resumes after a stop and keeps finished parts.

    To repeat a training: focusmem train --config runs/memory/run.json --out runs/again

    On several GPUs: first add --only-prepare, then: torchrun --nproc-per-node 8 -m focusmem.cli.main train ...

    On a laptop, after `focusmem demo`: focusmem train full runs/demo-0/full --recipe paper-lab --steps 2 --batch 4
    --workers 0 --device cpu --set data.min_steps=1 --set data.outcomes=null --out runs/own
    """
    from focusmem.errors import ConfigError
    from focusmem.recipes.training import recipe as named
    from focusmem.settings import everywhere

    base = named(recipe, variant_of(variant, config))
    values = {
        "data.trajectories": trajectories,
        "data.bank": bank,
        "data.only_trusted": trusted_sources,
        "policy": policy,
        "embedder": embedder,
        "evaluation": evaluation,
        "device": device,
        "batching.num_epochs": epochs,
        "batching.num_decisions": batch,
        "loop_a.num_steps": steps,
        "loop_b.num_steps": steps,
        **everywhere(base, "seed", seed),
        **everywhere(base, "num_workers", workers),
    }
    training = settled(base, values, config=config, assignments=assignments, dry_run=dry_run)
    if out is None:
        raise ConfigError("The run's folder is missing; give it with --out FOLDER.")
    _train(training, out, only_prepare=only_prepare, json=json)


def _train(training: "TrajectoryTraining", out: Path, *, only_prepare: bool, json: bool) -> None:
    from focusmem.cli.command_line import command_line
    from focusmem.recipes.training import check_taught, train_on_trajectories
    from focusmem.training.processes import own_device
    from focusmem.training.record import is_first_process

    is_alone = os.environ.get("WORLD_SIZE", "1") == "1"
    device = training.device if is_alone or training.device != "cuda" else str(own_device())
    policy = _load_policy(training.policy, device)
    prepared = _prepared(training, policy, device, out / "prepared", is_alone=is_alone)
    if is_first_process() and not json:
        _tell_prepared(prepared)
    if only_prepare:
        if json:
            print_json({"prepared": str(prepared.folder), **_figures(prepared)})
        check_taught(training, prepared)
        return
    # Processes that draw batches read trajectories from their folders, and never touch the table that they inherit.
    warnings.filterwarnings("ignore", "lancedb fork support")
    memory = train_on_trajectories(policy, training, prepared, out, command=command_line())
    if not is_first_process():
        return
    if json:
        print_json({"memory": None if memory is None else str(memory), **_figures(prepared)})
    elif memory is None:
        typer.echo(f"Stopped in time. The same command resumes the training in {out}.")
    else:
        typer.echo(f"The memory is in {memory}. Load it with focusmem.Memory.load(policy, checkpoint, bank, embedder).")


def _prepared(
    training: "TrajectoryTraining", policy: "Backbone", device: str, folder: Path, *, is_alone: bool
) -> "Prepared":
    from focusmem.data.preparation import load_prepared, prepare

    data, evaluation = training.shipped_data(), training.evaluation_tasks()
    if not is_alone:
        return load_prepared(policy, data, folder, evaluation=evaluation)
    return prepare(
        policy,
        lambda: load_embedder(training.embedder, None, device),
        data,
        folder,
        evaluation=evaluation,
        has_lessons=training.learns_content,
    )


def _load_policy(source: str, device: str) -> "Backbone":
    from focusmem.lab.shipped import Weights
    from focusmem.model.backbone import Backbone
    from focusmem.model.devices import fast_dtype, usable_device
    from focusmem.model.sizes import TOY

    found = usable_device(device)
    if source == TOY:
        return Backbone.toy().to(found)
    return Backbone.load(Weights().policy if source == _LAB else source, dtype=fast_dtype(found), device=found)


def _figures(prepared: "Prepared") -> dict[str, Any]:
    chosen, taught = prepared.chosen, prepared.taught
    figures: dict[str, Any] = {
        "num_trajectories": len(prepared.found),
        "num_validation": len(prepared.validation),
        "num_decisions": sum(len(one.decisions) for one in prepared.found),
        "left_out": chosen.num_left_out,
        "unusable": chosen.unusable,
        "removed_by": {key: len(ids) for key, ids in chosen.removed_by.items()},
    }
    if taught is not None:
        figures["lessons"] = {
            "num_made": taught.num_made,
            "num_found": taught.num_found,
            "num_targets": taught.num_targets,
            "num_discarded": dict(taught.discarded),
            "discarded_because": dict(taught.reasons),
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
            f"{taught.discarded.total()} answers could not be used{_reasons(taught.reasons)}."
        )


def _reasons(reasons: "Counter[str]") -> str:
    """How many answers were discarded for each reason, the most frequent first."""
    counted = ", ".join(f"{reason} {num}" for reason, num in reasons.most_common())
    return f" ({counted})" if counted else ""
