"""The seam: whatever answers a prompt that has memory in front of it."""

from collections.abc import Sequence
from typing import Protocol

from focusmem.agent.fronts.base import Fronted
from focusmem.schemas import Prompt


class Policy(Protocol):
    """In this process (`agent/local_policy.py`), or a server."""

    @property
    def identity(self) -> str:
        """Equal for policies that answer alike."""

    def reply(self, asked: Sequence[Fronted], *, seeds: Sequence[int] | None = None) -> list[str]:
        """One reply for each prompt, in order. Equal seeds give equal replies; None samples nothing twice alike."""

    def num_tokens(self, turns: Prompt, *, is_complete: bool = False) -> int:
        """How many tokens these turns take; `is_complete` where no reply follows them."""

    def forget(self, episode_id: str) -> None:
        """The episode is over; what was kept for it alone can go."""
