"""Online-Mind2Web's WebJudge: key points of the task, a score for each screenshot, then a verdict.

The verdict sees the key points, the action history, and the screenshots whose score reaches the threshold. If there are
too many, it sees the first in chronological order, not the best. It does not see the agent's answer. The parsers
reproduce the benchmark's script exactly, including its errors; a strict parser reads the verdict as well.

`paper` judges only attempts that stopped with an answer; `official` judges all.
"""

import re
from dataclasses import dataclass
from typing import ClassVar, Final

from focusmem.judges.action_history import action_history
from focusmem.judges.base import Attempt
from focusmem.judges.chat_judge import PAPER_MODEL, ChatJudge, Finding, Slots
from focusmem.judges.fences import fenced
from focusmem.judges.inquiry import Inquiry, ask_all, spoken
from focusmem.schemas import JudgeReply, Prompt, Screenshot, StrictReading, Turn

THRESHOLD: Final = 3
MAX_SCREENSHOTS: Final = 50

_SCORE: Final = re.compile("[1-5]")
_STRICT_STATUS: Final = re.compile(r"[*#\s-]*status[*\s]*:[*\s]*[\"'`*]*(success|failure)[\"'`*.\s]*", re.IGNORECASE)


class WebJudge(ChatJudge):
    name = "online-mind2web"
    profiles: ClassVar = {"paper": PAPER_MODEL, "official": "o4-mini"}

    @property
    def asks_only_after_stop(self) -> bool:
        return self.profile == "paper"

    def wording(self) -> tuple[str, Slots]:
        """Both profiles use the same texts."""
        return "online-mind2web", {
            "points_system": set(),
            "points": {"task"},
            "screenshot_system": set(),
            "screenshot": {"task", "key_points"},
            "verdict_system": set(),
            "verdict": {"task", "key_points", "actions"},
            "verdict_screenshots": {"task", "key_points", "actions", "thoughts"},
        }

    async def decide(self, attempt: Attempt, inquiry: Inquiry) -> Finding:
        task, pages = attempt.task.instruction, attempt.pages
        points = read_key_points(
            spoken(await inquiry.ask("key points", self._prompt("points_system", "points", task=task)))
        )
        replies = await ask_all(
            *(
                inquiry.ask(f"screenshot {number}", self._about(page, task, points))
                for number, page in enumerate(pages, start=1)
            )
        )
        looks = [read_look(reply) for reply in replies]
        verdict = await inquiry.ask("verdict", self._closing(attempt, points, looks, pages))
        reading = read_verdict(spoken(verdict)) if verdict.is_usable else "unreadable"
        return Finding(
            "success" if reading == "success" else "failure",
            spoken(verdict),
            parser="online-mind2web",
            strict=read_strictly(verdict),
            num_unreadable=sum(look.score is None for look in looks) + (reading == "unreadable"),
        )

    def dearest_reply(self, part: str) -> str:
        return "**Reasoning**: It shows a step.\n**Score**: 5" if part.startswith("screenshot") else ""

    def _prompt(self, system: str, user: str, *pages: Screenshot, **values: str) -> Prompt:
        return Turn("system", (self.texts.fill(system),)), Turn("user", (self.texts.fill(user, **values), *pages))

    def _about(self, page: Screenshot, task: str, points: str) -> Prompt:
        return self._prompt("screenshot_system", "screenshot", page, task=task, key_points=points)

    def _closing(self, attempt: Attempt, points: str, looks: list["Look"], pages: list[Screenshot]) -> Prompt:
        chosen = [(look, page) for look, page in zip(looks, pages, strict=True) if (look.score or 0) >= THRESHOLD]
        thoughts = [look.thought for look, _ in chosen if look.thought][:MAX_SCREENSHOTS]
        shown = [page for _, page in chosen][:MAX_SCREENSHOTS]
        values = {
            "task": attempt.task.instruction,
            "key_points": points,
            "actions": fenced(_numbered(action_history(attempt.steps))),
        }
        if not shown:
            return self._prompt("verdict_system", "verdict", **values)
        values["thoughts"] = fenced(_numbered(thoughts))
        return self._prompt("verdict_system", "verdict_screenshots", *shown, **values)


@dataclass(frozen=True)
class Look:
    """The model's rating of one screenshot."""

    score: int | None
    """None if the reply has no readable score; the screenshot then counts as 0."""
    thought: str = ""


def read_key_points(reply: str) -> str:
    """Returns the text between the first and the second `**Key Points**:`, otherwise the text after the last `Key
    Points:`, otherwise the whole reply. Blank lines are removed.
    """
    text = reply.replace("\n\n", "\n")
    marked = text.split("**Key Points**:")
    found = marked[1] if len(marked) > 1 else text.split("Key Points:")[-1]
    return "\n".join(line.lstrip() for line in found.splitlines())


def read_look(reply: JudgeReply) -> Look:
    """The score is the first digit from 1 to 5 between the first and the second `Score`. The thought is the first
    paragraph after the last `**Reasoning**:`.
    """
    parts = spoken(reply).split("Score")
    found = _SCORE.search(parts[1]) if len(parts) > 1 and not reply.is_echo else None
    if found is None:
        return Look(None)
    thought = spoken(reply).split("**Reasoning**:")[-1].strip().split("\n\n")[0].replace("\n", " ")
    return Look(int(found[0]), thought)


def read_verdict(reply: str) -> StrictReading:
    """`success` anywhere between the first and the second `status:` is a success, even in `unsuccessful`; anything else
    there is a failure. A reply without `status:` is unreadable.
    """
    parts = reply.lower().split("status:")
    if len(parts) == 1:
        return "unreadable"
    return "success" if "success" in parts[1] else "failure"


def read_strictly(reply: JudgeReply) -> StrictReading:
    """One line that says `Status: success` or `Status: failure` and nothing else."""
    found = [match[1].lower() for line in spoken(reply).splitlines() if (match := _STRICT_STATUS.fullmatch(line))]
    if not reply.is_usable or len(found) != 1:
        return "unreadable"
    return "success" if found[0] == "success" else "failure"


def _numbered(lines: list[str]) -> str:
    return "\n".join(f"{number}. {line}" for number, line in enumerate(lines, start=1))
