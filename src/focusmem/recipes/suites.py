"""`focusmem suites`: what is known about suites, files of benchmarks and single tasks, as plain values."""

from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from focusmem.errors import ConfigError
from focusmem.recipes.run_settings import LAB, LAB_ENTRIES, SuiteSettings, recipe, recipe_for
from focusmem.recipes.run_suite import SUITES, make_suite
from focusmem.settings import resolved
from focusmem.suites.benchmark import Source, shown_revision
from focusmem.suites.catalogue import BENCHMARKS, check
from focusmem.suites.miniwob import NAME as MINIWOB
from focusmem.suites.miniwob import PACKAGE, task_list


def known_suites() -> list[dict[str, str]]:
    """Every suite by name, with what it needs."""
    has_package = find_spec(PACKAGE) is not None
    own = {
        LAB: ("tasks on small sites made from a seed", "nothing"),
        LAB_ENTRIES: ("tasks that need one entry of long lists, at offices made from a seed", "nothing"),
        MINIWOB: (
            f"{len(task_list().tasks)} small web tasks that reward themselves",
            f"the package {PACKAGE}, {'installed' if has_package else 'missing: pip install focusmem[miniwob]'}",
        ),
    }
    benchmarks = {name: (one.about, "your copy of its tasks, with --data") for name, one in BENCHMARKS.items()}
    known = own | benchmarks
    described = ((name, *known.get(name, ("", "nothing"))) for name in SUITES)
    return [{"suite": name, "about": about, "needs": needs} for name, about, needs in described]


def check_files(path: Path) -> list[dict[str, Any]]:
    """For each file or folder of a benchmark: what was read, and what was refused and why."""
    return [
        {
            "path": str(one.path),
            "suite": one.suite,
            "num_tasks": len(one.loaded.tasks),
            "refused": one.loaded.refused,
            "revision": shown_revision(Source(one.path), one.loaded) if one.loaded.digest else None,
            "help": BENCHMARKS[one.suite].help_text if one.suite is not None else None,
        }
        for one in check(path)
    ]


def about_suite(name: str) -> dict[str, Any]:
    """What a suite is. Nothing is loaded."""
    if name == MINIWOB:
        listed = task_list()
        return {
            "suite": name,
            "package": f"{PACKAGE} {listed.version}",
            "needs": "pip install focusmem[miniwob]",
            "tasks": list(listed.tasks),
            "left_out": dict(listed.left_out),
        }
    if name in BENCHMARKS:
        return {"suite": name, "about": BENCHMARKS[name].about, "data": BENCHMARKS[name].help_text}
    if name in SUITES:
        return next(dict(one) for one in known_suites() if one["suite"] == name)
    raise ConfigError(f"There is no suite '{name}'; choose one of {', '.join(SUITES)}, or the id of a task.")


def one_task(task_id: str, data: Path | None, assignments: Sequence[str]) -> dict[str, Any]:
    """A task as it would be asked."""
    suite = task_id.partition("/")[0]
    if suite not in SUITES:
        raise ConfigError(f"There is no suite '{suite}'; choose one of {', '.join(SUITES)}.")
    base = recipe(recipe_for(suite))
    chosen = SuiteSettings(name=suite, data=None if data is None else str(data))
    made = make_suite(resolved(replace(base, suite=chosen), assignments=assignments))
    for task in made.tasks:
        if task.task_id == task_id:
            plain: dict[str, Any] = task.model_dump(mode="json", exclude_none=True, exclude={"schema_version"})
            return plain | {"kind": made.kind_of(task), "revision": made.revision}
    reason = made.left_out.get(task_id)
    if reason is not None:
        raise ConfigError(f"The task {task_id} cannot be attempted: {reason}")
    raise ConfigError(f"The suite {suite} has no task {task_id}; its first one is {made.tasks[0].task_id}.")
