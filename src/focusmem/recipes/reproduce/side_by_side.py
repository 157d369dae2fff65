"""Works through a plan in several processes that share one GPU, and tells how far it is."""

import logging
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from focusmem.errors import ConfigError, FocusmemError
from focusmem.files import FolderLock
from focusmem.progress import Progress
from focusmem.recipes.reproduce.plan import Limit, Plan, failures, retry_failed, work_through
from focusmem.worker_processes import worker_processes

MakePlan = Callable[[], Plan]
"""Makes the plan anew in each process; pickled by name, so it must be importable."""
_LOOK_S = 0.5


def carry_out(
    make_plan: MakePlan, *, num_parallel: int = 1, max_minutes: float | None = None, only: str | None = None
) -> Plan:
    """Works through a plan for at most this time, units side by side in so many processes; with one, in this process.
    The same call goes on. Raises an error that tells which units failed, after the others have had their turn.
    """
    if num_parallel < 1:
        raise ConfigError(f"--parallel is {num_parallel}; it must be at least 1.")
    plan, limit = make_plan(), Limit.after(max_minutes)
    plan.check()
    plan.chosen(only)
    with FolderLock(plan.folder, f"Another call is at work in {plan.folder}; wait for its end."):
        retry_failed(plan)
        if num_parallel == 1:
            work_through(plan, limit, only=only)
        else:
            lane = partial(_lane, make_plan, limit, only)
            with worker_processes(lane, num_parallel, may_have_children=True) as processes:
                _watch(plan, processes)
            is_left = any(plan.status(unit) not in ("finished", "failed") for unit in plan.chosen(only))
            if is_left and any(process.exitcode for process in processes):
                raise FocusmemError(f"A process stopped early; see {plan.folder}/lane-*.log. The same command goes on.")
    if failed := failures(plan):
        said = "\n".join(f"  {name}: {error}" for name, error in failed.items())
        raise FocusmemError(f"{len(failed)} of {len(plan.units)} units failed; the same command tries again.\n{said}")
    return plan


def _lane(make_plan: MakePlan, limit: Limit, only: str | None, number: int) -> None:
    plan = make_plan()
    _say_into(plan.folder / f"lane-{number + 1}.log")
    work_through(plan, limit, only=only)


def _say_into(path: Path) -> None:
    """Everything that this process says from now on is appended to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        os.dup2(log, stream.fileno())
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)


def _watch(plan: Plan, processes: Sequence[BaseProcess]) -> None:
    done = {unit.name for unit in plan.units if plan.is_finished(unit.name)}
    with Progress(plan.name, total=len(plan.units), start=len(done)) as line:
        are_at_work = True
        while are_at_work:
            wait([process.sentinel for process in processes if process.is_alive()], timeout=_LOOK_S)
            are_at_work = any(process.is_alive() for process in processes)  # before counting
            for unit in plan.units:
                if unit.name not in done and plan.status(unit) in ("finished", "failed"):
                    done.add(unit.name)
                    line.step(failed=not plan.is_finished(unit.name), note=unit.name)
