"""The prompt of a decision: the parts and the order of the paper's Appendix B, in our own wording.

Memory goes in front of it: as latent tokens, or as turns.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from focusmem.schemas import Instruction, Prompt, Screenshot, Step, Turn, action_schema_text, action_to_json
from focusmem.templates import Templates

NUM_RECENT = 3
"""How many of the latest events the prompt shows. Older ones have expired and are left to memory."""

_OWN_PROMPTS = Path(__file__).parent / "prompts"
_SLOTS: dict[str, set[str]] = {
    "system": {"actions"},
    "history": set(),
    "event": {"step", "action"},
    "failed_event": {"step", "action", "error"},
    "task": {"task"},
    "budget": {"actions_left"},
    "observation": set(),
    "reminder": set(),
}


@dataclass(frozen=True)
class RecentEvent:
    number: int
    """The step's number in the episode, from one."""
    screenshot: Screenshot
    action: str
    """The action as JSON, or the reply if it could not be read as an action."""
    error: str | None = None
    """What went wrong, if anything."""


def recent_events(
    steps: Sequence[Step], screenshots: Mapping[str, Screenshot], num_recent: int = NUM_RECENT
) -> list[RecentEvent]:
    """The latest steps of an episode, as the prompt shows them."""
    first = max(0, len(steps) - num_recent)
    return [
        RecentEvent(
            number,
            screenshots[step.screenshot.sha256],
            action_to_json(step.action) if step.action else step.reply or "",
            step.error,
        )
        for number, step in enumerate(steps[first:], start=first + 1)
    ]


class PromptBuilder:
    """`prompts` is a folder with another wording of the same texts. With `shows_errors`, the prompt's history says
    which actions failed, and why. The paper's prompt does not say this.
    """

    def __init__(self, prompts: Path | None = None, *, shows_errors: bool = True) -> None:
        self.shows_errors = shows_errors
        # A small policy that was trained on actions and errors needs no long explanation of them.
        self._templates = Templates(prompts or _OWN_PROMPTS, slots=_SLOTS, optional=frozenset({"actions", "error"}))

    @property
    def digest(self) -> str:
        """Equal for equal wordings."""
        return self._templates.digest if self.shows_errors else f"{self._templates.digest} without errors"

    def __call__(
        self,
        *,
        instruction: str,
        recent: Sequence[RecentEvent],
        screenshot: Screenshot,
        actions_left: int,
        presses_enter: bool = False,
    ) -> Prompt:
        """`presses_enter` says whether `type` presses Enter after the text."""
        fill = self._templates.fill
        turns = [Turn("system", (fill("system", actions=action_schema_text(presses_enter=presses_enter)),))]
        if recent:
            turns.append(self._history(recent[-NUM_RECENT:]))
        turns.append(Turn("user", self._task(instruction)))
        turns.append(Turn("user", (fill("budget", actions_left=actions_left),)))
        turns.append(Turn("user", (screenshot, fill("observation"))))
        turns.append(Turn("user", (fill("reminder"),)))
        return tuple(turns)

    def _task(self, instruction: str) -> tuple[str, ...]:
        """The task's text; the instruction is marked, wherever a wording puts it."""
        pieces = self._templates.pieces("task", task=instruction)
        return tuple(text if slot is None else Instruction(text) for slot, text in pieces if text)

    def _history(self, recent: Sequence[RecentEvent]) -> Turn:
        parts: list[str | Screenshot] = [self._templates.fill("history") + "\n"]
        for event in recent:
            text = self._event(event)
            parts += [event.screenshot, f"{text}\n"]
        return Turn("user", tuple(parts))

    def _event(self, event: RecentEvent) -> str:
        if event.error is None or not self.shows_errors:
            return self._templates.fill("event", step=event.number, action=event.action)
        return self._templates.fill("failed_event", step=event.number, action=event.action, error=event.error)
