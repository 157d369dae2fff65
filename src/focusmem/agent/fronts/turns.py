"""Memory as turns before the prompt, readable by any policy: found trajectories in words, or raw with screenshots."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from focusmem.agent.decision import Decision
from focusmem.agent.fronts.base import Fronted
from focusmem.agent.prompt import NUM_RECENT
from focusmem.agent.retrieval import FoundTrajectory, Search
from focusmem.evidence import Serialiser, episodic_items
from focusmem.schemas import OfferedItem, Prompt, Turn, action_to_json
from focusmem.templates import Templates

_OWN_PROMPTS = Path(__file__).parent / "prompts"

ShowTrajectory: TypeAlias = Callable[[FoundTrajectory], Prompt]
"""The turns that show a trajectory."""
CountTokens: TypeAlias = Callable[[Prompt], int | None]
"""Counts the tokens of complete turns, as a policy's `num_tokens` does; None if that is not known."""


@dataclass(frozen=True)
class _Shown:
    """The turns before the prompts of an episode, kept as long as the same trajectories are found."""

    names: tuple[str, ...]
    turns: Prompt
    items: tuple[OfferedItem, ...]
    num_tokens: int | None


class TurnsFront:
    """Shows each found trajectory as turns, the best first. A prompt stays as it is if nothing was found for its
    decision.
    """

    def __init__(
        self,
        name: str,
        show: ShowTrajectory,
        count_tokens: CountTokens,
        *,
        num_found: int = 3,
        identity: str | None = None,
    ) -> None:
        """`identity` distinguishes fronts of the same name."""
        self.name, self.num_found, self.num_recent = name, num_found, NUM_RECENT
        self.identity = identity
        self._show, self._count_tokens = show, count_tokens
        self._kept: dict[str, _Shown] = {}

    def place(
        self, prompts: Sequence[Prompt], decisions: Sequence[Decision], searches: Sequence[Search]
    ) -> list[Fronted]:
        return [self._place(*one) for one in zip(prompts, decisions, searches, strict=True)]

    def forget(self, episode_id: str) -> None:
        self._kept.pop(episode_id, None)

    def _place(self, prompt: Prompt, decision: Decision, search: Search) -> Fronted:
        if not search.found:
            return Fronted(prompt, decision.episode_id)
        names = tuple(found.hit.trajectory_id for found in search.found)
        shown = self._kept.get(decision.episode_id)
        if shown is None or shown.names != names:
            shown = self._kept[decision.episode_id] = self._shown(names, search.found)
        scores = [found.hit.score for found in search.found]
        items = (item.model_copy(update={"score": score}) for item, score in zip(shown.items, scores, strict=True))
        return Fronted(
            prompt,
            decision.episode_id,
            turns=shown.turns,
            num_memory_tokens=shown.num_tokens,
            offered=tuple(items),
        )

    def _shown(self, names: tuple[str, ...], found: Sequence[FoundTrajectory]) -> _Shown:
        parts = [self._show(trajectory) for trajectory in found]
        items = [
            OfferedItem(
                role="episodic",
                rank=rank,
                trajectory_id=trajectory.hit.trajectory_id,
                source=trajectory.stored.trajectory.source,
                num_steps=len(trajectory.stored.trajectory.steps),
                is_accepted=True,
                num_tokens=self._count_tokens(turns),
            )
            for rank, (trajectory, turns) in enumerate(zip(found, parts, strict=True))
        ]
        turns = tuple(turn for part in parts for turn in part)
        return _Shown(names, turns, tuple(items), self._count_tokens(turns))


def show_raw(serialise: Serialiser) -> ShowTrajectory:
    """Every screenshot and action, as the memory encoder reads them."""

    def show(found: FoundTrajectory) -> Prompt:
        [item] = episodic_items([(found.stored.trajectory, found.hit.score)])
        return serialise(item, found.stored.screenshots)

    return show


def show_words(prompts: Path | None = None) -> ShowTrajectory:
    """The task and its actions, without screenshots; `prompts` is a folder with other wordings of the two texts."""
    templates = Templates(prompts or _OWN_PROMPTS, slots={name: {"task", "actions"} for name in ("solved", "tried")})

    def show(found: FoundTrajectory) -> Prompt:
        trajectory = found.stored.trajectory
        actions = [action_to_json(step.action) for step in trajectory.steps if step.action is not None]
        lines = "\n".join(f"{number}. {action}" for number, action in enumerate(actions, start=1))
        name = "solved" if trajectory.outcome == "success" else "tried"
        return (Turn("user", (templates.fill(name, task=trajectory.instruction, actions=lines),)),)

    return show
