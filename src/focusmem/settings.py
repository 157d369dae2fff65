"""Settings: frozen records that check themselves, filled from a file and from `--set room.field=value`.

Declare a settings class beside the class that it configures, with its ranges in the types:

    @checked_dataclass(frozen=True, kw_only=True)
    class LoopConfig:
        learning_rate: PositiveFloat
        warmup_share: Share = 0.1
        num_steps: PositiveInt | None = None

A value out of range raises ConfigError; the message names the field, the value and what is allowed. Settings may hold
other settings. Rules that involve two fields stay in `__post_init__`.
"""

import difflib
import functools
import json
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as pydantic_dataclass

from focusmem.errors import ConfigError, StorageError

__all__ = [
    "Share", "checked_dataclass", "differences", "everywhere", "flattened", "from_plain", "read_settings", "resolved",
    "to_plain", "to_toml",
]  # fmt: skip

SettingsT = TypeVar("SettingsT")

Share = Annotated[float, Field(ge=0, le=1)]

_MAX_FILE_BYTES = 2**20
_UNSET = "unset"
"""The name of an entry at the top of a TOML file. It lists the settings that have no value, because TOML has no
null."""
_BOUNDS = {
    "greater_than_equal": ("ge", "it must be at least {}"),
    "greater_than": ("gt", "it must be above {}"),
    "less_than_equal": ("le", "it must be at most {}"),
    "less_than": ("lt", "it must be below {}"),
    "multiple_of": ("multiple_of", "it must be a multiple of {}"),
    "literal_error": ("expected", "choose one of {}"),
    "too_short": ("min_length", "it must have at least {} entries"),
    "too_long": ("max_length", "it must have at most {} entries"),
}

if TYPE_CHECKING:
    from dataclasses import dataclass as checked_dataclass
else:

    def checked_dataclass(*, frozen: bool, kw_only: bool) -> Callable[[type], type]:
        """A dataclass that checks its values against their types on creation. Type checkers see a plain dataclass."""

        def decorate(cls: type) -> type:
            config = ConfigDict(extra="forbid", strict=True, arbitrary_types_allowed=True)
            made = pydantic_dataclass(cls, frozen=frozen, kw_only=kw_only, config=config)
            unchecked_init = made.__init__

            @functools.wraps(unchecked_init)
            def __init__(self: Any, *args: Any, **values: Any) -> None:  # noqa: N807 - replaces the class's own
                try:
                    unchecked_init(self, *args, **values)
                except ValidationError as invalid:
                    raise ConfigError(_problem(cls, cls.__name__, invalid)) from None

            made.__init__ = __init__
            return made

        return decorate


def resolved(
    base: SettingsT,
    *,
    file: Path | None = None,
    values: Mapping[str, Any] | None = None,
    assignments: Sequence[str] = (),
) -> SettingsT:
    """`base` with some fields replaced: first those of a file, then `values`, then `assignments`.

    The file is TOML, or the run.json of an earlier run. `values` maps dotted field names to values. An assignment is
    `room.field=value`; its value is read as JSON, or as plain text if it is not JSON. Unknown fields are errors.
    """
    plain = to_plain(base)
    if file is not None:
        stored = read_settings(file)
        for name in stored.pop(_UNSET, []):
            _put(plain, str(name), None)
        _merge(plain, stored)
    for name, value in (values or {}).items():
        _put(plain, name, value)
    for assignment in assignments:
        name, is_assignment, text = assignment.partition("=")
        if not is_assignment or not name:
            raise ConfigError(f"--set {assignment} is not an assignment; use --set room.field=value.")
        _put(plain, name.strip(), _from_text(text))
    return from_plain(type(base), plain)


def read_settings(path: Path) -> dict[str, Any]:
    """The settings in a TOML file or a run.json, not yet checked."""
    from focusmem.files import read_plain_file

    data, is_json = read_plain_file(path, _MAX_FILE_BYTES), path.suffix == ".json"
    try:
        stored = json.loads(data) if is_json else tomllib.loads(data.decode())
    except ValueError as error:
        raise StorageError(f"{path} is not valid {'JSON' if is_json else 'TOML'}: {error}.") from None
    for room in ("config", "settings") if is_json else ():
        stored = stored.get(room) if isinstance(stored, dict) else None
    if not isinstance(stored, dict):
        raise StorageError(f"{path} holds no settings; use a TOML file, or the run.json of a run.")
    return stored


def from_plain(cls: type[SettingsT], plain: Any) -> SettingsT:
    """The inverse of `to_plain`. Unknown fields and values of another type are errors."""
    try:
        # Validated as JSON, because strict types then still accept a list for a tuple and text for a path.
        return TypeAdapter(cls).validate_json(json.dumps(plain, default=str))
    except ValidationError as invalid:
        raise ConfigError(_problem(cls, "", invalid)) from None


def to_plain(settings: object) -> dict[str, Any]:
    """Settings as JSON values."""
    plain: dict[str, Any] = TypeAdapter(type(settings)).dump_python(settings, mode="json")
    return plain


