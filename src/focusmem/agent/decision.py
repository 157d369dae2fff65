"""One question to the mind: an episode so far, and what is on its screen now."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from focusmem.schemas import Screenshot, Step, Task


@dataclass(frozen=True)
class Decision:
    task: Task
    episode_id: str
    """Equal for all decisions of one episode, and for no other."""
    screenshot: Screenshot
    """What is on the screen now."""
    steps: Sequence[Step] = ()
    """What the episode did so far."""
    screenshots: Mapping[str, Screenshot] = field(default_factory=dict)
    """Of these steps, by digest."""

    @property
    def actions_left(self) -> int:
        return max(1, self.task.max_steps - len(self.steps))
