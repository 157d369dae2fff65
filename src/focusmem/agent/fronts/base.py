"""The seam: a front puts memory in front of prompts.

A front receives all decisions that are due together, so that a GPU can work on them as one batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from focusmem.agent.decision import Decision
from focusmem.agent.retrieval import Search
from focusmem.schemas import OfferedItem, Prompt

if TYPE_CHECKING:
    from focusmem.model.inputs import Row


@dataclass(frozen=True)
class Fronted:
    """A prompt with memory in front of it, in the form that a policy receives."""

    prompt: Prompt
    """The agent's prompt, without memory."""
    episode_id: str
    turns: Prompt = ()
    """Memory as turns before the prompt. A policy may keep its computation for them as long as the episode has the same
    turns.
    """
    row: "Row | None" = None
    """Memory and prompt as input embeddings, if memory is latent. Only a policy that takes embeddings can use them."""
    num_memory_tokens: int | None = 0
    """How many tokens memory puts in front of the prompt; None if that is not known."""
    num_encoded: int | None = None
    """How many items were encoded for all decisions of the batch; None if the front caches nothing."""
    offered: tuple[OfferedItem, ...] = ()
    """The items that memory offered, accepted or not, in the order of the prompt."""


class Front(Protocol):
    @property
    def name(self) -> str:
        """The name of this memory in reports."""

    @property
    def num_found(self) -> int:
        """How many trajectories the front needs for each decision. With 0, no search takes place."""

    @property
    def num_recent(self) -> int:
        """How many of the latest events the prompt itself must show."""

    @property
    def identity(self) -> str | None:
        """Equal for fronts that give equal results; None if the name alone decides that."""

    def place(
        self, prompts: Sequence[Prompt], decisions: Sequence[Decision], searches: Sequence[Search]
    ) -> list[Fronted]:
        """One result for each decision, in order. Returns after all work has finished, also on a GPU."""

    def forget(self, episode_id: str) -> None:
        """Frees everything that is kept for an episode. Called when the episode has ended."""