def to_toml(plain: Mapping[str, Any]) -> str:
    """Settings in the form that `resolved` reads from a file."""
    unset = [name for name, value in flattened(plain).items() if value is None]
    head = [f"{_UNSET} = {_toml_value(unset)}", ""] if unset else []
    return "\n".join([*head, *_toml_lines(plain, ())]).strip() + "\n"


def flattened(plain: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by dotted name."""
    flat: dict[str, Any] = {}
    for name, value in plain.items():
        if isinstance(value, Mapping):
            flat |= flattened(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def everywhere(settings: object, field: str, value: Any) -> dict[str, Any]:
    """A mapping that assigns one value to every field of this name, by dotted name. `resolved` accepts it."""
    return {name: value for name in flattened(to_plain(settings)) if name.rpartition(".")[2] == field}


def differences(
    before: Mapping[str, Any], now: Mapping[str, Any], *, free: Collection[str] = ()
) -> dict[str, tuple[Any, Any]]:
    """The old and the new value of each setting that differs, by dotted name. Settings in `free` are not compared; it
    holds dotted names or last parts of names.
    """
    old, new = flattened(before), flattened(now)
    names = [name for name in sorted(old.keys() | new.keys()) if not {name, name.rpartition(".")[2]} & set(free)]
    return {name: (old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)}


def nearest(word: str, known: Iterable[str], *, room: str = "") -> str:
    """A hint to put behind an error about an unknown word; empty if no known word is like it. `room` stands before the
    name of a setting.
    """
    alike = difflib.get_close_matches(word, list(known), n=1)
    return f" Did you mean '{'.'.join(filter(None, (room, alike[0])))}'?" if alike else ""


def _problem(cls: Any, owner: str, invalid: ValidationError) -> str:
    """The first error, as a sentence."""
    error = invalid.errors(include_url=False)[0]
    # Unions add the names of their members to the location; these are not fields.
    name = ".".join(str(part) for part in error["loc"] if isinstance(part, int) or str(part).isidentifier())
    where = ".".join(filter(None, (owner, name)))
    match error["type"]:
        case "unexpected_keyword_argument" | "extra_forbidden":
            *rooms, unknown = name.split(".")
            room = ".".join(filter(None, (owner, *rooms)))
            return f"There is no setting '{where}'.{nearest(unknown, _names_in(cls, rooms), room=room)}"
        case "missing":
            return f"The setting '{where}' is missing."
        case kind if kind in _BOUNDS:
            key, words = _BOUNDS[kind]
            return f"{where} is {error['input']!r:.60}; {words.format(error['ctx'][key])}."
        case _:
            told = error["msg"].removeprefix("Value error, ").removesuffix(".")
            return f"{where} is {error['input']!r:.60}: {told[:1].lower()}{told[1:]}."


def _names_in(cls: Any, rooms: Sequence[str]) -> list[str]:
    """The settings of a room, such as model.gate."""
    kinds = list(_settings_in(cls))
    for room in rooms:
        if not room.isdecimal():  # an index in a tuple
            fields = [kind.__pydantic_fields__[room] for kind in kinds if room in kind.__pydantic_fields__]
            kinds = [kind for field in fields for kind in _settings_in(field.annotation)]
    return [name for kind in kinds for name in kind.__pydantic_fields__]


def _settings_in(annotation: Any) -> Iterator[Any]:
    """The settings classes in a type, such as those of a union."""
    if hasattr(annotation, "__pydantic_fields__"):
        yield annotation
    for part in get_args(annotation):
        yield from _settings_in(part)


def _merge(plain: dict[str, Any], other: Mapping[str, Any]) -> None:
    for name, value in other.items():
        if isinstance(value, Mapping) and isinstance(plain.get(name), dict):
            _merge(plain[name], value)
        else:
            plain[name] = value


def _put(plain: dict[str, Any], name: str, value: Any) -> None:
    *rooms, field = name.split(".")
    for room in rooms:
        inner = plain.get(room)
        if inner is None:
            inner = plain[room] = {}
        if not isinstance(inner, dict):
            raise ConfigError(f"There is no setting '{name}': '{room}' is a value and has no fields.")
        plain = inner
    plain[field] = value


def _from_text(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _toml_lines(plain: Mapping[str, Any], rooms: tuple[str, ...]) -> Iterator[str]:
    for name, value in plain.items():
        if value is not None and not isinstance(value, Mapping):
            yield f"{name} = {_toml_value(value)}"
    for name, value in plain.items():
        if isinstance(value, Mapping):
            yield ""
            yield f"[{'.'.join((*rooms, name))}]"
            yield from _toml_lines(value, (*rooms, name))


def _toml_value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml_value, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name} = {_toml_value(one)}' for name, one in value.items() if one is not None)}}}"
    if isinstance(value, float):
        return repr(value)
    # Strings, integers and booleans have the same form in JSON and TOML, except for one character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
