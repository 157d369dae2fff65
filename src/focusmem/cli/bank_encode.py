"""`focusmem bank encode`: computes keys and values of a bank's trajectories before an agent needs them."""

from pathlib import Path
from typing import Annotated

import typer

from focusmem.cli.bank_output import tell


def encode(
    bank: Annotated[
        str, typer.Argument(metavar="BANK", help="The folder of a bank or of an export, or lab for the one that ships.")
    ],
    cache: Annotated[Path, typer.Option(help="The folder for encoded items; it is made if there is none.")],
    memory: Annotated[
        str | None, typer.Option(help="The memory's variant; default: full. With --checkpoint, the default is latent.")
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="The folder of a trained memory; default: the one that ships.")
    ] = None,
    policy: Annotated[str, typer.Option(help="lab (ships), a folder, or a hub id.")] = "lab",
    precision: Annotated[str, typer.Option(help="How numbers are stored: exact, bfloat16, or int8.")] = "exact",
    processes: Annotated[
        int, typer.Option(min=1, help="Processes that share the work, each with its own encoder.")
    ] = 1,
    device: Annotated[str, typer.Option(help="cpu, or cuda.")] = "cpu",
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", help="A setting of `focusmem run`, such as memory.cache.form=features; repeatable."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")] = False,
) -> None:
    """focusmem bank encode lab --memory full --cache my-cache/

    Encode every trajectory of a bank for a trained memory, once for all runs that use the same cache. Items that are
    already in the cache are not encoded again, so the same command resumes.

    For your own trained memory: focusmem bank encode my-bank --policy FOLDER --checkpoint FOLDER --cache my-cache/
    """
    from focusmem.recipes.encode_bank import encode_stored_bank
    from focusmem.recipes.run_parts import bank_folder
    from focusmem.recipes.run_settings import RunSettings
    from focusmem.settings import resolved

    values = {
        "policy.name": policy,
        "policy.device": device,
        "memory.name": memory or ("full" if checkpoint is None else "latent"),
        "memory.checkpoint": None if checkpoint is None else str(checkpoint),
        "memory.cache.folder": str(cache),
        "memory.cache.precision": precision,
    }
    settings = resolved(RunSettings(), values=values, assignments=assignments or [])
    done = encode_stored_bank(settings, bank_folder(bank), num_processes=processes)
    figures = {
        "path": str(cache),
        "num_items": done.num_items,
        "num_encoded": done.num_encoded,
        "num_cached": done.num_cached,
        "num_bytes": done.num_bytes,
        "seconds": round(done.seconds, 3),
    }
    tell(figures, done.failures, json=json)
