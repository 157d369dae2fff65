"""DeepShop: judges the whole request as WebVoyager does, or each part of the request in its own call.

`paper` and `holistic` judge the request as a whole, as WebVoyager's profiles of the same names. `official` asks about
the attribute, the filter and the sort order in separate calls, with the last 15 screenshots; all parts of the request
must be met. A missing part is the text "None", in `Task.references` as in the benchmark.
"""

from typing import ClassVar, Final

from focusmem.judges.base import Attempt
from focusmem.judges.chat_judge import PAPER_MODEL, Finding, Slots
from focusmem.judges.inquiry import Inquiry, all_of, ask_all, spoken
from focusmem.judges.webvoyager import WebVoyagerJudge, strictly_official
from focusmem.schemas import Task

PARTS: Final = ("attribute", "filter", "sort")
_ABSENT: Final = ("none", "", "**")
"""The benchmark's text for a missing part, in lower case."""


class DeepShopJudge(WebVoyagerJudge):
    name = "deepshop"
    profiles: ClassVar = {"paper": PAPER_MODEL, "official": "gpt-4o", "holistic": "gpt-4o"}

    def wording(self) -> tuple[str, Slots]:
        folder, slots = super().wording()
        return ("deepshop/official" if self.profile == "official" else folder), slots

    async def decide(self, attempt: Attempt, inquiry: Inquiry) -> Finding:
        if self.profile != "official":
            return await super().decide(attempt, inquiry)
        parts = parts_of(attempt.task)
        if not parts:
            return Finding("not_judged", "The task names neither an attribute nor a filter nor a sort order.")
        replies = await ask_all(*(inquiry.ask(name, self.question(attempt, text)) for name, text in parts.items()))
        readings = [self.read(reply) for reply in replies]
        won = [reading == "success" for reading in readings]
        return Finding(
            "success" if all(won) else "failure",
            "\n".join(f"{name}: {spoken(reply)}" for name, reply in zip(parts, replies, strict=True)),
            parser="deepshop official",
            strict=all_of([strictly_official(reply) for reply in replies]),
            num_unreadable=readings.count("unreadable"),
        )


def parts_of(task: Task) -> dict[str, str]:
    """The parts that the request has."""
    stored = task.references or {}
    texts = {name: stored.get(name) for name in PARTS}
    return {name: text for name, text in texts.items() if isinstance(text, str) and text.strip().lower() not in _ABSENT}
