"""Judges one action: is it a valid next step? Paper, Appendix D.2. The action is not compared with a reference action.

If a reply cannot be read, the question is asked once more. If the second reply cannot be read either, the action counts
as invalid and the reply as unreadable.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from focusmem.judges.chat_judge import OWN_PROMPTS, PAPER_MODEL
from focusmem.judges.content_probe import evidence_parts
from focusmem.judges.fences import fenced
from focusmem.judges.inquiry import LiveInquiry
from focusmem.judges.judge_model import JudgeModel
from focusmem.judges.probes import ask_for_object
from focusmem.schemas import Consultation, JudgeCost, Prompt, Screenshot, Step, Turn, action_schema_text
from focusmem.schemas.record import NonEmptyText, Record, Text, storable_text
from focusmem.schemas.verdict import Count
from focusmem.templates import Templates

_SLOTS: Final[dict[str, set[str]]] = {
    "system": set(),
    "opening": {"task"},
    "event": {"step", "action"},
    "now": set(),
    "closing": {"schema", "action"},
}


@dataclass(frozen=True)
class CandidateAction:
    """A policy's next action on a page. It does not say which policy or memory chose it."""

    item_id: str
    task: str
    recent: tuple[Step, ...]
    """The steps before, the earliest first."""
    current: Screenshot
    action: str
    """The policy's reply, readable or not."""
    screenshots: Mapping[str, Screenshot] = field(default_factory=dict)
    """The screenshots of the recent steps, by digest."""


class ActionValidity(Record):
    item_id: NonEmptyText
    is_valid: bool
    reason: Text
    num_unreadable: Count = 0
    """Number of unreadable replies. If all replies were unreadable, the action counts as invalid."""
    is_readable: bool
    consultation: Consultation
    cost: JudgeCost


class ActionValidityJudge:
    name: Final = "action-validity"
    profiles: Final = {"paper": PAPER_MODEL}

    def __init__(self, model: JudgeModel, *, prompts: Path | None = None) -> None:
        self.model = model
        self.texts = Templates((prompts or OWN_PROMPTS) / self.name, slots=_SLOTS)

    async def judge(self, candidate: CandidateAction) -> ActionValidity:
        """A model that cannot be reached raises WorldError."""
        inquiry = LiveInquiry(self.model, self.texts.digest)
        found, num_unreadable = await ask_for_object(inquiry, self.question(candidate), _validity_of)
        return ActionValidity(
            item_id=candidate.item_id,
            is_valid=found is not None and found[0],
            reason="No reply could be read." if found is None else storable_text(found[1]),
            num_unreadable=num_unreadable,
            is_readable=found is not None,
            consultation=inquiry.consultation,
            cost=inquiry.cost,
        )

    def question(self, candidate: CandidateAction) -> Prompt:
        parts: list[str | Screenshot] = [self.texts.fill("opening", task=candidate.task)]
        parts += evidence_parts(self.texts, candidate.recent, candidate.screenshots)
        parts += [self.texts.fill("now"), candidate.current]
        parts.append(self.texts.fill("closing", schema=action_schema_text(), action=fenced(candidate.action)))
        return Turn("system", (self.texts.fill("system"),)), Turn("user", tuple(parts))


def _validity_of(found: dict[str, Any]) -> tuple[bool, str] | None:
    is_valid = found.get("valid")
    return (is_valid, str(found.get("reasoning", ""))) if isinstance(is_valid, bool) else None
