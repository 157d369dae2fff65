"""Draws docs/pictures/trace-page.png again: a trace page of the laboratory's two solvers, in a real browser.

Their steps are real. What the expert's memory panel shows is a mock-up: solvers have no memory.
"""

import asyncio
import random
import sys
import tempfile
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import numpy as np
from PIL import Image

from focusmem.browser.chromium_process import ChromiumPool
from focusmem.files import write_whole
from focusmem.lab.rollout import Rollout, RolloutStep, iter_tasks, roll_out, screenshot_of
from focusmem.lab.session import ORIGIN, PageSession
from focusmem.lab.solvers import Solver
from focusmem.lab.tasks import KINDS, LabTask, make_task
from focusmem.lab.world import World
from focusmem.reports import RunFolder, write_page
from focusmem.schemas import (
    AttentionMap,
    Environment,
    Episode,
    OfferedItem,
    Run,
    Screenshot,
    Step,
    StepNotes,
    Trajectory,
    dump_record,
    save_trajectory,
)

PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "trace-page.png"
NUM_TASKS = 24
OPENED = "task=10&step=8"
ROWS, COLUMNS = 9, 14


def attempt_of(world: World, rollout: Rollout, name: str) -> tuple[Trajectory, dict[str, Screenshot]]:
    pairs = [_step(world, step) for step in rollout.steps]
    outcome = "success" if rollout.is_success else "failure"
    trajectory = rollout.task.task.trajectory(name, [step for step, _ in pairs], outcome=outcome, source="lab")
    return trajectory, {screenshot.digest: screenshot for _, screenshot in pairs}


def _step(world: World, done: RolloutStep) -> tuple[Step, Screenshot]:
    screenshot = screenshot_of(world, done)
    session = PageSession(world, done.path, scroll=done.scroll, typed=done.typed)
    performed = session.perform(done.action) if done.action.name != "stop" else None
    step = Step(
        screenshot=screenshot.ref(),
        action=done.action,
        url=f"{ORIGIN}{done.path}",
        click_point=performed.click_point if performed else None,
        error=done.error,
    )
    return step, screenshot


def looked(step: Step, share: float, rng: random.Random) -> AttentionMap:
    """Most of it around the place of the click, or around some place."""
    shot = step.screenshot
    x, y = step.click_point or (rng.uniform(0.2, 0.8) * shot.width, rng.uniform(0.2, 0.8) * shot.height)
    rows, columns = np.mgrid[:ROWS, :COLUMNS]
    away = (columns + 0.5 - x / shot.width * COLUMNS) ** 2 + 2 * (rows + 0.5 - y / shot.height * ROWS) ** 2
    weights = np.exp(-away / 3) + 0.02
    weights *= share / weights.sum()
    return AttentionMap(screenshot=shot, num_rows=ROWS, num_columns=COLUMNS, weights=tuple(map(float, weights.ravel())))


def offer(source: Trajectory, rank: int, *, is_accepted: bool, rng: random.Random) -> OfferedItem:
    parts = [rng.uniform(0.1, 1) for _ in source.steps]
    share = 0.95 / sum(parts)
    return OfferedItem(
        role="episodic",
        rank=rank,
        trajectory_id=source.trajectory_id,
        num_steps=len(source.steps),
        score=round(0.87 - 0.06 * rank - rng.uniform(0, 0.04), 3),
        trust=rng.uniform(0.75, 0.97) if is_accepted else rng.uniform(0.05, 0.3),
        is_accepted=is_accepted,
        num_tokens=8,
        attention=tuple(looked(step, share * part, rng) for step, part in zip(source.steps, parts, strict=True)),
    )


def sources(world: World, task: LabTask) -> list[tuple[Trajectory, dict[str, Screenshot]]]:
    """Two attempts at other tasks of the same site, as a bank would hold them."""
    kinds = [kind for kind in KINDS[world.site(task.site_id).family] if kind != task.kind][:2]
    others = [make_task(world, task.site_id, kind, "bank", 1) for kind in kinds]
    return [
        attempt_of(world, roll_out(world, other, Solver.expert(world, other)), other.task.task_id) for other in others
    ]


def notes(index: int, items: tuple[OfferedItem, ...], rng: random.Random) -> StepNotes:
    seconds = {"observe": rng.uniform(0.05, 0.1), "reply": rng.uniform(0.3, 0.5), "act": rng.uniform(0.05, 0.15)}
    if items:
        seconds |= {"retrieve": rng.uniform(0.01, 0.03), "remember": rng.uniform(0.05, 0.1)}
    num_tokens = sum(item.num_tokens for item in items if item.is_accepted)
    return StepNotes(
        prompt=("system: You act on web pages ...", f"user: Step {index + 1} ..."),
        offered=items,
        num_prompt_tokens=620 + 180 * min(index, 3),
        num_memory_tokens=num_tokens,
        seconds=seconds,
    )


def write_run(folder: Path, world: World, tasks: list[LabTask], *, has_memory: bool) -> None:
    now = datetime.now(UTC)
    run = Run(
        run_id=folder.name,
        command=("focusmem", "lab", "evaluate"),
        status="finished",
        config={},
        environment=Environment(),
        started_at=now,
        finished_at=now,
    )
    write_whole(folder / "run.json", dump_record(run))
    for number, task in enumerate(tasks):
        rng = random.Random(number)
        solver = Solver.expert(world, task) if has_memory else Solver.explorer(world, task, rng)
        rollout = roll_out(world, task, solver)
        items: tuple[OfferedItem, ...] = ()
        if has_memory:
            found = sources(world, task)
            items = tuple(
                offer(one, rank, is_accepted=rank == 0, rng=random.Random(rank)) for rank, (one, _) in enumerate(found)
            )
            for source, screenshots in found:
                save_trajectory(folder / "recalled" / source.trajectory_id, source, screenshots)
        episode = Episode(
            task=task.task,
            method="expert" if has_memory else "explorer",
            outcome="success" if rollout.is_success else "failure",
            answer=rollout.answer,
            notes=tuple(notes(index, items, rng) for index in range(len(rollout.steps))),
            seconds=0.7 * len(rollout.steps),
        )
        own = folder / "episodes" / f"{number:03}"
        write_whole(own / "episode.json", dump_record(episode))
        save_trajectory(own / "trajectory", *attempt_of(world, rollout, f"attempt-{number}"))


async def draw(page: Path, picture: Path, *, scheme: str, address: str = OPENED) -> None:
    async with ChromiumPool() as pool:
        process = await pool.process(())
        context = await process.new_context(1440, 1240)
        opened = await context.new_page()
        await opened.emulate_media(color_scheme=scheme)
        await opened.goto(f"{page.as_uri()}#{address}")
        await opened.wait_for_timeout(1000)
        await opened.screenshot(path=picture)
        await context.close()


def main() -> None:
    world = World(0)
    tasks = list(islice(iter_tasks(world, "e", "evaluation", 0), NUM_TASKS))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(scratch)
        runs = [folder / "lab-expert", folder / "lab-explorer"]
        for run, has_memory in zip(runs, (True, False), strict=True):
            write_run(run, world, tasks, has_memory=has_memory)
        page = folder / "page.html"
        write_page([RunFolder.open(run) for run in runs], page)
        asyncio.run(draw(page, PICTURE, scheme="light"))
    # A palette is enough for a page of plain colours; the rare red of the clicks must not get lost in it.
    picture = Image.open(PICTURE).convert("RGB")
    picture.quantize(256, method=Image.Quantize.MAXCOVERAGE, kmeans=4).save(PICTURE, optimize=True)


if __name__ == "__main__":
    main()
