"""`focusmem run`: makes a run from its settings, in one process or in several."""

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from focusmem.bank.opening import open_bank
from focusmem.browser.executable import browser_version
from focusmem.browser.opening import BrowserChoice, BrowserKind, make_grounder, why_no_chromium
from focusmem.clients.spending import Spending
from focusmem.clients.spending import spent as read_spending
from focusmem.errors import FocusmemError, UserError
from focusmem.evaluation.metrics import summarise
from focusmem.evaluation.suite_run import RunAbout, SuiteRun
from focusmem.evaluation.watcher import Watcher
from focusmem.lab.suite import SPLITS_EVALUATED
from focusmem.lab.world.experts import expert_rollouts
from focusmem.lab.world.world import World
from focusmem.progress import Progress
from focusmem.recipes.preparation import prepare
from focusmem.recipes.run_judge import with_store
from focusmem.recipes.run_parts import Parts, bank_folder
from focusmem.recipes.run_settings import LAB_SUITES, SPEED_ONLY, RunSettings
from focusmem.recipes.run_suite import is_address, make_suite
from focusmem.schemas import Task, read_episode
from focusmem.settings import to_plain
from focusmem.worker_processes import worker_processes

_LOOK_S = 0.5

REPLIES = "replies"
"""The folder of an endpoint's replies in a run's."""


Watch = Callable[[Sequence[tuple[Task, int]], int], Watcher]
"""Called with the attempts that are left and the number of finished ones, just before the first of them begins."""


def run(
    settings: RunSettings,
    folder: Path,
    *,
    watch: Watch | None = None,
    command: Sequence[str] = (),
    is_late: Callable[[], bool] | None = None,
) -> dict[str, Any]:
    """Makes the attempts that `folder` lacks, and computes the figures of the whole run. A watcher works only with a
    single process, and so does `is_late`: once it says so, no other attempt begins.
    """
    settings = settled(settings)
    parts = Parts(_with_store(settings, folder), make_suite(settings))
    suite_run = make_run(settings, parts, folder, command, is_late=is_late)
    with suite_run.on_record():
        left = suite_run.attempts_left()
        # With a cache folder, the other processes read what was encoded here.
        if left and (settings.num_processes == 1 or settings.memory.cache.folder is not None):
            suite_run.prepared(prepare(parts))
        if settings.num_processes == 1:
            watcher = None if watch is None else watch(left, len(suite_run.attempts()) - len(left))
            suite_run.run_part(suite_run.attempts(), browser_choice(settings), watcher)
        else:
            _share_out(settings, suite_run)
    results = summarise(suite_run.folder)
    spending = spent(_with_store(settings, folder))
    return results if spending is None else {**results, "spending": spending.as_json()}


def spent(settings: RunSettings) -> Spending | None:
    """What a policy behind an endpoint has cost so far; None for other policies."""
    store = settings.policy.endpoint.store
    return read_spending(store) if is_address(settings.policy.name) and store is not None else None


def _with_store(settings: RunSettings, folder: Path) -> RunSettings:
    """The settings with a place for an endpoint's replies. It is the run's own, so that a run that is resumed, or an
    attempt that starts again, pays for no reply twice.
    """
    settings = replace(settings, judge=with_store(settings.judge, folder))
    policy = settings.policy
    if policy.endpoint.store is not None or not is_address(policy.name):
        return settings
    endpoint = replace(policy.endpoint, store=folder / REPLIES)
    return replace(settings, policy=replace(policy, endpoint=endpoint))


def settled(settings: RunSettings) -> RunSettings:
    """The settings with `auto` replaced by the browser to use, and with the sites that the bank covers."""
    kind = choose_browser(settings)[0]
    settings = replace(settings, browser=replace(settings.browser, kind=kind))
    sites = None if settings.suite.name not in LAB_SUITES or settings.suite.lab.sites else _covered_sites(settings)
    if sites is None:
        return settings
    return replace(settings, suite=replace(settings.suite, lab=replace(settings.suite.lab, sites=sites)))


def _covered_sites(settings: RunSettings) -> tuple[str, ...] | None:
    """The laboratory's sites of which the chosen bank holds a trajectory; None if tasks may be about any site."""
    memory = settings.memory
    if memory.bank is not None:
        return tuple(open_bank(bank_folder(memory.bank)).sites())
    if memory.lab_bank_sites is None:
        return None
    world = World(settings.suite.lab.world_seed)
    rollouts = expert_rollouts(world, SPLITS_EVALUATED[settings.suite.name], num_sites=memory.lab_bank_sites)
    return tuple(sorted({rollout.task.site_id for rollout in rollouts}))


