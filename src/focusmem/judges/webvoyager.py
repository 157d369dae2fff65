"""WebVoyager: a judge model gets the answer and the last screenshots in one call.

`paper` shows the last 5 screenshots and reads the verdict between <result> tags. `official` shows the last 15 and
searches the whole reply; a reply without a verdict leaves the attempt not judged, as in the benchmark's script.
`holistic` shows all screenshots and asks for a JSON object, as MolmoWeb's evaluation does.
"""

import re
from collections.abc import Callable, Mapping
from typing import ClassVar, Final

from focusmem.judges.base import Attempt
from focusmem.judges.chat_judge import PAPER_MODEL, ChatJudge, Finding, Slots
from focusmem.judges.fences import fenced
from focusmem.judges.inquiry import Inquiry, spoken
from focusmem.schemas import JudgeReply, Outcome, Prompt, StrictReading, Turn
from focusmem.schemas.objects_in_text import objects_in
from focusmem.schemas.record import STRICT_DECODER

_NUM_LAST: Final = {"paper": 5, "official": 15, "holistic": None}
_RESULT: Final = re.compile("<result>(.*?)</result>")
_RESULT_OF_SEVERAL_LINES: Final = re.compile("<result>(.*?)</result>", re.DOTALL)
_TOKEN: Final = re.compile(r"\b(?:not )?success\b", re.IGNORECASE)


class WebVoyagerJudge(ChatJudge):
    name = "webvoyager"
    profiles: ClassVar = {"paper": PAPER_MODEL, "official": "gpt-4-vision-preview", "holistic": "gpt-4o"}

    def wording(self) -> tuple[str, Slots]:
        slots = {"task", "answer"} | ({"num"} if self.profile == "official" else set())
        closing: Slots = {"closing": set()} if self.profile == "official" else {}
        return f"webvoyager/{self.profile}", {"system": set(), "question": slots, **closing}

    async def decide(self, attempt: Attempt, inquiry: Inquiry) -> Finding:
        prompt = self.question(attempt, attempt.task.instruction)
        reply = await inquiry.ask("verdict", prompt, as_json=self.profile == "holistic")
        reading = self.read(reply)
        outcome: Outcome = "success" if reading == "success" else "failure"
        if reading == "unreadable" and self.profile == "official":
            outcome = "not_judged"
        return Finding(
            outcome,
            spoken(reply),
            parser=f"webvoyager {self.profile}",
            strict=STRICT_READERS[self.profile](reply),
            num_unreadable=int(reading == "unreadable"),
        )

    def question(self, attempt: Attempt, task: str) -> Prompt:
        num = _NUM_LAST[self.profile]
        pages = attempt.pages if num is None else attempt.pages[-num:]
        system = Turn("system", (self.texts.fill("system"),))
        answer = fenced(attempt.answer or "")
        text = self.texts.fill("question", task=task, answer=answer, num=len(pages))
        if self.profile == "official":
            return system, Turn("user", (text, *pages, self.texts.fill("closing")))
        return system, Turn("user", (text,)), *([Turn("user", tuple(pages))] if pages else [])

    def read(self, reply: JudgeReply) -> StrictReading:
        return READERS[self.profile](spoken(reply)) if reply.is_usable else "unreadable"


def read_paper(reply: str) -> StrictReading:
    """Reads the text in the first <result> tag that closes on its own line, or otherwise the whole reply. `not success`
    anywhere in this text is a failure; otherwise `success` anywhere in it is a success. Upper and lower case are equal.
    """
    text = reply.strip().lower()
    found = _RESULT.search(text)
    text = (found[1] if found else "") or text
    return "failure" if "not success" in text else "success" if "success" in text else "unreadable"


def read_official(reply: str) -> StrictReading:
    """`NOT SUCCESS` in upper case anywhere is a failure, even if it is quoted; otherwise `SUCCESS` in upper case
    anywhere is a success.
    """
    return "failure" if "NOT SUCCESS" in reply else "success" if "SUCCESS" in reply else "unreadable"


def read_holistic(reply: str) -> StrictReading:
    """The `verdict` of the last JSON object in the reply: SUCCESS or FAILURE."""
    objects, _ = objects_in(reply)
    found = STRICT_DECODER.decode(objects[-1].text).get("verdict") if objects else None
    return _of_word(found)


def strictly_paper(reply: JudgeReply) -> StrictReading:
    """One <result> tag, with SUCCESS or NOT SUCCESS and nothing else in it."""
    found = _RESULT_OF_SEVERAL_LINES.findall(spoken(reply))
    return _of_word(found[0].strip()) if reply.is_usable and len(found) == 1 else "unreadable"


def strictly_official(reply: JudgeReply) -> StrictReading:
    """One SUCCESS or NOT SUCCESS, in upper case, in the last line that is not blank."""
    lines = spoken(reply).strip().splitlines()
    found = _TOKEN.findall(lines[-1]) if lines else []
    return _of_word(found[0]) if reply.is_usable and len(found) == 1 else "unreadable"


def strictly_holistic(reply: JudgeReply) -> StrictReading:
    """One JSON object and nothing else."""
    objects, broken = objects_in(spoken(reply))
    is_alone = len(objects) == 1 and broken is None and objects[0].text == spoken(reply).strip()
    return read_holistic(objects[0].text) if reply.is_usable and is_alone else "unreadable"


def _of_word(word: object) -> StrictReading:
    return "success" if word == "SUCCESS" else "failure" if word in ("NOT SUCCESS", "FAILURE") else "unreadable"


READERS: Final[Mapping[str, Callable[[str], StrictReading]]] = {
    "paper": read_paper,
    "official": read_official,
    "holistic": read_holistic,
}
STRICT_READERS: Final[Mapping[str, Callable[[JudgeReply], StrictReading]]] = {
    "paper": strictly_paper,
    "official": strictly_official,
    "holistic": strictly_holistic,
}
