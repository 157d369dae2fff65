"""Forms: named rules for what an embedder reads of a moment and of a trajectory.

The form is part of an embedder's identity, so a bank whose vectors were made in another form is refused. The identity
begins with the form's name, so that messages can name the form.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Self

from focusmem.schemas import Screenshot, Step, Task, Trajectory, action_to_json

FormName = Literal["complete-1", "laboratory-1"]
"""The number in a name increases when the form changes what it reads of the same moment or trajectory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The embedder reads a moment as instruction, actions and screenshots of the latest events, and the current
    screenshot. It reads a trajectory as instruction, every action, and screenshots of the steps. The site's name is
    never read, because it belongs neither to c_t nor to a trajectory (paper, "Trajectory Evidence Construction").
    """

    name: FormName
    num_recent_screenshots: int
    """Maximum number of the moment's latest events of which the screenshot is read."""
    num_recent_actions: int
    """Maximum number of the moment's latest events of which the action is read."""
    max_key_frames: int
    """Maximum number of screenshots of a trajectory; of a longer trajectory evenly spaced ones are read."""


COMPLETE: Final = Form(name="complete-1", num_recent_screenshots=3, num_recent_actions=3, max_key_frames=15)
"""The paper's form: all of c_t, which has at most three events, and the whole trajectory up to the paper's limit of
steps.
"""
LABORATORY: Final = Form(name="laboratory-1", num_recent_screenshots=1, num_recent_actions=0, max_key_frames=2)
"""The form of the laboratory's embedder. Changing it to COMPLETE requires training that embedder again."""
FORMS: Final[Mapping[FormName, Form]] = {form.name: form for form in (COMPLETE, LABORATORY)}


@dataclass(frozen=True, slots=True)
class Event:
    screenshot: Screenshot
    action: str
    """The action in the words of prompts; for a step without an action, the policy's reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The contents of a query, c_t: the task's instruction, the events that the prompt shows, and the current
    screenshot.
    """

    instruction: str = ""
    recent: tuple[Event, ...] = ()
    """The latest events of the episode; the latest is the last."""
    screenshot: Screenshot | None = None
    """The current screenshot, if there is one."""

    @classmethod
    def of(
        cls,
        record: Task | Trajectory,
        steps: Sequence[Step],
        screenshots: Mapping[str, Screenshot],
        now: Screenshot,
        *,
        num_recent: int,
    ) -> Self:
        """The moment after these steps of a task, with the current screenshot. The prompt shows `num_recent` events."""
        shown = steps[max(0, len(steps) - num_recent) :]
        recent = tuple(Event(screenshots[step.screenshot.sha256], action_words(step)) for step in shown)
        return cls(instruction=record.instruction, recent=recent, screenshot=now)

    @property
    def digests(self) -> tuple[str, ...]:
        """Digests of its screenshots."""
        shots = (*(event.screenshot for event in self.recent), *([] if self.screenshot is None else [self.screenshot]))
        return tuple(shot.digest for shot in shots)


def action_words(step: Step) -> str:
    return step.reply or "" if step.action is None else action_to_json(step.action)


def named_identity(form: FormName, rest: str) -> str:
    """An embedder's identity; `rest` identifies its weights and settings."""
    return f"{form}:{rest}"


def difference(bank: str, stored: str, given: str) -> str:
    """A sentence that says how the embedder of a bank's vectors differs from a given embedder, by their identities."""
    theirs, ours = _form_of(stored), _form_of(given)
    if theirs == ours:
        return f"The bank {bank} holds vectors of another embedder ({stored}, not {given})."
    return (
        f"The bank {bank} holds vectors of another embedder: that embedder reads trajectories and queries in the form "
        f"{theirs or 'of an older version'}, and the given embedder in the form {ours or 'of an older version'}."
    )


def _form_of(identity: str) -> str:
    """The name of the form; empty if the identity has none."""
    name, colon, _ = identity.partition(":")
    return name if colon else ""
