"""The laboratory's expert through the runner, as a process that can be killed:

python expert_run.py FOLDER NUM_TASKS raster|chromium NUM_PARALLEL THINKING_S
"""

import asyncio
import json
import signal
import sys
import time
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

from evaluation.minds import SolverMind
from focusmem.evaluation.metrics import summarise
from focusmem.evaluation.run_store import RunStore
from focusmem.evaluation.runner import Runner, RunnerConfig
from focusmem.lab.world.browsers import lab_browsers
from focusmem.lab.world.rollout import iter_tasks
from focusmem.lab.world.tasks import judge
from focusmem.lab.world.world import World
from focusmem.schemas import Environment, Run


class ThinkingMind(SolverMind):
    """Takes its time, so that there is a middle to be killed in, and is wrong about some tasks."""

    thinking_s = 0.0

    def ask(self, seen):
        time.sleep(self.thinking_s)
        return super().ask(seen)

    def _next(self, episode, seen):
        text = super()._next(episode, seen)
        is_wrong = sum(episode.task.task_id.encode()) % 3 == 0
        return text.replace('"answer": "', '"answer": "not ') if is_wrong else text


async def run_all(store, world, tasks, browser, num_parallel, mind):
    async with AsyncExitStack() as stack:
        make_browser = await lab_browsers(world, browser, stack)
        config = RunnerConfig(method="expert", source="a test", num_parallel=num_parallel)
        await Runner(config, store, mind, make_browser, judge).run(tasks)


def expert_run(folder, num_tasks, browser, num_parallel, thinking_s=0.0):
    world, store = World(0), RunStore(folder)
    tasks = list(islice(iter_tasks(world, "e", "evaluation", 0), num_tasks))
    now = datetime.now(UTC)
    run = Run(run_id=folder.name, command=(), status="running", config={}, environment=Environment(), started_at=now)
    store.begin(run, {one.task.task_id: one.kind for one in tasks})
    mind = ThinkingMind(world)
    mind.thinking_s = thinking_s
    asyncio.run(run_all(store, world, [one.task for one in tasks], browser, num_parallel, mind))
    store.end(run)
    return summarise(store)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where tests run in the background
    place, num, kind, parallel, seconds = sys.argv[1:]
    print(json.dumps(expert_run(Path(place), int(num), kind, int(parallel), float(seconds))))
