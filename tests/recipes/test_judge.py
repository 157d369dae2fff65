import asyncio
import json

import pytest
from typer.testing import CliRunner

from evaluation.browsers import FakeBrowser
from evaluation.minds import ScriptedMind, say
from focusmem.cli.main import app
from focusmem.errors import ConfigError
from focusmem.evaluation.metrics import summarise
from focusmem.evaluation.suite_run import RunAbout, SuiteRun
from focusmem.recipes.judge import JudgeRequest, judge_run
from focusmem.recipes.run_settings import web
from focusmem.schemas import RunFolder
from focusmem.settings import resolved, to_plain
from focusmem.suites.task_file import TaskSuite


def write_tasks(path, answers):
    rows = [
        {"task_id": name, "instruction": f"Find {name}.", "start_url": "https://shop.example/", "site": "shop.example"}
        | ({} if answer is None else {"answer": answer})
        for name, answer in answers.items()
    ]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


@pytest.fixture
def run(tmp_path):
    """A finished run of two tasks whose right answers were not known."""
    tasks = write_tasks(tmp_path / "tasks.jsonl", {"mug": None, "hat": None})
    settings = to_plain(resolved(web(), values={"suite.name": str(tasks)}))
    lines = {f"tasks/{name}": [say("stop", answer="12 euros")] for name in ("mug", "hat")}
    made = SuiteRun(
        TaskSuite.from_file(tasks),
        ScriptedMind(lines),
        tmp_path / "run",
        RunAbout(method="none", config={"settings": settings}),
    )

    async def make_browser(task):
        return FakeBrowser()

    with made.on_record():
        asyncio.run(made.attempt(made.attempts(), make_browser))
    summarise(made.folder)
    return made


def test_answers_that_are_known_later_judge_a_stored_run(run, tmp_path):
    assert judge_run(run.store.path, JudgeRequest())["num_changed"] == 0
    known = write_tasks(tmp_path / "tasks.jsonl", {"mug": "12 Euros.", "hat": "9 euros"})
    result = CliRunner().invoke(app, ["judge", str(run.store.path), "--tasks", str(known), "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["num_episodes"], found["num_changed"], found["success_rate"]) == (2, 2, 0.5)
    assert [one.outcome for one in run.folder.episodes()] == ["success", "failure"]
    assert json.loads((run.store.path / "results.json").read_text())["success_rate"] == 0.5


def test_a_run_that_was_moved_is_judged_without_its_suite(run, tmp_path, monkeypatch):
    moved = tmp_path / "archive" / "old"
    moved.parent.mkdir()
    run.store.path.rename(moved)
    (tmp_path / "tasks.jsonl").unlink()
    monkeypatch.chdir(moved)
    corrected = write_tasks(tmp_path / "corrected.jsonl", {"mug": "12 euros"})
    assert judge_run(moved, JudgeRequest(tasks=corrected))["num_changed"] == 1
    assert [one.outcome for one in RunFolder(moved).episodes()] == ["success", "not_judged"]


def test_answers_of_other_tasks_are_refused(run, tmp_path):
    for tasks, reason in (({"cap": "9 euros"}, "holds the task 'cap'"), ({"mug": "9 euros"}, "asks something else")):
        known = write_tasks(tmp_path / "known.jsonl", tasks)
        known.write_text(known.read_text().replace("Find mug.", "Find the mug."))
        with pytest.raises(ConfigError, match=reason):
            judge_run(run.store.path, JudgeRequest(tasks=known))
