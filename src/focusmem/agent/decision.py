"""A decision is one question to the mind. It holds the episode so far and the current screen."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from focusmem.schemas import Observation, Screenshot, Step, Task


@dataclass(frozen=True)
class Decision:
    task: Task
    episode_id: str
    """Equal for all decisions of one episode, and different for any other episode of the same run."""
    seen: Observation
    """The current observation."""
    steps: Sequence[Step] = ()
    """The steps of the episode so far."""
    screenshots: Mapping[str, Screenshot] = field(default_factory=dict)
    """The screenshots of these steps, by digest."""
    is_guarded: bool = True
    """Whether retrieval leaves out trajectories that could give the task away."""

    @property
    def actions_left(self) -> int:
        return max(1, self.task.max_steps - len(self.steps))