def choose_browser(settings: RunSettings) -> tuple[BrowserKind, str | None]:
    """The browser to use, and why it is not Chromium, if `auto` found that Chromium does not start.

    Chromium is started once as a test, so that a run without a working browser fails at once.
    """
    kind = settings.browser.kind
    if kind == "raster":
        return kind, None
    reason = asyncio.run(why_no_chromium())
    if reason is None:
        return "chromium", None
    if kind == "chromium" or settings.suite.name not in LAB_SUITES:
        raise UserError(reason)
    return "raster", reason


def browser_choice(settings: RunSettings) -> BrowserChoice:
    kind = settings.browser.kind
    assert kind != "auto", "settled"
    chosen = settings.browser
    return BrowserChoice(
        kind=kind, grounder=make_grounder(chosen.grounder, chosen.grounder_model, chosen.grounder_endpoint)
    )


def make_run(
    settings: RunSettings,
    parts: Parts,
    folder: Path,
    command: Sequence[str] = (),
    *,
    is_late: Callable[[], bool] | None = None,
) -> SuiteRun:
    """A run that is ready to begin, with everything loaded; `settings` are settled."""
    mind = parts.mind()
    identities = {
        "policy": parts.policy.identity,
        "prompts": parts.prompts_digest,
        "memory": mind.front.identity,
        "retriever": None if mind.retriever is None else mind.retriever.identity,
    }
    about = RunAbout(
        method=mind.front.name,
        source=f"focusmem run {parts.suite.name}, memory {mind.front.name}",
        config={"settings": to_plain(settings), "identities": identities},
        may_differ=tuple(f"settings.{name}" for name in SPEED_ONLY),
        seeds={"tasks": settings.suite.lab.seed, "world": settings.suite.lab.world_seed} if parts.is_lab_suite else {},
        browser=browser_version() if settings.browser.kind == "chromium" else settings.browser.kind,
        num_beside=settings.num_processes,
        command=command,
    )
    return SuiteRun(
        parts.suite,
        mind,
        folder,
        about,
        runner=settings.runner,
        num_attempts=settings.suite.num_attempts,
        load_recalled=None if mind.retriever is None else mind.retriever.load,
        is_late=is_late,
    )


# Several processes


def _share_out(settings: RunSettings, suite_run: SuiteRun) -> None:
    """Each process takes a part of the attempts. Finished episodes are counted as they appear on disk."""
    num = settings.num_processes
    with worker_processes(partial(_take_part, settings, suite_run.store.path), num) as processes:
        _watch(suite_run, processes)
    num_failed = sum(process.exitcode != 0 for process in processes)
    if num_failed:
        raise FocusmemError(
            f"{num_failed} of {num} processes stopped early; their messages are above. Finished episodes are in "
            f"{suite_run.store.path}; the same command resumes from there."
        )


def _take_part(settings: RunSettings, folder: Path, number: int) -> None:
    num = settings.num_processes
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // num))
    parts = Parts(_with_store(settings, folder), make_suite(settings))
    suite_run = make_run(settings, parts, folder)
    attempts = suite_run.attempts()[number::num]
    if any(one in attempts for one in suite_run.attempts_left()):
        preparation = prepare(parts, has_line=False)
        if number == 0 and settings.memory.cache.folder is None:
            suite_run.prepared(preparation)  # all processes do the same at the same time
    suite_run.run_part(attempts, browser_choice(settings))


def _watch(suite_run: SuiteRun, processes: Sequence[BaseProcess]) -> None:
    folder, total = suite_run.folder, len(suite_run.attempts())
    left = [(task.task_id, number) for task, number in suite_run.attempts_left()]
    with Progress("run", total=total, start=total - len(left)) as line:
        are_at_work = True
        while are_at_work:
            wait([process.sentinel for process in processes if process.is_alive()], timeout=_LOOK_S)
            are_at_work = any(
                process.is_alive() for process in processes
            )  # before counting, so that no episode is missed
            done = [one for one in left if folder.is_finished(*one)]
            left = [one for one in left if one not in done]
            for one in done:
                line.step(failed=read_episode(folder.place(*one)).outcome == "error", note=suite_run.about.method)
