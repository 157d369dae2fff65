"""The options of every command with settings: `--config`, `--set` and `--dry-run`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

SettingsT = TypeVar("SettingsT")
_PANEL = "Settings"

ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Settings as TOML, or an earlier run.json.", rich_help_panel=_PANEL),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Change one setting; repeatable.", rich_help_panel=_PANEL),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print all settings as TOML and stop.", rich_help_panel=_PANEL)]


def settled(
    base: SettingsT,
    values: Mapping[str, Any],
    *,
    config: Path | None,
    assignments: Sequence[str] | None,
    dry_run: bool = False,
) -> SettingsT:
    """Returns `base` with the changes from a file, from the options that were given (those that are not None), and from
    assignments. With `dry_run`, it prints the settings and ends the command.
    """
    from focusmem.settings import resolved, to_plain, to_toml

    given = {name: value for name, value in values.items() if value is not None}
    settings = resolved(base, file=config, values=given, assignments=assignments or ())
    if dry_run:
        typer.echo(to_toml(to_plain(settings)), nl=False)
        raise typer.Exit
    return settings


def variant_of(variant: str | None, config: Path | None) -> str:
    """The variant to train: the one on the command line, or otherwise the one in the file."""
    from focusmem.errors import ConfigError
    from focusmem.settings import read_settings

    stored = None if config is None else read_settings(config).get("variant")
    named = stored.get("name") if isinstance(stored, dict) else None
    chosen = variant or named
    if not isinstance(chosen, str):
        raise ConfigError("The variant is missing; name the variant of memory to train, such as full.")
    if named not in (None, chosen):
        raise ConfigError(f"{config} holds settings of the variant '{named}'; leave out '{chosen}'.")
    return chosen
