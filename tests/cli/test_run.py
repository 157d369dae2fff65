"""`focusmem run` from the command line to the page: a file of tasks on a web site that is not the laboratory's."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from browser.fixtures import descendants, is_gone
from browser.sites import Site
from clocks import PATIENT_S
from focusmem.cli.main import app
from focusmem.cli.run import default_folder
from focusmem.errors import ConfigError, StorageError
from focusmem.recipes.run_settings import lab, web
from focusmem.schemas import RunFolder
from focusmem.settings import resolved

ROOT = Path(__file__).parents[2]
FRONTS = ("words", "retrieved", "action-only", "full")


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    """Two tasks on a site of awkward pages; the first has a known answer."""
    path = tmp_path_factory.mktemp("tasks") / "tasks.jsonl"
    with Site() as site:
        rows = [
            {
                "task_id": "second",
                "instruction": "What is on the second page?",
                "start_url": site.url,
                "answer": "Here",
            },
            {"task_id": "form", "instruction": "Search for a mug.", "start_url": f"{site.url}/form"},
        ]
        path.write_text("".join(json.dumps({**row, "site": site.host, "max_steps": 1}) + "\n" for row in rows))
        yield path


def words(tasks, out, *more):
    quick = {
        "browser.limits.width": 448,
        "browser.limits.height": 288,
        "browser.limits.settle_s": 0,
        "browser.limits.load_s": PATIENT_S,
        "browser.limits.action_s": 2 * PATIENT_S,
        "browser.limits.step_s": 2 * PATIENT_S,
        "policy.generation.max_new_tokens": 8,
        "memory.num_found": 1,
    }
    settings = [word for name, value in quick.items() for word in ("--set", f"{name}={value}")]
    return ["run", str(tasks), "--out", str(out), "--json", *settings, *more]


def parts(weights, front="none"):
    """Of toys, except for the whole memory: with this the parts that ship act."""
    if front == "full":
        return ["--policy", "lab", "--memory", "full"]
    own = ["--policy", weights / "policy", "--memory", front]
    own += [] if front == "none" else ["--embedder", weights / "embedder", "--bank", weights / "bank"]
    return own + (["--checkpoint", weights / "memory" / front] if front == "action-only" else [])


def invoke(*arguments):
    result = CliRunner().invoke(app, [str(word) for word in arguments])
    if result.exception is not None:
        raise result.exception
    return json.loads(result.stdout)


def start(*arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "focusmem.cli.main", *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


@pytest.mark.browser
def test_a_run_that_was_killed_is_resumed_and_every_front_runs_after_it(tasks, toy_weights, tmp_path):
    none = tmp_path / "none"
    process = start(*words(tasks, none, "--parallel", "1", *parts(toy_weights)))
    while not list(none.glob("episodes/*/1/episode.json")):
        assert process.poll() is None
        time.sleep(0.01)
    left = descendants(process.pid)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert all(is_gone(pid) for pid in left), "no browser is left running"
    before = {path: path.read_bytes() for path in none.glob("episodes/*/1/episode.json")}
    results = [invoke(*words(tasks, none, *parts(toy_weights)))]
    assert all(path.read_bytes() == data for path, data in before.items()), "finished episodes stay as they are"
    results += [invoke(*words(tasks, tmp_path / front, *parts(toy_weights, front))) for front in FRONTS]
    for front, found in zip(("none", *FRONTS), results, strict=True):
        assert (found["memory"], found["num_tasks"], found["num_errors"], found["num_missing"]) == (front, 2, 0, 0)
        assert Path(found["page"]).stat().st_size > 10_000
        episodes = RunFolder(Path(found["run"])).episodes()
        assert [one.episode.task.task_id for one in episodes] == ["tasks/second", "tasks/form"]
        assert all(one.verdict.reason for one in episodes)
        assert all(one.trajectory().trajectory.closing is not None for one in episodes)
        offered = [item.trajectory_id for one in episodes for note in one.episode.notes for item in note.offered]
        assert bool(offered) is (front != "none")
    table = CliRunner().invoke(app, ["table", *(str(tmp_path / name) for name in ("none", *FRONTS)), "--json"])
    rows = json.loads(table.stdout)["rows"]
    assert [(row["memory"], row["num_tasks"]) for row in rows] == [(name, 2) for name in ("none", *FRONTS)]


@pytest.mark.browser
def test_one_page_needs_an_address_and_an_instruction(toy_weights, tmp_path):
    with Site() as site:
        found = invoke(
            *words(
                f"{site.url}/second",
                tmp_path,
                *parts(toy_weights),
                "--instruction",
                "Go home.",
                "--max-steps",
                "1",
                "--no-page",
            )
        )
    assert (found["num_tasks"], found["success_rate"], found["page"]) == (
        1,
        None if found["num_not_judged"] else 0,
        None,
    )
    [one] = RunFolder(tmp_path).episodes()
    assert one.episode.task.instruction == "Go home."
    assert one.episode.task.start_url.startswith(site.url)


def test_the_laboratory_reports_what_its_evaluation_reported(toy_weights, tmp_path):
    toys = ["--policy", toy_weights / "policy", "--embedder", toy_weights / "embedder", "--bank", toy_weights / "bank",
            "--checkpoint", toy_weights / "memory" / "full", "--set", "policy.generation.max_new_tokens=2"]  # fmt: skip
    found = invoke("run", "lab", "--memory", "full", "--tasks", "1", "--seed", "7", "--browser", "raster",
                   "--parallel", "1", *toys, "--out", tmp_path, "--json")  # fmt: skip
    assert {
        "memory", "num_tasks", "num_errors", "num_blocked", "num_not_judged", "num_missing", "success_rate",
        "success_interval", "hit_max_rate", "unreadable_rate", "repeat_rate", "mean_steps", "mean_task_s",
        "mean_step_s", "mean_prompt_tokens", "mean_memory_tokens", "accepted_rate", "removed_per_step", "by_kind",
    } <= set(found)  # fmt: skip
    assert (found["num_tasks"], found["num_errors"]) == (1, 0)


def test_a_dry_run_prints_settings_that_can_be_read_back(tmp_path):
    chosen = ["--memory", "full", "--tasks", "7", "--set", "memory.num_found=2", "--device", "cuda"]
    chosen += ["--trusted-sources"]
    printed = CliRunner().invoke(app, ["run", "lab", *chosen, "--dry-run", "--out", str(tmp_path / "run")]).stdout
    (tmp_path / "settings.toml").write_text(printed)
    assert not (tmp_path / "run").exists()
    again = CliRunner().invoke(app, ["run", "lab", "--config", str(tmp_path / "settings.toml"), "--dry-run"]).stdout
    assert again == printed
    settings = resolved(web(), file=tmp_path / "settings.toml")
    assert (settings.memory.num_found, settings.suite.lab.num_tasks, settings.policy.device) == (2, 7, "cuda")
    assert settings.memory.only_trusted
    assert settings.policy.generation.max_new_tokens == lab().policy.generation.max_new_tokens


def test_default_folders_are_named_after_what_varies():
    assert str(default_folder(lab())) == "runs/lab-none-raster-0-400"
    named = resolved(web(), values={"suite.name": "my/tasks.jsonl", "memory.name": "words"})
    assert str(default_folder(named)) == "runs/tasks-words"
    pages = [
        default_folder(resolved(web(), values={"suite.name": "https://example.org/", "suite.instruction": text}))
        for text in ("Go.", "Stay.")
    ]
    assert len({str(page) for page in pages}) == 2


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["lab", "--resume"], "no run in .* to resume"),
        (["nowhere.jsonl"], "nowhere.jsonl"),
        (["lab", "--set", "memory.colour=red"], "no setting 'memory.colour'"),
        (["lab", "--parallel", "0"], "runner.num_parallel is 0"),
        (["lab", "--recipe", "webb"], "no recipe 'webb'"),
        (["lab", "--policy", "lab", "--device", "tpu"], "device is 'tpu'"),
    ],
)
def test_a_mistake_is_one_line(arguments, problem, tmp_path):
    result = CliRunner().invoke(app, ["run", *arguments, "--out", str(tmp_path / "run")])
    assert isinstance(result.exception, ConfigError | StorageError), result.output
    assert re.search(problem, str(result.exception))
    assert "\n" not in str(result.exception)
