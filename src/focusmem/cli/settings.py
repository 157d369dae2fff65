"""Fields of a config on the command line, as `--set field=value`."""

import json
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, TypeVar, get_type_hints

from focusmem.errors import ConfigError

ConfigT = TypeVar("ConfigT")


def config_from(cls: type[ConfigT], settings: Sequence[str]) -> ConfigT:
    """A config with some fields set; values are JSON, and what is no JSON is text."""
    known = {field.name for field in fields(cls)}  # type: ignore[arg-type]
    hints = get_type_hints(cls)
    values: dict[str, Any] = {}
    for setting in settings:
        name, is_set, value = setting.partition("=")
        if name not in known or not is_set:
            choice = ", ".join(sorted(known))
            raise ConfigError(
                f"--set {setting} does not set a field of {cls.__name__}; use field=value, with one of: {choice}."
            )
        values[name] = _checked(setting, _read(value), hints[name])
    return cls(**values)


def _checked(setting: str, value: Any, hint: Any) -> Any:
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(hint).validate_python(value, strict=True)
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
        raise ConfigError(f"--set {setting} has a value of the wrong kind: {reason}.") from error


def _read(value: str) -> Any:
    try:
        found = json.loads(value)
    except json.JSONDecodeError:
        return value
    return tuple(found) if isinstance(found, list) else found
