"""MMInA: compares the answer with the benchmark's references, by string rules and by a judge model's fuzzy match.

`Task.references` holds the benchmark's `reference_answers`: `exact_match` (text), `must_include` (texts) and
`fuzzy_match` (texts). All of them must match. Only the fuzzy match asks a model, once for each text. A task without
references is judged by a fuzzy match with `Task.answer`.

The profile `paper` asks whether the answer to the question is right; `official` asks whether the reference can be
inferred from the answer, and does not show the question.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from focusmem.errors import RecordError
from focusmem.judges.base import Attempt
from focusmem.judges.chat_judge import PAPER_MODEL, ChatJudge, Finding, Slots
from focusmem.judges.fences import fenced
from focusmem.judges.inquiry import Inquiry, all_of, ask_all, spoken
from focusmem.schemas import JudgeReply, Prompt, StrictReading, Task, Turn

_QUOTES: Final = ("'", '"')


class MminaJudge(ChatJudge):
    name = "mmina"
    profiles: ClassVar = {"paper": PAPER_MODEL, "official": "gpt-3.5-turbo"}

    def wording(self) -> tuple[str, Slots]:
        slots = {"pred", "reference"} | ({"question"} if self.profile == "paper" else set())
        return f"mmina/{self.profile}", {"system": set(), "question": slots}

    async def decide(self, attempt: Attempt, inquiry: Inquiry) -> Finding:
        known = References.of(attempt.task)
        if known is None:
            return Finding("not_judged", "The task has neither references nor a right answer.")
        answer = attempt.answer or ""
        failed = known.failed_string(clean_answer(answer))
        by_rule: StrictReading = "success" if failed is None else "failure"
        questions = (self._ask(attempt, number, text, inquiry) for number, text in enumerate(known.fuzzy, start=1))
        replies = await ask_all(*questions)
        readings = [self._read(reply) for reply in replies]
        not_matched = [text for text, reading in zip(known.fuzzy, readings, strict=True) if reading != "success"]
        if failed is None and not_matched:
            failed = f"does not match {not_matched[0]!r:.200}"
        return Finding(
            "success" if failed is None else "failure",
            f"The answer {answer!r:.200} {failed or 'matches every reference'}.",
            parser=f"mmina {self.profile}",
            strict=all_of([by_rule, *map(read_strictly, replies)]) if replies else None,
            num_unreadable=readings.count("unreadable"),
        )

    async def _ask(self, attempt: Attempt, number: int, reference: str, inquiry: Inquiry) -> JudgeReply:
        return await inquiry.ask(f"reference {number}", self._question(attempt, reference))

    def _question(self, attempt: Attempt, reference: str) -> Prompt:
        answer = attempt.answer or ""
        values = {"question": attempt.task.instruction, "reference": reference}
        pred = answer if self.profile == "paper" else clean_answer(answer)
        return (
            Turn("system", (self.texts.fill("system"),)),
            Turn("user", (self.texts.fill("question", pred=fenced(pred), **values),)),
        )

    def _read(self, reply: JudgeReply) -> StrictReading:
        if not reply.is_usable:
            return "unreadable"
        return read_paper(spoken(reply)) if self.profile == "paper" else read_official(spoken(reply))


@dataclass(frozen=True)
class References:
    exact: str | None = None
    must_include: tuple[str, ...] = ()
    fuzzy: tuple[str, ...] = ()

    @classmethod
    def of(cls, task: Task) -> "References | None":
        stored: Mapping[str, Any] = task.references or {}
        stored = stored.get("reference_answers", stored)
        known = {"exact_match", "must_include", "fuzzy_match"} & stored.keys()
        if not known:
            return None if task.answer is None else cls(fuzzy=(task.answer,))
        exact, included, fuzzy = (stored.get(name) for name in ("exact_match", "must_include", "fuzzy_match"))
        if not (exact is None or isinstance(exact, str)) or not all(map(_is_texts, (included, fuzzy))):
            raise RecordError(
                f"The references of {task.task_id} should hold exact_match as text, and must_include and fuzzy_match "
                "as lists of texts."
            )
        return cls(exact, tuple(included or ()), tuple(fuzzy or ()))

    def failed_string(self, answer: str) -> str | None:
        """Names the first string rule that the cleaned answer fails; None if it passes all string rules."""
        if self.exact is not None and answer != clean_answer(self.exact):
            return f"differs from {self.exact!r:.200}"
        missing = [text for text in self.must_include if clean_answer(text) not in answer]
        return f"lacks {missing[0]!r:.200}" if missing else None


def clean_answer(answer: str) -> str:
    """Cleans a text as the official evaluator does: removes one matching pair of quotes, and converts to lower case."""
    for quote in _QUOTES:
        if answer.startswith(quote) and answer.endswith(quote):
            return answer[1:-1].lower()
    return answer.lower()


def read_paper(reply: str) -> StrictReading:
    """`yes` anywhere is a success; otherwise `no` anywhere is a failure. Upper and lower case are equal."""
    text = reply.lower()
    return "success" if "yes" in text else "failure" if "no" in text else "unreadable"


def read_official(reply: str) -> StrictReading:
    """`Yes` with a capital Y anywhere is a success. Everything else is a failure; a reply without `no` (upper or lower
    case) is also counted as unreadable.
    """
    return "success" if "Yes" in reply else "failure" if "no" in reply.lower() else "unreadable"


def read_strictly(reply: JudgeReply) -> StrictReading:
    """The reply must be only `yes` or `no`; case, quotes and a full stop are ignored."""
    word = spoken(reply).strip().strip("\"'`*.").lower()
    if not reply.is_usable or word not in ("yes", "no"):
        return "unreadable"
    return "success" if word == "yes" else "failure"


def _is_texts(value: object) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(text, str) for text in value))
