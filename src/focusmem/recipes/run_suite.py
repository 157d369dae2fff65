"""Suites by name, from the settings of a run."""

from collections.abc import Callable, Mapping
from pathlib import Path

from focusmem.errors import ConfigError
from focusmem.lab.suite import LabSuite
from focusmem.recipes.run_settings import LAB_SUITES, RunSettings
from focusmem.suites.base import Suite
from focusmem.suites.task_file import TaskSuite


def make_suite(settings: RunSettings) -> Suite:
    chosen = settings.suite
    if chosen.instruction is not None and not is_address(chosen.name):
        raise ConfigError(f"--instruction is only for the address of a page; '{chosen.name}' has its own tasks.")
    if chosen.name in SUITES:
        return SUITES[chosen.name](settings)
    if settings.browser.kind == "raster":
        raise ConfigError("The browser 'raster' draws only pages of the laboratory; use --browser chromium.")
    if is_address(chosen.name):
        return _page(settings)
    if Path(chosen.name).suffix != ".jsonl":
        raise ConfigError(
            f"There is no suite '{chosen.name}'; use {', '.join(SUITES)}, a file of tasks (.jsonl), or the address of "
            "a page."
        )
    return _task_file(settings)


def _lab_suite(settings: RunSettings) -> LabSuite:
    if settings.browser.limits is not None:
        raise ConfigError("The laboratory's pages have a fixed viewport; leave out browser.limits.")
    if settings.suite.max_steps is not None:
        raise ConfigError("The laboratory's tasks have a fixed step budget; leave out --max-steps.")
    return LabSuite(settings.suite.lab, name=settings.suite.name)


def _task_file(settings: RunSettings) -> TaskSuite:
    chosen = settings.suite
    return TaskSuite.from_file(Path(chosen.name), limits=settings.browser.limits, max_steps=chosen.max_steps)


def _page(settings: RunSettings) -> TaskSuite:
    chosen = settings.suite
    if chosen.instruction is None:
        raise ConfigError("A page needs an instruction; give it with --instruction TEXT.")
    limits = settings.browser.limits
    return TaskSuite.from_page(chosen.name, chosen.instruction, limits=limits, max_steps=chosen.max_steps)


SUITES: Mapping[str, Callable[[RunSettings], Suite]] = dict.fromkeys(LAB_SUITES, _lab_suite)
"""Suites by name."""


def is_address(name: str) -> bool:
    return name.startswith(("http://", "https://"))
