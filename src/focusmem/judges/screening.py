"""Audits a failed attempt of a reference run: did the site make the task impossible? Paper, Appendix C.1.

The auditor sees the task and each action followed by the screenshot after it, with its address. The reply must be one
line: `OK`, or `BLOCK KIND stepN reason`. Any other reply is counted as unreadable, and does not block the task.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, get_args

from focusmem.errors import WorldError
from focusmem.judges.action_history import action_history
from focusmem.judges.base import Attempt
from focusmem.judges.chat_judge import OWN_PROMPTS, PAPER_MODEL
from focusmem.judges.fences import fenced
from focusmem.judges.inquiry import CountingInquiry, Estimate, LiveInquiry, spoken
from focusmem.judges.judge_model import JudgeModel
from focusmem.schemas import Closing, JudgeReply, Prompt, Screenshot, Step, Turn
from focusmem.schemas.record import storable_text
from focusmem.schemas.screening import Audit, AuditDecision, ObstacleKind
from focusmem.templates import Templates

MAX_STEPS_SHOWN: Final = 12

_KINDS: Final[dict[str, ObstacleKind]] = {kind: kind for kind in get_args(ObstacleKind)}
_BLOCK: Final = re.compile(rf"BLOCK ({'|'.join(_KINDS)}) step([1-9][0-9]{{0,3}}) (\S.*)")
_SLOTS: Final[dict[str, set[str]]] = {
    "system": set(),
    "task": {"task"},
    "step": {"step", "action", "url"},
    "unseen_step": {"step", "action"},
    "closing": set(),
}


@dataclass(frozen=True)
class AuditFinding:
    """The decision in an auditor's reply."""

    decision: AuditDecision
    reason: str = ""
    kind: ObstacleKind | None = None
    step: int | None = None


class Auditor:
    name: Final = "screening"
    profiles: Final = {"paper": PAPER_MODEL}

    def __init__(self, model: JudgeModel, *, prompts: Path | None = None) -> None:
        self.model = model
        self.texts = Templates((prompts or OWN_PROMPTS) / self.name, slots=_SLOTS)

    async def audit(self, attempt: Attempt) -> Audit:
        inquiry = LiveInquiry(self.model, self.texts.digest)
        try:
            reply = await inquiry.ask("audit", self.question(attempt))
        except WorldError as error:
            found = AuditFinding("not_audited", f"The auditor failed: {error}")
        else:
            found = read_audit(reply, num_steps=len(attempt.steps))
        return Audit(
            task_id=attempt.task.task_id,
            decision=found.decision,
            kind=found.kind,
            step=found.step,
            reason=storable_text(found.reason),
            subject=attempt.digest,
            consultation=inquiry.consultation,
            cost=inquiry.cost,
        )

    async def estimate(self, attempt: Attempt) -> Estimate:
        inquiry = CountingInquiry(lambda part: "")
        await inquiry.ask("audit", self.question(attempt))
        return inquiry.estimate

    def question(self, attempt: Attempt) -> Prompt:
        parts: list[str | Screenshot] = [self.texts.fill("task", task=attempt.task.instruction)]
        for place in sampled(len(attempt.steps), MAX_STEPS_SHOWN):
            parts += self._step(attempt, place)
        parts.append(self.texts.fill("closing"))
        return Turn("system", (self.texts.fill("system"),)), Turn("user", tuple(parts))

    def _step(self, attempt: Attempt, place: int) -> list[str | Screenshot]:
        action = fenced(_in_words(attempt.steps[place]))
        after = _after(attempt, place)
        if after is None:
            return [self.texts.fill("unseen_step", step=place + 1, action=action)]
        text = self.texts.fill("step", step=place + 1, action=action, url=fenced(after.url or "not known"))
        return [text, attempt.screenshot(after.screenshot)]


def sampled(num: int, max_num: int) -> list[int]:
    """Indices of at most `max_num` of `num` steps, evenly spaced, including the first and the last."""
    if num <= max_num:
        return list(range(num))
    return [(place * (num - 1) + (max_num - 1) // 2) // (max_num - 1) for place in range(max_num)]


def read_audit(reply: JudgeReply, *, num_steps: int) -> AuditFinding:
    line = spoken(reply).strip()
    if not reply.is_usable:
        return AuditFinding("unreadable", line)
    if line == "OK":
        return AuditFinding("ok")
    found = _BLOCK.fullmatch(line)
    if found is None or int(found[2]) > num_steps:
        return AuditFinding("unreadable", line)
    return AuditFinding("blocked", found[3], _KINDS[found[1]], int(found[2]))


def _after(attempt: Attempt, place: int) -> Step | Closing | None:
    """The observation after a step: that of the next step, or the closing observation."""
    if place + 1 < len(attempt.steps):
        return attempt.steps[place + 1]
    return None if attempt.trajectory is None else attempt.trajectory.closing


def _in_words(step: Step) -> str:
    if step.action is not None and step.action.name == "stop":
        return f"STOP: {step.action.arguments.answer}"
    return next(iter(action_history([step])), "no action (the reply could not be read)")
