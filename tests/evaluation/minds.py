"""Minds that follow a script, and worlds to follow it in."""

import threading
from collections.abc import Callable, Mapping, Sequence

from focusmem.agent.live_episode import LiveEpisode
from focusmem.agent.mind import Reply, Seen
from focusmem.lab.world.solvers import Solver, View
from focusmem.lab.world.tasks import task_of
from focusmem.lab.world.world import World
from focusmem.schemas import Observation, Task, action_to_json, make_action

Line = str | Callable[[LiveEpisode, Observation], str]


class ScriptedMind:
    """For each task its replies, one after the other; the last one again and again."""

    def __init__(self, lines: Mapping[str, Sequence[Line]]) -> None:
        self.lines = lines
        self.lots: list[list[str]] = []
        """Which tasks were answered together."""
        self.forgotten: list[str] = []

    def ask(self, seen: Sequence[Seen]) -> list[Reply]:
        assert threading.current_thread() is not threading.main_thread(), "browsers go on meanwhile"
        self.lots.append([episode.task.task_id for episode, _ in seen])
        return [Reply(self._line(*one)) for one in seen]

    def forget(self, task: Task) -> None:
        self.forgotten.append(task.task_id)

    def _line(self, episode: LiveEpisode, seen: Observation) -> str:
        own = self.lines[episode.task.task_id]
        line = own[min(len(episode.steps), len(own) - 1)]
        return line if isinstance(line, str) else line(episode, seen)


class SolverMind:
    """The laboratory's expert."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._solvers: dict[str, Solver] = {}

    def ask(self, seen: Sequence[Seen]) -> list[Reply]:
        return [Reply(self._next(*one)) for one in seen]

    def forget(self, task: Task) -> None:
        self._solvers.pop(task.task_id, None)

    def _next(self, episode: LiveEpisode, seen: Observation) -> str:
        task_id = episode.task.task_id
        if task_id not in self._solvers:
            self._solvers[task_id] = Solver.expert(self.world, task_of(self.world, task_id))
        view = View.of_url(seen.url, [control.name for control in seen.controls])
        return action_to_json(self._solvers[task_id].next(view))


def say(name: str, **arguments: str) -> str:
    return action_to_json(make_action(name, **arguments))


def make_task(task_id: str, start_url: str = "https://shop.example/", **changes: object) -> Task:
    values = {"task_id": task_id, "instruction": f"Do {task_id}.", "start_url": start_url, "site": "", "answer": "yes"}
    return Task(**values | changes)  # type: ignore[arg-type]
