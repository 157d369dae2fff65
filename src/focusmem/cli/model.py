"""`focusmem model`: shows the sizes and the training of a memory without loading weights."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from focusmem.cli.output import print_json, print_table, printable
from focusmem.cli.settings import Assignments, ConfigFile, DryRun, settled

app = typer.Typer(no_args_is_help=True)

_PARTS = {
    "policy_vision": "frozen policy: vision tower",
    "policy_text": "frozen policy: text",
    "encoder_frozen_extra": "frozen encoder, if it is another model",
    "lora": "LoRA of the evidence encoder",
    "compressor": "compressor core",
    "readout": "state-conditioned readout",
    "gate": "trust gate",
    "trained_total": "trained in all",
}


@app.callback()
def _group() -> None:
    pass


@app.command()
def describe(
    backbone: Annotated[
        str, typer.Option(help="qwen3-vl-2b, -4b, -8b, -32b, toy, or a checkpoint's folder.")
    ] = "qwen3-vl-8b",
    encoder: Annotated[
        str | None, typer.Option(help="Another model as the evidence encoder; default: the backbone itself.")
    ] = None,
    tokens: Annotated[int | None, typer.Option(help="K, memory tokens per item: 1, 2, 4, 8 or 16.")] = None,
    width: Annotated[int | None, typer.Option(help="Compressor width; default: the policy's.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")] = False,
    config: ConfigFile = None,
    assignments: Assignments = None,
    dry_run: DryRun = False,
) -> None:
    """focusmem model describe --backbone qwen3-vl-8b

    Count the parameters of every part of the paper's memory. No weights are downloaded or loaded. With --set
    state_source=joined, it counts the memory of the recipe focusmem.
    """
    from focusmem.model.config import PAPER_MEMORY
    from focusmem.model.description import describe as describe_parts

    values = {"compressor.num_tokens": tokens, "compressor.width": width}
    memory = settled(PAPER_MEMORY, values, config=config, assignments=assignments, dry_run=dry_run)
    description = describe_parts(backbone, memory, encoder=encoder)
    if json:
        print_json(description)
    else:
        _show(description)


@app.command()
def card(
    memory: Annotated[
        str, typer.Argument(help="The folder of a trained memory, or the name of a shipped one: full, action-only.")
    ],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")] = False,
) -> None:
    """focusmem model card full

    Print how a memory was trained: its variant and recipe, which parts act, and every departure from the paper.
    """
    from dataclasses import asdict
    from pathlib import Path

    from focusmem.lab.shipped import SHIPPED_MEMORIES, Weights
    from focusmem.model.checkpoint import Checkpoint
    from focusmem.model.gate import trust_of
    from focusmem.training.departures import Departures
    from focusmem.training.vital_signs import VITAL_SIGNS_NOTE

    stored = Checkpoint.open(Weights().memory(memory) if memory in SHIPPED_MEMORIES else Path(memory))
    departures, acting, threshold = Departures.of(stored), stored.acting_parts(), stored.notes.get("threshold")
    told = {
        "memory": str(stored.folder),
        "variant": stored.notes.get("variant"),
        "trained": asdict(stored.trained_parts()),
        "acting": asdict(acting),
        "threshold": trust_of(stored.config.gate.threshold_logit) if acting.is_gated else None,
        "threshold_candidates": threshold.get("candidates") if isinstance(threshold, dict) else None,
        "is_threshold_chosen": threshold is not None,
        "shows_errors": stored.trained_with_errors(),
        "state_source": stored.config.state_source,
        "vital_signs": stored.notes.get(VITAL_SIGNS_NOTE),
        **asdict(departures),
    }
    if json:
        print_json(told)
    else:
        _tell(told)


def _tell(card: dict[str, Any]) -> None:
    parts = [name for name, acts in (("readout", "is_dynamic"), ("gate", "is_gated")) if card["acting"][acts]]
    rows = [
        ("variant", card["variant"] or "not recorded"),
        ("recipe", card["recipe"] or "not recorded"),
        ("acts", " and ".join(parts) or "fixed blocks"),
        ("prompts", "say which actions failed" if card["shows_errors"] else "do not say which actions failed"),
    ]
    if card["threshold"] is not None:
        rows.append(("threshold", f"{card['threshold']:.4g}, {_chosen(card)}"))
    rows += [("state", card["state_source"]), *_vital_rows(card["vital_signs"])]
    print_table(card["memory"], ("", ""), rows)
    if card["recipe"] is None:
        typer.echo("The card does not list departures from the paper.")
        return
    typer.echo(_listed("Departures from the paper", card["departures"]))
    typer.echo(_listed("Scale", card["scale"]))


def _vital_rows(signs: dict[str, Any] | None) -> list[tuple[str, str]]:
    """The vital signs at the end of training, and whether the readout counts as trained."""
    if signs is None:
        return [("vital signs", "not recorded")]
    where = "decisions it also learnt from" if signs["is_learnt_from"] else "held-out decisions"
    nats = [
        f"{signs[name]:.3f} with {words}"
        for name, words in (
            ("own_nats", "own states"), ("shuffled_nats", "shuffled states"), ("fixed_nats", "fixed queries")
        )
        if signs[name] is not None
    ]  # fmt: skip
    rows = [("nats of an action", f"{', '.join(nats)} ({signs['num_decisions']} {where})")]
    if signs["query_change"] is not None:
        rows.append(("query change", f"{signs['query_change']:.2g} times the base queries"))
    if signs["is_inert"]:
        rows.append(("readout", "not trained: states of other decisions cost nothing"))
    passages = [
        f"{signs[name]:.0%} of {words} blocks"
        for name, words in (("ordinary_passage", "ordinary"), ("negative_passage", "misleading"))
        if signs[name] is not None
    ]
    return rows + ([("gate lets in", ", ".join(passages))] if passages else [])


def _chosen(card: dict[str, Any]) -> str:
    if not card["is_threshold_chosen"]:
        return "not chosen on validation data"
    candidates = card["threshold_candidates"]
    return "chosen on validation data from " + ("all values" if candidates is None else ", ".join(map(str, candidates)))


def _listed(title: str, lines: Sequence[str]) -> str:
    return "\n".join([f"{title}:" if lines else f"{title}: none", *(f"- {printable(line)}" for line in lines)])


def _show(description: dict[str, Any]) -> None:
    counts = description["num_parameters"]
    rows = [(label, f"{counts[name]:,}") for name, label in _PARTS.items() if counts[name]]
    reader = description["encoder"]
    title = f"{description['backbone']}" + ("" if reader == description["backbone"] else f", evidence read by {reader}")
    print_table(title, ("part", "parameters"), rows)
