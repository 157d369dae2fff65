"""The questions to teacher and student about an item, and the form of functional answers.

Paper, Appendix B.2. There, teacher and student have different system texts. Here both read the same words. The only
difference is that the teacher reads raw evidence and the student reads memory tokens.
"""

import json
from pathlib import Path
from typing import Literal, get_origin

from focusmem.errors import RecordError
from focusmem.files import sha256_hex
from focusmem.schemas import Prompt, Record, Role, Turn, parse_record
from focusmem.schemas.objects_in_text import FoundObject, objects_in
from focusmem.schemas.record import JsonObject, NonEmptyText, Text
from focusmem.templates import Templates

DESCRIBE = "describe"
_OWN_PROMPTS = Path(__file__).parent / "prompts"


class _WrittenAction(Record):
    name: NonEmptyText
    arguments: JsonObject


class EpisodicSummary(Record):
    progress_summary: Text
    useful_experience: Text
    task_constraints: Text
    anchor_decision: Text


class EpisodicAnchor(Record):
    anchor_state: Text
    anchor_action: _WrittenAction
    decision_basis: Text


class WorkingState(Record):
    latest_observed_state: Text
    important_state_facts: Text
    current_progress: Text
    remaining_constraints: Text
    last_recorded_action: JsonObject


class WorkingChange(Record):
    initial_state: Text
    observed_change: Text
    latest_observed_state: Text


TARGETS: dict[str, type[Record]] = {
    "episodic_summary": EpisodicSummary,
    "episodic_anchor": EpisodicAnchor,
    "working_state": WorkingState,
    "working_change": WorkingChange,
}
SUBTYPES: dict[Role, tuple[str, ...]] = {
    "episodic": ("episodic_summary", "episodic_anchor"),
    "working": ("working_state", "working_change"),
}


class Discarded(Record):
    """The reason why an answer cannot be a target."""

    reason: Literal["no object", "cut off", "malformed", "wrong fields", "empty field", "several objects"]
    message: Text


def read_answer(subtype: str, text: str) -> str | Discarded:
    """The object in a functional answer. It may stand in prose, in a fenced block or in a list, and be repeated.

    One object must hold the fields of the subtype, each with content. It may also stand as the only field of another
    object, have further fields, which are left out, have a list of texts in place of a text, and trailing commas. The
    result is the object as it was written, or written anew if something had to be changed.

    Other objects are ignored, for example an action that the answer quotes, or a second copy that was cut off. Several
    different objects with these fields make the answer unusable, because it does not say which one is meant.
    """
    objects, broken = objects_in(text, takes_trailing_commas=True)
    fitting, problems = dict[str, str](), list[Discarded]()
    for found in objects:
        target = _as_target(TARGETS[subtype], found)
        if isinstance(target, Discarded):
            problems.append(target)
        else:
            fitting.setdefault(target.canonical, target.text)
    if len(fitting) == 1:
        [answer] = fitting.values()
        return answer
    if fitting:
        return Discarded(reason="several objects", message=f"The answer holds {len(fitting)} different objects.")
    if broken is not None:
        return Discarded(reason=broken.reason, message=broken.message)
    if problems:
        return problems[0]
    return Discarded(reason="no object", message="The answer contains no JSON object.")


def _as_target(kind: type[Record], found: FoundObject) -> FoundObject | Discarded:
    """An object of an answer, with the fields of `kind` alone."""
    written = fields = json.loads(found.text)
    if len(written) == 1:
        [inner] = written.values()
        fields = inner if isinstance(inner, dict) else written
    known = {name: _joined(fields[name]) for name in fields if name in kind.model_fields}
    text = found.text if known == written else json.dumps(known, ensure_ascii=False)
    try:
        target = parse_record(kind, text, "The answer")
    except RecordError as error:
        return Discarded(reason="wrong fields", message=str(error))
    empty = [name for name, value in target if isinstance(value, str) and not value.strip()]
    if empty:
        return Discarded(reason="empty field", message=f"The answer says nothing in {empty[0]}.")
    return FoundObject(text, json.dumps(known, ensure_ascii=False, sort_keys=True))


def _joined(value: object) -> object:
    """A list of texts as one text."""
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return "; ".join(one for one in value if one.strip())
    return value


def schema_text(kind: type[Record]) -> str:
    """The object to return, as a prompt shows it."""
    fields = [f'"{name}": {_shape(field.annotation)}' for name, field in kind.model_fields.items()]
    return "{" + ", ".join(fields) + "}"


def _shape(annotation: object) -> str:
    if isinstance(annotation, type) and issubclass(annotation, Record):
        return schema_text(annotation)
    return "{...}" if get_origin(annotation) is dict else '"..."'


class Questions:
    """`prompts` is a folder with other wordings of the five texts. These may omit the schema."""

    def __init__(self, prompts: Path | None = None) -> None:
        slots: dict[str, set[str]] = {DESCRIBE: set(), **{subtype: {"schema"} for subtype in TARGETS}}
        templates = Templates(prompts or _OWN_PROMPTS, slots=slots, optional=frozenset({"schema"}))
        self._texts = {DESCRIBE: templates.fill(DESCRIBE)} | {
            subtype: templates.fill(subtype, schema=schema_text(kind)) for subtype, kind in TARGETS.items()
        }

    def ask(self, name: str) -> Prompt:
        """The question alone. The student gets it after its memory tokens."""
        return (Turn("user", (self._texts[name],)),)

    def ask_about(self, record: Prompt, name: str) -> Prompt:
        """The question after the raw record, as the teacher gets it."""
        return (*record, *self.ask(name))

    @property
    def digest(self) -> str:
        """Changes with any of the wordings."""
        return sha256_hex(repr(sorted(self._texts.items())).encode())
