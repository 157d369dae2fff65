"""One task under way in the laboratory, and what is left of it on disk."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from focusmem.browser.base import Browser
from focusmem.errors import PolicyError, WorldError
from focusmem.files import write_whole
from focusmem.lab.tasks import MAX_STEPS, LabTask, is_right
from focusmem.schemas import (
    Episode,
    Outcome,
    Screenshot,
    Step,
    StepNotes,
    Trajectory,
    dump_record,
    parse_action,
    save_trajectory,
)


@dataclass
class LabEpisode:
    task: LabTask
    browser: Browser
    steps: list[Step] = field(default_factory=list)
    screenshots: dict[str, Screenshot] = field(default_factory=dict)
    notes: list[StepNotes] = field(default_factory=list)
    error: str | None = None

    @property
    def is_over(self) -> bool:
        last = self.steps[-1].action if self.steps else None
        return self.error is not None or len(self.steps) >= MAX_STEPS or (last is not None and last.name == "stop")

    @property
    def answer(self) -> str | None:
        """What the policy stopped with."""
        last = self.steps[-1].action if self.steps else None
        return last.arguments.answer if last is not None and last.name == "stop" else None

    @property
    def outcome(self) -> Outcome:
        if self.error is not None:
            return "error"
        is_success = self.answer is not None and is_right(self.answer, self.task.task.answer or "")
        return "success" if is_success else "failure"

    @contextmanager
    def keeping_errors(self) -> Iterator[None]:
        """What the world does wrong ends this episode as an error; the others go on."""
        try:
            yield
        except WorldError as error:
            self.error = str(error)

    async def act(self, screenshot: Screenshot, reply: str, notes: StepNotes) -> None:
        """Do what a reply says, and keep it; words that cannot be read as an action are a step as well."""
        step = await self._done(screenshot, reply)
        is_repeat = bool(self.steps) and _looks_the_same(self.steps[-1], step)
        self.screenshots[screenshot.digest] = screenshot
        self.steps.append(step)
        self.notes.append(notes.model_copy(update={"is_readable": step.action is not None, "is_repeat": is_repeat}))

    async def _done(self, screenshot: Screenshot, reply: str) -> Step:
        try:
            action = parse_action(reply)
        except PolicyError as error:
            return Step(screenshot=screenshot.ref(), reply=reply, error=str(error))
        performed = await self.browser.perform(action)
        return Step(
            screenshot=screenshot.ref(),
            action=action,
            reply=reply,
            click_point=performed.click_point,
            error=performed.error,
        )

    def add_seconds(self, seconds: Mapping[str, float]) -> None:
        """Time that the last step took, by part."""
        if self.notes:
            self.notes[-1] = self.notes[-1].model_copy(update={"seconds": dict(sorted(seconds.items()))})

    def store(self, place: Path, method: str) -> None:
        """The trajectory first, then the record that says the episode is finished."""
        task = self.task.task
        if self.steps:
            trajectory = Trajectory(
                trajectory_id=task.task_id,
                task_id=task.task_id,
                instruction=task.instruction,
                start_url=task.start_url,
                site=task.site,
                steps=tuple(self.steps),
                outcome=self.outcome,
                source=f"laboratory policy, {method}",
                annotations=task.annotations,
            )
            save_trajectory(place / "trajectory", trajectory, self.screenshots, replace=True)
        episode = Episode(
            task=task,
            method=method,
            outcome=self.outcome,
            answer=self.answer,
            error=self.error,
            notes=tuple(self.notes),
            seconds=sum(sum(notes.seconds.values()) for notes in self.notes),
        )
        write_whole(place / "episode.json", dump_record(episode))


def _looks_the_same(one: Step, other: Step) -> bool:
    is_same_action = one.action == other.action if one.action else one.reply == other.reply
    return is_same_action and one.screenshot.sha256 == other.screenshot.sha256
