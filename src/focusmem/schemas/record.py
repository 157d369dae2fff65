"""The base of all records: strict fields, one way to read stored JSON and one way to write it."""

import json
import math
import re
from datetime import UTC, datetime
from typing import Annotated, Any, NoReturn, TypeVar, get_args

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, JsonValue, ValidationError
from pydantic_core import ErrorDetails

from focusmem.errors import RecordError
from focusmem.files import is_safe_name

MAX_TEXT_LENGTH = 100_000
MAX_DOCUMENT_BYTES = 32 * 2**20
MAX_JSON_DEPTH = 32
MAX_JSON_INTEGER = 2**64

_NOT_STORABLE = re.compile("[\0\ud800-\udfff]")


class Record(BaseModel):
    """Immutable, and strict: nothing is converted, unknown fields and NaN are refused."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False)


RecordT = TypeVar("RecordT", bound=Record)
ValueT = TypeVar("ValueT")


# Field types. Every value that they accept can be stored as UTF-8 JSON and is read back unchanged. Their error messages
# continue a sentence that begins with the field's name.


def storable(text: str) -> str:
    if "\0" in text:
        raise ValueError("should not contain a NUL character")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("should not contain half of a surrogate pair") from None
    return text


def storable_text(text: str) -> str:
    """Text of a model or a page in a form that a record can hold. Such text may contain any character, and none of
    them may end a run.
    """
    return _NOT_STORABLE.sub("\ufffd", text)[:MAX_TEXT_LENGTH]


def not_empty(text: str) -> str:
    if not text:
        raise ValueError("should not be empty")
    return text


def not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("should not be empty or blank")
    return text


def safe_name(text: str) -> str:
    if not is_safe_name(text):
        raise ValueError("should be usable as a file name: letters, digits, '.', '_' and '-', not too long")
    return text


def in_utc(time: datetime) -> datetime:
    try:
        return time.astimezone(UTC)
    except OverflowError:
        raise ValueError("should be a time that can be converted to UTC") from None


def sorted_by_key(entries: dict[str, ValueT]) -> dict[str, ValueT]:
    """Sorts by key, so that equal records are written as equal bytes."""
    return dict(sorted(entries.items()))


def storable_object(value: dict[str, JsonValue], depth: int = 1) -> dict[str, JsonValue]:
    return {storable(key): _storable_value(item, depth + 1) for key, item in sorted(value.items())}


def _storable_value(value: JsonValue, depth: int) -> JsonValue:
    if depth > MAX_JSON_DEPTH:
        raise ValueError(f"should not be nested more than {MAX_JSON_DEPTH} levels deep")
    if isinstance(value, dict):
        return storable_object(value, depth)
    if isinstance(value, list):
        return [_storable_value(item, depth + 1) for item in value]
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("should not contain NaN or an infinite number")
    if isinstance(value, int) and abs(value) >= MAX_JSON_INTEGER:
        raise ValueError("should not contain an integer of more than 64 bits")
    return value


Text = Annotated[str, Field(max_length=MAX_TEXT_LENGTH), AfterValidator(storable)]
NonEmptyText = Annotated[Text, AfterValidator(not_blank)]
Identifier = Annotated[str, AfterValidator(safe_name)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
UtcTime = Annotated[AwareDatetime, AfterValidator(in_utc)]
TextMap = Annotated[dict[Text, Text], AfterValidator(sorted_by_key)]
JsonObject = Annotated[dict[str, JsonValue], AfterValidator(storable_object)]


# Writing and reading.


def dump_record(record: Record) -> bytes:
    """The record as indented UTF-8 JSON; equal records give equal bytes, and absent values are left out."""
    plain = record.model_dump(mode="json", exclude_none=True)
    data = (json.dumps(plain, ensure_ascii=False, allow_nan=False, indent=2) + "\n").encode()
    _check_size(data, f"This {type(record).__name__}")
    return data


def parse_record(cls: type[RecordT], text: str | bytes, origin: str) -> RecordT:
    """Read stored JSON strictly; `origin` (a path, usually) opens the message when something is wrong."""
    data = text.encode(errors="surrogatepass") if isinstance(text, str) else text
    _check_size(data, origin)
    document = _load_json(data, origin)
    if not isinstance(document, dict):
        raise RecordError(f"{origin} should hold one JSON object, but it holds something else.")
    _check_version(cls, document, origin)
    try:
        # Parsed from the text again, because strict mode reads arrays as tuples only from JSON text.
        return cls.model_validate_json(data)
    except ValidationError as error:
        first, *others = error.errors(include_url=False)
    # A misspelt field is both missing and unknown; the unknown name shows where the mistake is.
    shown = [first, *(other for other in others if other["type"] == "extra_forbidden")][:2]
    told = " and ".join(
        f"{_field_name(one['loc'], document) or 'the document'} {describe_problem(one)}" for one in shown
    )
    num_more = len(others) + 1 - len(shown)
    raise RecordError(f"{origin}: {told}{f' (and {num_more} more)' if num_more else ''}.")


def describe_problem(problem: ErrorDetails) -> str:
    """A field's error, as the end of a sentence that begins with the field's name."""
    kind, context, value = problem["type"], problem.get("ctx", {}), problem["input"]
    match kind:
        case "missing":
            return "is missing"
        case "extra_forbidden":
            return "is not a known field"
        case "union_tag_not_found":
            return f"has no {context['discriminator']}"
        case "union_tag_invalid":
            return f"should be one of {context['expected_tags']}, not '{context['tag']}'"
        case "string_too_long":
            return f"is too long: {len(value)} characters, at most {context['max_length']} are allowed"
        case "value_error":
            return str(context["error"]) + _found(value)
        case "json_invalid":
            return f"cannot be read ({context['error']})"
        case _:
            return problem["msg"].removeprefix("Input ") + _found(value)


def _found(value: object) -> str:
    """The wrong value for an error message, shortened."""
    if value is None or isinstance(value, bool | int | float | str):
        text = json.dumps(value)
        return f" (found {text})" if len(text) <= 60 else f" (found {text[:60]}...)"
    return ""


def _field_name(location: tuple[int | str, ...], document: object) -> str:
    """The path of a field, such as `steps[2].action.arguments.url`. Names of union members, which are not in the JSON,
    are left out.
    """
    name = ""
    for index, part in enumerate(location):
        is_last = index == len(location) - 1
        if isinstance(part, int):
            name += f"[{part}]"
            document = document[part] if isinstance(document, list) and part < len(document) else None
        elif isinstance(document, dict) and (part in document or is_last):
            name += f".{part}"
            document = document.get(part)
    return name.removeprefix(".")


def _check_size(data: bytes, what: str) -> None:
    if len(data) > MAX_DOCUMENT_BYTES:
        raise RecordError(f"{what} is too large: {len(data)} bytes, at most {MAX_DOCUMENT_BYTES} are allowed.")


def _load_json(data: bytes, origin: str) -> Any:
    try:
        return STRICT_DECODER.decode(data.decode())
    except UnicodeDecodeError as error:
        raise RecordError(f"{origin} is not valid UTF-8 (at byte {error.start}).") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise RecordError(f"{origin} is not valid JSON: {error.msg} (at {where}).") from None
    except RecursionError:
        raise RecordError(f"{origin} is nested too deeply.") from None
    except ValueError as error:
        raise RecordError(f"{origin} {error}.") from None


def _check_version(cls: type[Record], document: dict[str, Any], origin: str) -> None:
    if "schema_version" not in cls.model_fields:
        return
    if "schema_version" not in document:
        raise RecordError(f"{origin} has no schema_version, so it is not a {cls.__name__} of focusmem.")
    known = get_args(cls.model_fields["schema_version"].annotation)
    version = document["schema_version"]
    if type(version) is not int or version < 1:
        raise RecordError(f"{origin}: schema_version should be a positive integer{_found(version)}.")
    if version not in known:
        raise RecordError(
            f"{origin} has schema_version {version}, but this focusmem reads {', '.join(map(str, known))}; "
            "update focusmem, or make the file again with this version."
        )


# Checks for JSON that Python's json module accepts but stored documents must not contain.


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"has the key {json.dumps(key)} twice in one object")
        found[key] = value
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"contains {name}, which is not a JSON number")


def _finite_number(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"contains a number that is too large ({digits[:20]})")
    return number


def _small_integer(digits: str) -> int:
    # The length is checked first, because converting thousands of digits is slow and raises Python's own error.
    if len(digits) > 21 or abs(int(digits)) >= MAX_JSON_INTEGER:
        raise ValueError(f"contains an integer of more than 64 bits ({digits[:20]}...)")
    return int(digits)


STRICT_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique_keys,
    parse_constant=_no_constant,
    parse_float=_finite_number,
    parse_int=_small_integer,
)
