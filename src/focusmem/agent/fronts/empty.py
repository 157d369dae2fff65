"""No memory: the prompt stands alone."""

from collections.abc import Sequence

from focusmem.agent.decision import Decision
from focusmem.agent.fronts.base import Fronted
from focusmem.agent.prompt import NUM_RECENT
from focusmem.agent.retrieval import Search
from focusmem.schemas import Prompt


class EmptyFront:
    name = "none"
    num_found = 0
    num_recent = NUM_RECENT
    identity = None

    def place(
        self, prompts: Sequence[Prompt], decisions: Sequence[Decision], searches: Sequence[Search]
    ) -> list[Fronted]:
        return [Fronted(prompt, decision.episode_id) for prompt, decision in zip(prompts, decisions, strict=True)]

    def forget(self, episode_id: str) -> None:
        """Nothing to free: this front keeps nothing."""
