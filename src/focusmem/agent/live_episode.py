"""A task under way: everything that was seen, said and done so far, whatever ends it."""

import re
from dataclasses import dataclass, field

from focusmem.schemas import Screenshot, Step, StepNotes, Task
from focusmem.schemas.record import MAX_TEXT_LENGTH

_NOT_STORABLE = re.compile("[\0\ud800-\udfff]")


@dataclass
class LiveEpisode:
    task: Task
    steps: list[Step] = field(default_factory=list)
    screenshots: dict[str, Screenshot] = field(default_factory=dict)
    """Of the steps, by digest."""
    notes: list[StepNotes] = field(default_factory=list)
    """One for each step."""
    error: str | None = None
    """What the world did wrong, where it did."""
    is_blocked: bool = False
    """Whether that was a site that refused the agent."""

    @property
    def is_over(self) -> bool:
        return self.error is not None or self.answer is not None or len(self.steps) >= self.task.max_steps

    @property
    def answer(self) -> str | None:
        """What the policy stopped with."""
        last = self.steps[-1].action if self.steps else None
        return last.arguments.answer if last is not None and last.name == "stop" else None

    @property
    def seconds(self) -> float:
        return sum(sum(notes.seconds.values()) for notes in self.notes)

    def add(self, step: Step, screenshot: Screenshot, notes: StepNotes) -> None:
        is_repeat = bool(self.steps) and _looks_the_same(self.steps[-1], step)
        self.screenshots[screenshot.digest] = screenshot
        self.steps.append(step)
        self.notes.append(notes.model_copy(update={"is_readable": step.action is not None, "is_repeat": is_repeat}))


def storable_text(text: str) -> str:
    """Words of a policy or a page as a record can hold them: they may be anything, and must not end a run."""
    return _NOT_STORABLE.sub("\ufffd", text)[:MAX_TEXT_LENGTH]


def _looks_the_same(one: Step, other: Step) -> bool:
    return one.screenshot.sha256 == other.screenshot.sha256 and _decision(one) == _decision(other)


def _decision(step: Step) -> object:
    """The reasons given for an action do not count; replies that are no action differ by their words."""
    if step.action is None:
        return step.reply
    return step.action.name, step.action.arguments.model_dump(exclude={"reasoning"})
