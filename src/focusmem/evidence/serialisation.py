"""The raw serialisation of an evidence item: an opening, a turn per event, a closing. Paper, Appendix B.1.

The paper names the number of steps in the header. Here it stands in the closing, so that the earlier text stays the
same when a chunk grows, and a causal encoder can continue where it stopped.
"""

from collections.abc import Mapping
from pathlib import Path

from focusmem.errors import RecordError
from focusmem.schemas import EvidenceItem, Prompt, Screenshot, Step, Turn, action_to_json
from focusmem.templates import Templates

_OWN_PROMPTS = Path(__file__).parent / "prompts"
_SLOTS = {"opening": {"role", "task"}, "event": {"action"}, "closing": {"num_steps"}}


class Serialiser:
    """`prompts` is a folder with other wordings of the three texts. With `shows_errors`, an event without a readable
    action shows the error; otherwise it shows the policy's reply, as the prompt does.
    """

    def __init__(self, prompts: Path | None = None, *, shows_errors: bool = True) -> None:
        self.shows_errors = shows_errors
        self._templates = Templates(prompts or _OWN_PROMPTS, slots=_SLOTS)

    @property
    def digest(self) -> str:
        """Equal for equal wordings."""
        return self._templates.digest if self.shows_errors else f"{self._templates.digest} without errors"

    def __call__(self, item: EvidenceItem, screenshots: Mapping[str, Screenshot]) -> Prompt:
        events = [self.event(step, screenshots) for step in item.steps]
        return (self.opening(item), *events, self.closing(len(item.steps)))

    def opening(self, item: EvidenceItem) -> Turn:
        task = item.instruction or "not known"
        return Turn("user", (self._templates.fill("opening", role=item.role, task=task),))

    def event(self, step: Step, screenshots: Mapping[str, Screenshot]) -> Turn:
        digest = step.screenshot.sha256
        if digest not in screenshots:
            raise RecordError(f"The screenshot {digest[:12]}... of an evidence step is missing.")
        return Turn("user", (screenshots[digest], self._templates.fill("event", action=self._action(step))))

    def _action(self, step: Step) -> str:
        if step.action is not None:
            return action_to_json(step.action)
        return f"none could be read. {step.error}" if self.shows_errors else step.reply or ""

    def closing(self, num_steps: int) -> Turn:
        return Turn("user", (self._templates.fill("closing", num_steps=num_steps),))
