"""The seven actions, defined once: stored JSON, parser and prompt schema come from these records.

The text of a policy is read here and nowhere else. It is never executed: it becomes one of these records, or
an error that tells the policy what to write instead.
"""

import json
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

from pydantic import AfterValidator, BaseModel, Field, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from focusmem.errors import UnreadableActionError
from focusmem.schemas.objects_in_text import objects_in, shortened
from focusmem.schemas.record import Record, describe_problem, not_blank, not_empty, storable

MAX_ARGUMENT_LENGTH: Final = 10_000
# Enough for the longest possible action: three arguments with every character written as a six-character escape.
MAX_REPLY_LENGTH: Final = 200_000

_Text = Annotated[str, Field(max_length=MAX_ARGUMENT_LENGTH), AfterValidator(storable)]
_Words = Annotated[_Text, AfterValidator(not_blank)]
_Reasoning = Annotated[_Text | None, Field(description="where things stand and why this is the next action")]


class ClickArguments(Record):
    description: Annotated[_Words, Field(description="the element to click, in words that single it out")]
    reasoning: _Reasoning = None


class Click(Record):
    name: Literal["click"] = "click"
    arguments: ClickArguments


class TypeArguments(Record):
    text: Annotated[_Text, AfterValidator(not_empty), Field(description="the text to type, not empty")]
    description: Annotated[_Words | None, Field(description="the field to type into")] = None
    reasoning: _Reasoning = None


class Type(Record):
    name: Literal["type"] = "type"
    arguments: TypeArguments


class ScrollArguments(Record):
    direction: Annotated[Literal["up", "down"], Field(description="where to go on the page")]
    reasoning: _Reasoning = None


class Scroll(Record):
    name: Literal["scroll"] = "scroll"
    arguments: ScrollArguments


class PressKeyArguments(Record):
    key: Annotated[_Words, Field(description="a key or a combination, such as Enter or Control+A")]
    reasoning: _Reasoning = None


class PressKey(Record):
    name: Literal["press_key"] = "press_key"
    arguments: PressKeyArguments


class GotoArguments(Record):
    url: Annotated[_Words, Field(description="the address to open")]
    reasoning: _Reasoning = None


class Goto(Record):
    name: Literal["goto"] = "goto"
    arguments: GotoArguments


class WaitArguments(Record):
    reasoning: _Reasoning = None


class Wait(Record):
    name: Literal["wait"] = "wait"
    arguments: WaitArguments


class StopArguments(Record):
    answer: Annotated[_Text, Field(description="the final answer, empty if the task asks for none")]
    reasoning: _Reasoning = None


class Stop(Record):
    name: Literal["stop"] = "stop"
    arguments: StopArguments


AnyAction: TypeAlias = Click | Type | Scroll | PressKey | Goto | Wait | Stop
Action: TypeAlias = Annotated[AnyAction, Field(discriminator="name")]

ACTION_TYPES: Final[dict[str, type[Record]]] = {cls.model_fields["name"].default: cls for cls in get_args(AnyAction)}
ACTION_NAMES: Final = tuple(ACTION_TYPES)

_ADAPTER: Final[TypeAdapter[AnyAction]] = TypeAdapter(Action)


def make_action(name: str, **arguments: str) -> AnyAction:
    """Makes an action by name, as in `make_action("click", description="the logo")`."""
    return _ADAPTER.validate_python({"name": name, "arguments": arguments})


# Writing actions, and describing them to the policy.

_ENTER_HINT: Final = "; Enter is pressed after it"

# JSON leaves these as they are, although many readers (`str.splitlines` among them) end a line there.
_LINE_BREAKS: Final = {code: f"\\u{code:04x}" for code in (0x85, 0x2028, 0x2029)}


def action_to_json(action: AnyAction) -> str:
    """One line of JSON, always the same for the same action.

    Spaced like the tool calls that chat models were trained to write: the policy also reads its actions back.
    """
    text = json.dumps(action.model_dump(mode="json", exclude_none=True), ensure_ascii=False)
    return text.translate(_LINE_BREAKS)


def action_schema_text(*, presses_enter: bool = False) -> str:
    """The prompt's description of actions: a line for each action, then a line for the arguments that all of them
    share. `presses_enter` says that `type` presses Enter after the text.
    """
    hints = {name: _argument_hints(cls) for name, cls in ACTION_TYPES.items()}
    if presses_enter:
        hints["type"]["text"] = hints["type"]["text"].removesuffix(">") + _ENTER_HINT + ">"
    shared = [key for key in next(iter(hints.values())) if all(key in own for own in hints.values())]
    lines = []
    for name, own in hints.items():
        arguments = {key: hint for key, hint in own.items() if key not in shared}
        lines.append(json.dumps({"name": name, "arguments": arguments}))
    for key in shared:
        lines.append(f'All "arguments" can also hold {json.dumps({key: hints["wait"][key]})[1:-1]}')
    return "\n".join(lines)


def _argument_hints(cls: type[Record]) -> dict[str, str]:
    """Each argument with a hint, such as `<up | down: where to go on the page>`."""
    model = cls.model_fields["arguments"].annotation
    assert isinstance(model, type)
    assert issubclass(model, BaseModel)
    hints = {}
    for name, field in model.model_fields.items():
        choices = " | ".join(choice for choice in get_args(field.annotation) if isinstance(choice, str))
        notes = [choices, "" if field.is_required() else "optional", field.description or ""]
        hints[name] = f"<{': '.join(note for note in notes if note)}>"
    return hints


# Reading the policy's text.


def parse_action(text: str) -> AnyAction:
    """The one action in a policy's reply. It may stand in prose or in a fenced block, and be repeated."""
    if len(text) > MAX_REPLY_LENGTH:
        raise UnreadableActionError(
            f"The reply is too long: {len(text)} characters, at most {MAX_REPLY_LENGTH} are read."
        )
    objects, broken = objects_in(text)
    if broken is not None:
        raise UnreadableActionError(broken.message)
    if not objects:
        raise UnreadableActionError(
            'The reply contains no JSON object; write exactly one, such as {"name": "wait", "arguments": {}}.'
        )
    if any(other.canonical != objects[0].canonical for other in objects):
        raise UnreadableActionError("The reply contains more than one JSON object; write exactly one action.")
    try:
        return _ADAPTER.validate_json(objects[0].canonical)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
    raise UnreadableActionError(_advice(problem, json.loads(objects[0].canonical)))


def _advice(problem: ErrorDetails, found: dict[str, Any]) -> str:
    """One sentence for the policy about the first thing that is wrong with the object it wrote."""
    kind, place = problem["type"], problem["loc"][1:]
    if kind == "json_invalid":
        return "The JSON object is nested too deeply."
    if kind == "union_tag_not_found":
        return f'The JSON object has no "name"; the actions are {", ".join(ACTION_NAMES)}.'
    name = found["name"]
    if kind == "union_tag_invalid":
        return f"There is no action {shortened(name)}; the actions are {', '.join(ACTION_NAMES)}."
    if len(place) < 2:
        return f"In the JSON of {name}, {shortened(place[0])} {describe_problem(problem)}."
    if kind == "extra_forbidden":
        known = ", ".join(_argument_hints(ACTION_TYPES[name]))
        return f"The action {name} has no argument {shortened(place[1])}; it takes {known}."
    return f"The argument {shortened(place[1])} of {name} {describe_problem(problem)}."
