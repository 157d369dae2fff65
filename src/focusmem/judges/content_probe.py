"""Scores from 0 to 100 how well an answer recovers what an evidence item shows. Paper, Appendix D.2.

Answers are compared only with the evidence; there is no reference answer. If a reply has no readable score, the
question is asked once more. If the second reply has none either, the score is 0 and counted as unreadable.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from focusmem.errors import RecordError
from focusmem.judges.chat_judge import OWN_PROMPTS, PAPER_MODEL
from focusmem.judges.fences import fenced
from focusmem.judges.inquiry import LiveInquiry
from focusmem.judges.judge_model import JudgeModel
from focusmem.judges.probes import ask_for_object
from focusmem.schemas import Consultation, JudgeCost, Prompt, Screenshot, Step, Turn, action_to_json
from focusmem.schemas.evidence import Role
from focusmem.schemas.record import NonEmptyText, Record, Text, storable_text
from focusmem.schemas.verdict import Count
from focusmem.templates import Templates

ProbeCategory = Literal["semantic", "aligned", "transfer"]

_SLOTS: Final[dict[str, set[str]]] = {
    "system": set(),
    "opening": {"role", "category", "instruction"},
    "event": {"step", "action"},
    "closing": {"answer"},
}


@dataclass(frozen=True)
class ProbeAnswer:
    """An answer to a probe, with the evidence that the probe is about. It does not say who answered."""

    item_id: str
    role: Role
    category: ProbeCategory
    instruction: str
    """The probe's question."""
    steps: tuple[Step, ...]
    """The raw evidence."""
    answer: str
    screenshots: Mapping[str, Screenshot] = field(default_factory=dict)
    """The screenshots of the steps, by digest."""


class ProbeScore(Record):
    item_id: NonEmptyText
    category: ProbeCategory
    score: Annotated[int, Field(ge=0, le=100)]
    reason: Text
    num_unreadable: Count = 0
    """Number of unreadable replies. If all replies were unreadable, the score is 0."""
    is_readable: bool
    consultation: Consultation
    cost: JudgeCost


class ContentProbeJudge:
    name: Final = "content-probe"
    profiles: Final = {"paper": PAPER_MODEL}

    def __init__(self, model: JudgeModel, *, prompts: Path | None = None) -> None:
        self.model = model
        self.texts = Templates((prompts or OWN_PROMPTS) / self.name, slots=_SLOTS)

    async def score(self, probe: ProbeAnswer) -> ProbeScore:
        """A model that cannot be reached raises WorldError."""
        inquiry = LiveInquiry(self.model, self.texts.digest)
        found, num_unreadable = await ask_for_object(inquiry, self.question(probe), _score_of)
        return ProbeScore(
            item_id=probe.item_id,
            category=probe.category,
            score=0 if found is None else found[0],
            reason="No reply could be read." if found is None else storable_text(found[1]),
            num_unreadable=num_unreadable,
            is_readable=found is not None,
            consultation=inquiry.consultation,
            cost=inquiry.cost,
        )

    def question(self, probe: ProbeAnswer) -> Prompt:
        parts: list[str | Screenshot] = [
            self.texts.fill("opening", role=probe.role, category=probe.category, instruction=probe.instruction)
        ]
        parts += evidence_parts(self.texts, probe.steps, probe.screenshots)
        parts.append(self.texts.fill("closing", answer=fenced(probe.answer)))
        return Turn("system", (self.texts.fill("system"),)), Turn("user", tuple(parts))


def evidence_parts(
    texts: Templates, steps: tuple[Step, ...], screenshots: Mapping[str, Screenshot]
) -> list[str | Screenshot]:
    """Each step's screenshot, followed by the template `event` with its action."""
    parts: list[str | Screenshot] = []
    for number, step in enumerate(steps, start=1):
        if step.screenshot.sha256 not in screenshots:
            raise RecordError(f"The screenshot of step {number} of the evidence is missing.")
        action = "none could be read" if step.action is None else action_to_json(step.action)
        parts += [screenshots[step.screenshot.sha256], texts.fill("event", step=number, action=fenced(action))]
    return parts


def _score_of(found: dict[str, Any]) -> tuple[int, str] | None:
    score, reason = found.get("score"), found.get("reasoning", "")
    is_whole = isinstance(score, int) and not isinstance(score, bool) and 0 <= score <= 100
    return (score, str(reason)) if isinstance(score, int) and is_whole else None
