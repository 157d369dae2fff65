"""`focusmem judge`: the judge of a run's suite, and its finished episodes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from focusmem.errors import ConfigError
from focusmem.evaluation.judging import judge_again
from focusmem.evaluation.metrics import summarise
from focusmem.evaluation.run_store import RunStore
from focusmem.progress import Progress
from focusmem.recipes.run_settings import settings_of
from focusmem.recipes.run_suite import make_suite
from focusmem.schemas import RunFolder


def judge_run(path: Path, tasks: Path | None = None) -> dict[str, Any]:
    """Judges every finished episode again. `tasks` is the suite's file if it has moved."""
    folder = RunFolder.open(path)
    settings = settings_of(folder.run())
    if tasks is not None:
        settings = replace(settings, suite=replace(settings.suite, name=str(tasks)))
    suite, manifest = make_suite(settings), folder.manifest()
    known = {task.task_id for task in suite.tasks}
    missing = [task_id for task_id in manifest.kind_of if task_id not in known]
    if missing:
        raise ConfigError(f"The suite no longer has the task {missing[0]}, so {path} cannot be judged by it.")
    total = len(folder.places(manifest))
    with Progress("judge", total=total) as line:
        answers = {task.task_id: task for task in suite.tasks}
        num_changed = judge_again(
            RunStore(path), suite.judge, tasks=answers, watch=lambda old, new: line.step(failed=new == "not_judged")
        )
    return {"num_episodes": total, "num_changed": num_changed, **summarise(folder)}
