"""A running episode: everything that was seen, said and done so far. It stays readable however the episode ends."""

from dataclasses import dataclass, field

from focusmem.agent.decision import Decision
from focusmem.schemas import Closing, Observation, Screenshot, Step, StepNotes, Task
from focusmem.schemas.record import storable_text


@dataclass
class LiveEpisode:
    task: Task
    attempt: int = 1
    """Which of the run's attempts at the task, from one."""
    num_broken: int = 0
    """How many times the attempt broke before and was started again."""
    steps: list[Step] = field(default_factory=list)
    screenshots: dict[str, Screenshot] = field(default_factory=dict)
    """The screenshots of the steps and of the closing, by digest."""
    notes: list[StepNotes] = field(default_factory=list)
    """One for each step."""
    closing: Closing | None = None
    """The observation after the last action."""
    reward: float | None = None
    """The reward that the page has given so far; None if it gives none."""
    is_ended_by_page: bool = False
    """Whether the page itself has ended the task."""
    error: str | None = None
    """The error of the world that ended the episode, if there was one."""
    is_blocked: bool = False
    """Whether a site refused the agent."""

    @property
    def episode_id(self) -> str:
        """Different for every episode of a run."""
        return f"{self.task.task_id} {self.attempt} {self.num_broken}"

    @property
    def is_over(self) -> bool:
        is_ended = self.error is not None or self.answer is not None or self.is_ended_by_page
        return is_ended or len(self.steps) >= self.task.max_steps

    @property
    def answer(self) -> str | None:
        """The answer in the policy's `stop` action; None if it has not stopped."""
        last = self.steps[-1].action if self.steps else None
        return last.arguments.answer if last is not None and last.name == "stop" else None

    @property
    def seconds(self) -> float:
        """The wall-clock time of all steps."""
        return sum(notes.wall_s for notes in self.notes if notes.wall_s is not None)

    def decision(self, seen: Observation) -> Decision:
        """The question to the mind about this observation."""
        return Decision(self.task, self.episode_id, seen, self.steps, self.screenshots)

    def look(self, seen: Observation) -> None:
        """Notes what the page itself says about the task."""
        self.reward, self.is_ended_by_page = seen.reward, seen.is_over

    def add(self, step: Step, screenshot: Screenshot, notes: StepNotes) -> None:
        is_repeat = bool(self.steps) and _looks_the_same(self.steps[-1], step)
        self.screenshots[screenshot.digest] = screenshot
        self.steps.append(step)
        self.notes.append(notes.model_copy(update={"is_readable": step.action is not None, "is_repeat": is_repeat}))

    def close(self, seen: Observation) -> None:
        """Notes the observation after the last action."""
        self.look(seen)
        self.screenshots[seen.screenshot.digest] = seen.screenshot
        self.closing = Closing(screenshot=seen.screenshot.ref(), url=storable_text(seen.url))


def _looks_the_same(first: Step, second: Step) -> bool:
    return first.screenshot.sha256 == second.screenshot.sha256 and _choice(first) == _choice(second)


def _choice(step: Step) -> object:
    """The part of a step that is compared: the action without its reasoning, or the reply's text if it is not an
    action.
    """
    if step.action is None:
        return step.reply
    return step.action.name, step.action.arguments.model_dump(exclude={"reasoning"})
