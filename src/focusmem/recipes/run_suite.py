"""Suites by name, from the settings of a run."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

from focusmem.errors import ConfigError
from focusmem.judges.base import Judge
from focusmem.judges.exact_answer import ExactAnswer
from focusmem.lab.suite import LabSuite
from focusmem.recipes.run_judge import JudgeSettings, make_judge
from focusmem.recipes.run_settings import LAB_SUITES, RunSettings, SuiteSettings
from focusmem.schemas import Task
from focusmem.settings import nearest
from focusmem.suites import deepshop, mmina, online_mind2web, webvoyager
from focusmem.suites.base import Suite
from focusmem.suites.benchmark import Source
from focusmem.suites.browsergym import NAME as BROWSERGYM
from focusmem.suites.browsergym import BrowserGymSuite
from focusmem.suites.catalogue import BENCHMARKS, BenchmarkSuite
from focusmem.suites.miniwob import NAME as MINIWOB
from focusmem.suites.miniwob import MiniWob
from focusmem.suites.task_file import TaskSuite

_ONLY_FOR_DATA = ("data", "revision", "dates_from", "hosts", "shop", "wikipedia", "allowed_hosts")
"""Settings of benchmarks whose data the user has."""


def make_suite(settings: RunSettings) -> Suite:
    chosen = settings.suite
    _check_name(chosen)
    _check_fits(chosen)
    if chosen.name in LAB_SUITES:
        return _lab_suite(settings)
    if settings.browser.kind == "raster":
        raise ConfigError("The browser 'raster' draws only pages of the laboratory; use --browser chromium.")
    if chosen.name.startswith(f"{BROWSERGYM}:"):
        return _browsergym(settings)
    if chosen.name in SUITES:
        return SUITES[chosen.name](settings)
    if is_address(chosen.name):
        return _page(settings)
    return _task_file(settings)


def _check_name(chosen: SuiteSettings) -> None:
    """Refuses a suite that does not exist, and an instruction for a suite that has its own tasks."""
    is_known = chosen.name in SUITES or is_address(chosen.name) or Path(chosen.name).suffix == ".jsonl"
    if not is_known:
        is_host = "." in chosen.name and not Path(chosen.name).exists()
        hint = f" For a page, write https://{chosen.name}." if is_host else nearest(chosen.name, SUITES)
        raise ConfigError(
            f"There is no suite '{chosen.name}'; use {', '.join(SUITES)}, a file of tasks (.jsonl), or the address of "
            f"a page.{hint}"
        )
    if chosen.instruction is not None and not is_address(chosen.name):
        raise ConfigError(f"--instruction is only for the address of a page; '{chosen.name}' has its own tasks.")


def judge_of(suite: str, settings: RunSettings) -> Judge:
    """The judge of a benchmark, by the suite's name. Without an endpoint, what only a model can judge stays
    `not_judged`.
    """
    return make_judge(JUDGE_OF[suite], settings.judge)


def judge_for(suite: str, tasks: Iterable[Task], settings: JudgeSettings) -> Judge | None:
    """The judge of a run's suite, from the suite's name and the tasks that the run stored."""
    if suite in JUDGE_OF:
        return make_judge(JUDGE_OF[suite], settings)
    return ExactAnswer() if any(task.answer is not None for task in tasks) else None


def _check_fits(chosen: SuiteSettings) -> None:
    """Refuses settings that the suite does not use, because ignoring them would change what is measured."""
    is_benchmark, is_miniwob = chosen.name in BENCHMARKS, chosen.name == MINIWOB
    has_seed = is_miniwob or chosen.name.startswith(f"{BROWSERGYM}:")
    for name in _ONLY_FOR_DATA:
        if getattr(chosen, name) is not None and not is_benchmark:
            raise ConfigError(f"suite.{name} is for {', '.join(BENCHMARKS)}; '{chosen.name}' does not use it.")
    if chosen.ids is not None and not (is_benchmark or is_miniwob):
        raise ConfigError(f"suite.ids is for benchmarks; '{chosen.name}' does not use it.")
    if chosen.seed is not None and not has_seed:
        raise ConfigError(f"suite.seed is for {MINIWOB} and {BROWSERGYM}; '{chosen.name}' does not use it.")
    if chosen.shop is not None and chosen.name != mmina.name_of("shopping"):
        raise ConfigError(f"suite.shop is for {mmina.name_of('shopping')}; '{chosen.name}' does not use it.")
    if chosen.presses_enter and chosen.name in LAB_SUITES:
        raise ConfigError("In the laboratory `type` only fills the field; leave out suite.presses_enter.")


def _lab_suite(settings: RunSettings) -> LabSuite:
    if settings.browser.limits is not None:
        raise ConfigError("The laboratory's pages have a fixed viewport; leave out browser.limits.")
    if settings.suite.max_steps is not None:
        raise ConfigError("The laboratory's tasks have a fixed step budget; leave out --max-steps.")
    return LabSuite(settings.suite.lab, name=settings.suite.name)


def _benchmark(settings: RunSettings, name: str) -> BenchmarkSuite:
    return BenchmarkSuite(
        name, source_of(settings.suite), judge=judge_of(name, settings), limits=settings.browser.limits
    )


def source_of(chosen: SuiteSettings) -> Source:
    """Where the tasks of a benchmark come from, by the settings of a run."""
    if chosen.data is None:
        raise ConfigError(f"The tasks of {chosen.name} are not a part of focusmem. {BENCHMARKS[chosen.name].help_text}")
    hosts = dict(chosen.hosts or {})
    if chosen.shop is not None:
        hosts[mmina.SHOP] = chosen.shop
    return Source(
        Path(chosen.data),
        ids=None if chosen.ids is None else Path(chosen.ids),
        revision=chosen.revision,
        dates_from=chosen.dates_from,
        hosts=hosts,
        allowed_hosts=chosen.allowed_hosts,
        max_steps=chosen.max_steps,
        presses_enter=chosen.presses_enter,
        wikipedia=chosen.wikipedia,
    )


def _miniwob(settings: RunSettings) -> MiniWob:
    chosen = settings.suite
    return MiniWob(
        judge=judge_of(MINIWOB, settings),
        seed=chosen.seed or 0,
        ids=None if chosen.ids is None else Path(chosen.ids),
        max_steps=chosen.max_steps,
        presses_enter=chosen.presses_enter,
        limits=settings.browser.limits,
    )


def _browsergym(settings: RunSettings) -> BrowserGymSuite:
    chosen = settings.suite
    if settings.browser.limits is not None:
        raise ConfigError("BrowserGym decides how large its pages are; leave out browser.limits.")
    return BrowserGymSuite(
        chosen.name.partition(":")[2].split(","),
        seed=chosen.seed or 0,
        max_steps=chosen.max_steps,
        presses_enter=chosen.presses_enter,
    )


def _task_file(settings: RunSettings) -> TaskSuite:
    chosen = settings.suite
    return TaskSuite.from_file(
        Path(chosen.name),
        limits=settings.browser.limits,
        max_steps=chosen.max_steps,
        presses_enter=chosen.presses_enter,
    )


def _page(settings: RunSettings) -> TaskSuite:
    chosen = settings.suite
    if chosen.instruction is None:
        raise ConfigError("A page needs an instruction; give it with --instruction TEXT.")
    return TaskSuite.from_page(
        chosen.name,
        chosen.instruction,
        limits=settings.browser.limits,
        max_steps=chosen.max_steps,
        presses_enter=chosen.presses_enter,
    )


JUDGE_OF: Mapping[str, str] = {
    MINIWOB: "automatic",
    mmina.name_of("wikipedia"): "mmina",
    mmina.name_of("shopping"): "mmina",
    webvoyager.NAME: "webvoyager",
    deepshop.NAME: "deepshop",
    online_mind2web.NAME: "online-mind2web",
}
"""The judge of each benchmark; `focusmem judge --judge` chooses another one."""

SUITES: Mapping[str, Callable[[RunSettings], Suite]] = {
    **dict.fromkeys(LAB_SUITES, _lab_suite),
    MINIWOB: _miniwob,
    **{name: partial(_benchmark, name=name) for name in BENCHMARKS},
}
"""Suites by name."""


def is_address(name: str) -> bool:
    return name.startswith(("http://", "https://"))
