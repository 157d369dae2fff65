"""The seam: a mind answers decisions. It is a policy with or without memory, or a script."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from focusmem.agent.decision import Decision
from focusmem.agent.formats.base import Reader, read_json
from focusmem.errors import WorldError
from focusmem.schemas import StepNotes


@dataclass(frozen=True)
class Reply:
    text: str
    """The policy's own words; the episode loop parses them into an action."""
    notes: StepNotes = field(default_factory=StepNotes)
    """What memory offered and what the reply cost, as far as the mind knows."""
    error: WorldError | None = None
    """Why there is no reply to this decision; it ends only the episode that asked."""
    reader: Reader = read_json
    """How the text is read as an action, after thoughts were set aside."""


class Mind(Protocol):
    """Answers decisions. If it cannot answer, it raises an error: a WorldError ends all episodes that asked, and any
    other error ends the run.
    """

    def ask(self, decisions: Sequence[Decision]) -> list[Reply]:
        """One reply for each decision, in order. Never called from the browsers' thread."""

    def forget(self, episode_id: str) -> None:
        """Frees everything that is kept for an episode. It is called when the episode has ended. Any thread may call
        it, even while the mind answers.
        """
