"""The base class of all judges that ask a model. It turns an attempt into questions, and replies into a verdict."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from focusmem.errors import ConfigError, WorldError
from focusmem.judges.base import Attempt
from focusmem.judges.inquiry import CountingInquiry, Estimate, Inquiry, LiveInquiry, StoredInquiry
from focusmem.judges.judge_model import JudgeModel
from focusmem.schemas import JudgeCost, Outcome, StrictReading, Verdict
from focusmem.schemas.record import storable_text
from focusmem.schemas.verdict import judge_key
from focusmem.templates import Templates

OWN_PROMPTS: Final = Path(__file__).parent / "prompts"
PAPER_MODEL: Final = "gemini-3.1-pro"

Slots = dict[str, set[str]]


@dataclass(frozen=True)
class Finding:
    """The result that a judge reads from its model's replies."""

    outcome: Outcome
    reason: str
    parser: str | None = None
    strict: StrictReading | None = None
    num_unreadable: int = 0
    score: float | None = None
    """By default 1 for a success and 0 for a failure."""


class ChatJudge(ABC):
    """The file of each judge defines its profiles, its questions, and how it reads replies."""

    name: ClassVar[str]
    profiles: ClassVar[Mapping[str, str]]
    """The judge model of each profile, by the profile's name; the first profile is the default."""

    def __init__(
        self,
        model: JudgeModel,
        *,
        profile: str | None = None,
        prompts: Path | None = None,
        needs_answer: bool | None = None,
    ) -> None:
        """`prompts` is a folder with other wordings. It has a folder for each judge, which has one for each profile."""
        self.profile = chosen_profile(self.name, self.profiles, profile)
        self.model = model
        self.needs_answer = self.asks_only_after_stop if needs_answer is None else needs_answer
        folder, slots = self.wording()
        self.texts = Templates((prompts or OWN_PROMPTS) / folder, slots=slots)

    @property
    def key(self) -> str:
        """The key of this judge's verdicts."""
        return judge_key(self.name, self.profile, self.model.name, self.texts.digest, self.model.temperature)

    @property
    def asks_only_after_stop(self) -> bool:
        """Whether, by the profile's rules, an attempt without an answer fails without a call."""
        return True

    @abstractmethod
    def wording(self) -> tuple[str, Slots]:
        """The folder of the profile's texts, and their slots."""

    @abstractmethod
    async def decide(self, attempt: Attempt, inquiry: Inquiry) -> Finding:
        """Asks the model's questions, and reads the replies."""

    def dearest_reply(self, part: str) -> str:
        """A made-up reply that leads to the most further questions, for cost estimates."""
        return ""

    async def judge(self, attempt: Attempt) -> Verdict:
        inquiry = LiveInquiry(self.model, self.texts.digest)
        finding = await self._decided(attempt, inquiry)
        return self._verdict(attempt, finding, inquiry, inquiry.cost)

    async def judge_stored(self, attempt: Attempt, verdict: Verdict) -> Verdict:
        """Parses the replies of an earlier verdict of this judge again."""
        if verdict.consultation is None:
            return verdict
        inquiry = StoredInquiry(verdict.consultation)
        finding = await self._decided(attempt, inquiry)
        return self._verdict(attempt, finding, inquiry, verdict.cost)

    async def estimate(self, attempt: Attempt) -> Estimate:
        inquiry = CountingInquiry(self.dearest_reply)
        await self.decide(attempt, inquiry)
        return inquiry.estimate

    async def _decided(self, attempt: Attempt, inquiry: Inquiry) -> Finding:
        try:
            return await self.decide(attempt, inquiry)
        except WorldError as error:  # replies that came before are kept
            return Finding("not_judged", f"The judge failed: {error}")

    def _verdict(
        self, attempt: Attempt, finding: Finding, inquiry: LiveInquiry | StoredInquiry, cost: JudgeCost
    ) -> Verdict:
        score = finding.score
        if score is None and finding.outcome in ("success", "failure"):
            score = float(finding.outcome == "success")
        return Verdict(
            task_id=attempt.task.task_id,
            outcome=finding.outcome,
            score=score,
            reason=storable_text(finding.reason),
            judge=self.name,
            judge_profile=self.profile,
            consultation=inquiry.consultation,
            subject=attempt.digest,
            parser=finding.parser,
            strict=finding.strict,
            num_unreadable=finding.num_unreadable,
            cost=cost,
        )


def chosen_profile(name: str, profiles: Mapping[str, str], profile: str | None) -> str:
    if profile is None:
        return next(iter(profiles))
    if profile not in profiles:
        raise ConfigError(f"The judge '{name}' has no profile '{profile}'; choose one of {', '.join(profiles)}.")
    return profile


def outcome_of(reading: StrictReading) -> Outcome:
    """An unreadable reply counts as a failure, never as a success."""
    return "success" if reading == "success" else "failure"
