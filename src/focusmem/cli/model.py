"""`focusmem model`: look at the memory pathway without loading weights."""

from typing import Annotated, Any

import typer

from focusmem.cli.output import print_json, print_table
from focusmem.cli.settings import Assignments, ConfigFile, DryRun, settled

app = typer.Typer(no_args_is_help=True)

_PARTS = {
    "policy_vision": "frozen policy: vision tower",
    "policy_text": "frozen policy: text",
    "encoder_frozen_extra": "frozen encoder, when it is another model",
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
    encoder: Annotated[str | None, typer.Option(help="Another model as evidence encoder; default: the same.")] = None,
    tokens: Annotated[int | None, typer.Option(help="K, memory tokens per item: 1, 2, 4, 8 or 16.")] = None,
    width: Annotated[int | None, typer.Option(help="Compressor width; default: the policy's.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")] = False,
    config: ConfigFile = None,
    assignments: Assignments = None,
    dry_run: DryRun = False,
) -> None:
    """focusmem model describe --backbone qwen3-vl-8b

    Count the parameters of every part, from tensors without contents: no weights are downloaded or loaded.
    """
    from focusmem.model.config import MemoryConfig
    from focusmem.model.description import describe as describe_parts

    values = {"compressor.num_tokens": tokens, "compressor.width": width}
    memory = settled(MemoryConfig(), values, config=config, assignments=assignments, dry_run=dry_run)
    description = describe_parts(backbone, memory, encoder=encoder)
    if json:
        print_json(description)
    else:
        _show(description)


def _show(description: dict[str, Any]) -> None:
    counts = description["num_parameters"]
    rows = [(label, f"{counts[name]:,}") for name, label in _PARTS.items() if counts[name]]
    reader = description["encoder"]
    title = f"{description['backbone']}" + ("" if reader == description["backbone"] else f", evidence read by {reader}")
    print_table(title, ("part", "parameters"), rows)
