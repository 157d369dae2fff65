"""`focusmem judge`: judges, or screens, the finished episodes of a run."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from focusmem.clients.base import ChatClient
from focusmem.clients.spending import Usage
from focusmem.errors import ConfigError
from focusmem.evaluation.agreement import judging_figures, read_labels
from focusmem.evaluation.metrics import summarise
from focusmem.evaluation.rejudging import Judged, Rejudging
from focusmem.evaluation.run_store import RunStore
from focusmem.evaluation.screening import estimate_screening, screen, to_audit
from focusmem.files import write_whole
from focusmem.judges.base import Judge
from focusmem.judges.chat_judge import ChatJudge
from focusmem.judges.inquiry import Estimate
from focusmem.progress import Progress
from focusmem.recipes.run_judge import CHAT_JUDGES, JudgeSettings, make_auditor, make_judge, with_store
from focusmem.recipes.run_settings import RunSettings, settings_of
from focusmem.recipes.run_suite import judge_for
from focusmem.schemas import JudgeCost, RunFolder, Task
from focusmem.schemas.run_folder import JUDGING_FILE
from focusmem.schemas.screening import Audit
from focusmem.settings import resolved
from focusmem.suites.task_file import TaskSuite


@dataclass(frozen=True, kw_only=True)
class JudgeRequest:
    judges: tuple[str, ...] = ()
    """`name`, `name:profile`, or `name:profile@model`; empty for the judge of the run's suite."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Judge settings, by name, that differ from those of the run."""
    assignments: tuple[str, ...] = ()
    """Further ones, as `endpoint.timeout_s=60`."""
    tasks: Path | None = None
    """A file with those of the run's tasks whose right answers have changed."""
    again: bool = False
    """Whether judgements that exist are repeated."""
    beside: bool = False
    """Whether the verdicts that count stay as they are."""
    labels: Path | None = None
    """Labels by people."""
    label_agent: str | None = None
    """Whose labels to read, if the file has those of several agents."""


def judge_run(path: Path, request: JudgeRequest, *, client: ChatClient | None = None) -> dict[str, Any]:
    """Judges every finished episode again. `client` replaces the endpoint of every judge."""
    folder, rejudging, note = _prepare(path, request, client)
    _check_endpoints(rejudging)
    with note:
        num_changed = rejudging.judge()
    return _told(folder, request, num_changed)


def parse_run_again(path: Path, request: JudgeRequest) -> dict[str, Any]:
    """Parses the stored replies of a run's judges again. Nothing is sent."""
    offline = replace(request, changes={**request.changes, "url": None})
    folder, rejudging, note = _prepare(path, offline, None)
    with note:
        num_changed = rejudging.parse_again()
    return _told(folder, request, num_changed)


def estimate_run(path: Path, request: JudgeRequest) -> dict[str, Any]:
    """What `judge_run` would ask for, before anything is spent."""
    offline = replace(request, changes={**request.changes, "url": None})
    _, rejudging, _ = _prepare(path, offline, None)
    settings = _judge_settings(RunFolder.open(path), request)
    return _in_plain(rejudging.estimate(), settings)


def screen_run(path: Path, request: JudgeRequest, *, client: ChatClient | None = None) -> dict[str, Any]:
    """Audits the failed attempts of a reference run, and freezes the subset that is left."""
    folder = RunFolder.open(path)
    settings = _judge_settings(folder, request)
    auditor = make_auditor(settings, client=client)
    with Progress("screen", total=len(to_audit(folder))) as line:
        spent = _Spent()

        def note(audit: Audit) -> None:
            line.step(failed=audit.decision == "not_audited", note=spent.with_cost(audit.cost))

        screening = screen(RunStore(path), auditor, again=request.again, watch=note)
    return screening.model_dump(mode="json")


def estimate_screen(path: Path, request: JudgeRequest) -> dict[str, Any]:
    folder = RunFolder.open(path)
    settings = _judge_settings(folder, request)
    return _in_plain(estimate_screening(folder, make_auditor(replace(settings, url=None))), settings)


# Preparing


def _check_endpoints(rejudging: Rejudging) -> None:
    """Refuses to begin if a model has to be asked and no endpoint is known: every verdict would become `not_judged`."""
    mute = [judge for judge in rejudging.judges if isinstance(judge, ChatJudge) and judge.model.client is None]
    if mute and rejudging.estimate().num_calls:
        raise ConfigError(
            f"The judge '{mute[0].name}' asks the model {mute[0].model.name}; give its endpoint with --url. Stored "
            "replies are parsed again with --replay."
        )


