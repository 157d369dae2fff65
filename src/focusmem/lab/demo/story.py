"""Describes a demonstration in words, task by task, from its two stored runs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from focusmem.lab.demo.demo import LABELS, METHODS, WITH, WITHOUT
from focusmem.lab.world.tasks import LabTask
from focusmem.reports.page_data import first_divergence, seen_and_done
from focusmem.reports.words import OUTCOMES, counted, in_words
from focusmem.schemas import Episode, Outcome, RunFolder, Step, StoredEpisode, load_trajectory, read_episode

_NUM_QUOTED = 60
"""Number of characters of a reply that are quoted."""


@dataclass(frozen=True)
class Attempt:
    outcome: Outcome
    answer: str | None
    num_steps: int
    seconds: float
    error: str | None


@dataclass(frozen=True)
class Brought:
    """A trajectory that memory offered, summed over all steps of an episode."""

    trajectory_id: str
    instruction: str
    is_same_site: bool
    num_offered: int
    """Steps at which it was found."""
    num_accepted: int
    """Steps at which the gate accepted it."""


@dataclass(frozen=True)
class Parting:
    """The first step at which two attempts acted differently."""

    step: int
    """The number of the step, from one."""
    actions: dict[str, str | None]
    """The action in words, by method; None if the attempt had ended."""


@dataclass(frozen=True)
class TaskStory:
    number: int
    task_id: str
    site: str
    kind: str
    instruction: str
    right_answer: str
    outcomes: dict[str, Outcome]
    """By method."""
    attempts: dict[str, Attempt]
    brought: tuple[Brought, ...]
    """The most frequently found trajectory comes first."""
    parting: Parting | None
    """None if both attempts acted identically to the end, or not at all."""


def stories(folder: Path, tasks: Sequence[LabTask]) -> list[TaskStory]:
    """Reads the two runs in the folder of a demonstration."""
    return [_story(number, task, folder) for number, task in enumerate(tasks, start=1)]


def _story(number: int, lab_task: LabTask, folder: Path) -> TaskStory:
    task = lab_task.task
    stored = {method: read_episode(RunFolder(folder / method).place(task.task_id, 1)) for method in METHODS}
    return TaskStory(
        number=number,
        task_id=task.task_id,
        site=task.site,
        kind=lab_task.kind,
        instruction=task.instruction,
        right_answer=task.answer or "",
        outcomes={method: one.outcome for method, one in stored.items()},
        attempts={
            method: Attempt(
                one.outcome,
                one.episode.answer,
                len(one.episode.notes),
                round(one.episode.seconds, 2),
                one.episode.error,
            )
            for method, one in stored.items()
        },
        brought=_brought(stored[WITH].episode, folder / WITH / "recalled"),
        parting=_parting({method: _steps(one) for method, one in stored.items()}),
    )


def _steps(stored: StoredEpisode) -> tuple[Step, ...]:
    """Empty if the world broke before the first step."""
    found = stored.trajectory()
    return () if found is None else found.trajectory.steps


def _brought(episode: Episode, recalled: Path) -> tuple[Brought, ...]:
    fates: dict[str, list[bool]] = {}
    for notes in episode.notes:
        for item in notes.offered:
            if item.trajectory_id is not None:
                fates.setdefault(item.trajectory_id, []).append(item.is_accepted)
    found = []
    for name, own in sorted(fates.items(), key=lambda pair: -len(pair[1])):
        trajectory = load_trajectory(recalled / name).trajectory
        is_same_site = trajectory.site == episode.task.site
        found.append(Brought(name, trajectory.instruction, is_same_site, len(own), sum(own)))
    return tuple(found)


def _parting(steps: Mapping[str, Sequence[Step]]) -> Parting | None:
    plain = ([{**seen_and_done(step), "reply": step.reply} for step in own] for own in steps.values())
    place = first_divergence(*plain)
    if place is None:
        return None
    actions = {method: _done(own[place]) if place < len(own) else None for method, own in steps.items()}
    return Parting(place + 1, actions)


def _done(step: Step) -> str:
    """The action in words. An unreadable reply is quoted, so that different replies count as different."""
    if step.action is not None or step.reply is None:
        return in_words(step.action)
    start = step.reply[:_NUM_QUOTED]
    return f"wrote {start!r}{'...' if start != step.reply else ''}, which is no action"


def told(stories: Sequence[TaskStory]) -> Iterator[str]:
    """The whole story, line by line."""
    for story in stories:
        yield f"Task {story.number} ({story.task_id}): {story.instruction}"
        yield f"  The right answer: {story.right_answer}"
        for method in METHODS:
            yield f"  {LABELS[method].capitalize()}: {_ending(story.attempts[method])}"
        yield f"  {_where_they_part(story)}"
        yield from _what_came(story.brought)
        yield ""
    solved = {method: sum(story.outcomes[method] == "success" for story in stories) for method in METHODS}
    yield (
        f"Solved without memory: {solved[WITHOUT]} of {len(stories)}; with memory: {solved[WITH]} of {len(stories)}. "
        "So few tasks show how it works, not how well."
    )


def _ending(attempt: Attempt) -> str:
    steps = counted(attempt.num_steps, "step")
    if attempt.error is not None:
        return f"{OUTCOMES[attempt.outcome]} after {steps}: {attempt.error}"
    answer = "without an answer" if attempt.answer is None else f"with the answer {attempt.answer!r}"
    return f"{OUTCOMES[attempt.outcome]}, after {steps}, {answer}"


def _where_they_part(story: TaskStory) -> str:
    parting = story.parting
    if parting is None:
        has_steps = any(attempt.num_steps for attempt in story.attempts.values())
        return "Both did the same at every step." if has_steps else "Neither took a step."
    without, with_memory = (parting.actions[method] or "(had ended)" for method in METHODS)
    return f"They part at step {parting.step}. Without memory: {without}. With memory: {with_memory}."


def _what_came(brought: Sequence[Brought]) -> Iterator[str]:
    yield "  Memory brought these trajectories:" if brought else "  Memory brought no trajectory."
    for one in brought:
        site = "this site" if one.is_same_site else "another site"
        steps = counted(one.num_offered, "step")
        yield f"    {one.instruction!r} ({site}; the gate let it in at {one.num_accepted} of {steps})"
