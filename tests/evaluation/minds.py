"""Minds that follow a script, and worlds to follow it in."""

import threading
from collections.abc import Callable, Mapping, Sequence

from focusmem.agent.decision import Decision
from focusmem.agent.mind import Reply
from focusmem.lab.world.solvers import Solver, View
from focusmem.lab.world.tasks import task_of
from focusmem.lab.world.world import World
from focusmem.schemas import Task, action_to_json, make_action

Line = str | Callable[[Decision], str]


class ScriptedMind:
    """Replies with the lines of a task, one for each step; the last line again and again."""

    def __init__(self, lines: Mapping[str, Sequence[Line]]) -> None:
        self.lines = lines
        self.lots: list[list[str]] = []
        """Which tasks were answered together."""
        self.forgotten: list[str] = []
        """Ids of episodes."""

    def ask(self, decisions: Sequence[Decision]) -> list[Reply]:
        assert threading.current_thread() is not threading.main_thread(), "browsers go on meanwhile"
        self.lots.append([decision.task.task_id for decision in decisions])
        return [Reply(self._line(decision)) for decision in decisions]

    def forget(self, episode_id: str) -> None:
        self.forgotten.append(episode_id)

    def _line(self, decision: Decision) -> str:
        lines = self.lines[decision.task.task_id]
        line = lines[min(len(decision.steps), len(lines) - 1)]
        return line if isinstance(line, str) else line(decision)


class SolverMind:
    """The laboratory's expert."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._solvers: dict[str, Solver] = {}

    def ask(self, decisions: Sequence[Decision]) -> list[Reply]:
        return [Reply(self._next(decision)) for decision in decisions]

    def forget(self, episode_id: str) -> None:
        self._solvers.pop(episode_id, None)

    def _next(self, decision: Decision) -> str:
        if decision.episode_id not in self._solvers:
            task = task_of(self.world, decision.task.task_id)
            self._solvers[decision.episode_id] = Solver.expert(self.world, task)
        seen = decision.seen
        view = View.of_url(seen.url, [control.name for control in seen.controls])
        return action_to_json(self._solvers[decision.episode_id].next(view))


def say(name: str, **arguments: str) -> str:
    return action_to_json(make_action(name, **arguments))


def make_task(task_id: str, start_url: str = "https://shop.example/", **changes: object) -> Task:
    values = {"task_id": task_id, "instruction": f"Do {task_id}.", "start_url": start_url, "site": "", "answer": "yes"}
    return Task(**values | changes)  # type: ignore[arg-type]