def _prepare(path: Path, request: JudgeRequest, client: ChatClient | None) -> tuple[RunFolder, Rejudging, Progress]:
    folder = RunFolder.open(path)
    judges, tasks = _judges(folder, path, request, client)
    total = len(folder.places(folder.manifest())) * len(judges)
    line, spent = Progress("judge", total=total), _Spent()

    def watch(judged: Judged) -> None:
        words = spent.with_cost(JudgeCost() if judged.is_reused else judged.verdict.cost)
        is_failed = judged.verdict.outcome == "not_judged" and judged.verdict.judge in CHAT_JUDGES
        line.step(failed=is_failed, note=words)

    rejudging = Rejudging(
        RunStore(path), judges, tasks=tasks, first_counts=not request.beside, again=request.again, watch=watch
    )
    return folder, rejudging, line


def _judges(
    folder: RunFolder, path: Path, request: JudgeRequest, client: ChatClient | None
) -> tuple[Sequence[Judge | None], Mapping[str, Task]]:
    """The judges, and the tasks whose records have changed. The other tasks are those that the run stored, so a run can
    be judged wherever it is, without its suite's files.
    """
    settings = _judge_settings(folder, request)
    stored = {one.episode.task.task_id: one.episode.task for one in folder.episodes()}
    changed = {} if request.tasks is None else _with_answers(stored, folder.manifest().suite, request.tasks)
    judges = [_named(words, settings, client) for words in request.judges]
    if judges:
        return judges, changed
    if _run_settings(folder) is None:
        raise ConfigError(
            f"{path} was not made by `focusmem run`, so its suite is not known; name a judge with --judge."
        )
    return [judge_for(folder.manifest().suite, {**stored, **changed}.values(), settings)], changed


def _with_answers(stored: Mapping[str, Task], suite: str, path: Path) -> dict[str, Task]:
    """Stored tasks with the right answers of a file. The file may have any name and hold any of the run's tasks."""
    found = {}
    for task in TaskSuite.from_file(path, name=suite).tasks:
        name = task.task_id.removeprefix(f"{suite}/")
        if task.task_id not in stored:
            raise ConfigError(
                f"{path} holds the task '{name}', of which the run has no finished episode; its tasks are "
                f"{', '.join(one.removeprefix(f'{suite}/') for one in stored)[:200]}."
            )
        known = stored[task.task_id]
        if task.instruction != known.instruction:
            raise ConfigError(f"The task '{name}' of {path} asks something else than that of the run.")
        found[task.task_id] = known.model_copy(update={"answer": task.answer})
    return found


def _run_settings(folder: RunFolder) -> RunSettings | None:
    """The settings of the run; None if `focusmem run` did not make it."""
    run = folder.run()
    return settings_of(run) if "settings" in run.config else None


def _judge_settings(folder: RunFolder, request: JudgeRequest) -> JudgeSettings:
    run_settings = _run_settings(folder)
    base = JudgeSettings() if run_settings is None else run_settings.judge
    return with_store(resolved(base, values=request.changes, assignments=request.assignments), folder.path)


def _named(words: str, settings: JudgeSettings, client: ChatClient | None) -> Judge:
    named, _, model = words.partition("@")
    name, _, profile = named.partition(":")
    chosen = replace(settings, profile=profile or settings.profile, model=model or settings.model)
    return make_judge(name, chosen, client=client)


# Telling


class _Spent:
    """What the judgements of this command have cost so far."""

    def __init__(self) -> None:
        self.cost = JudgeCost()

    def with_cost(self, cost: JudgeCost) -> str:
        self.cost += cost
        dollars = "" if self.cost.usd is None else f", {self.cost.usd:.2f} dollars"
        return f"{self.cost.num_calls} calls{dollars}"


def _told(folder: RunFolder, request: JudgeRequest, num_changed: int) -> dict[str, Any]:
    episodes = folder.episodes()
    labels = None if request.labels is None else read_labels(request.labels, agent=request.label_agent)
    found = judging_figures(episodes, labels)
    write_whole(folder.path / JUDGING_FILE, json.dumps(found, indent=2).encode())
    return {"num_episodes": len(episodes), "num_changed": num_changed, **summarise(folder), "judging": found}


def _in_plain(estimate: Estimate, settings: JudgeSettings) -> dict[str, Any]:
    usage = Usage(estimate.num_prompt_tokens, estimate.num_reply_tokens)
    return {
        "at_most_calls": estimate.num_calls,
        "at_most_images": estimate.num_images,
        "about_prompt_tokens": estimate.num_prompt_tokens,
        "about_reply_tokens": estimate.num_reply_tokens,
        "about_usd": usage.cost_usd(settings.endpoint.prices),
    }
