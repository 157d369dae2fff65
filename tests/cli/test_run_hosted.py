"""`focusmem run` with a hosted model: formats, costs, faults, kills and keys, from the command line to the record."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from chat_server import HANG, ChatServer, completion, half, huge
from focusmem.cli.main import app
from focusmem.cli.run import default_folder
from focusmem.errors import ConfigError
from focusmem.recipes.run_settings import lab
from focusmem.schemas import RunFolder
from focusmem.settings import resolved

ROOT = Path(__file__).parents[2]
USAGE = {"prompt_tokens": 1000, "completion_tokens": 10}
COST = 0.00208
PRICES = 'policy.endpoint.prices={"prompt": 2.0, "reply": 8.0}'
KEY = "planted-key-9f8e7d6c"
STOP = completion('{"name": "stop", "arguments": {"answer": "blue"}}', **USAGE)


def words(server, out, *more, tasks=1):
    return ["run", "lab", "--browser", "raster", "--tasks", str(tasks), "--policy", server.url, "--model", "eyes/one",
            "--out", str(out), "--no-page", "--json", "--set", PRICES, "--set", "policy.endpoint.wait_s=0",
            "--set", "runner.num_retries=0", *more]  # fmt: skip


def invoke(*arguments):
    result = CliRunner().invoke(app, [str(word) for word in arguments])
    if result.exception is not None:
        raise result.exception
    return json.loads(result.stdout)


def test_a_hosted_model_plays_and_its_cost_is_told(tmp_path):
    with ChatServer(STOP) as server:
        found = invoke(*words(server, tmp_path / "run", tasks=3))
        again = invoke(*words(server, tmp_path / "run", tasks=3))
    assert (found["num_tasks"], found["num_errors"]) == (3, 0)
    assert (found["spending"]["num_replies"], found["spending"]["cost_usd"]) == (3, pytest.approx(3 * COST))
    assert again["spending"] == found["spending"]
    assert len(server.asked) == 3
    [note] = RunFolder(tmp_path / "run").episodes()[0].episode.notes
    assert (note.num_reply_tokens, note.cost_usd) == (10, pytest.approx(COST))


# Replies that click, and where on the view of 448x288 pixels, which Qwen2.5-VL sees as 448x280.
CLICKS = {
    "json": ('{"name": "click", "arguments": {"description": "Search"}}', None),
    "ui-tars-pixels": ("Thought: There.\nAction: click(start_box='(224,150)')", (224, 154)),
    "ui-tars-thousandths": ("Thought: There.\nAction: click(point='<point>500 500</point>')", (224, 144)),
    "ui-venus": ("<think>There.</think><action>Click(box=(500,500))</action>", (224, 144)),
    "molmoweb": ('{"thought": "There.", "action": {"name": "click", "x": 50, "y": 50}}', (224, 144)),
    "fara": (
        '<tool_call>\n{"name": "computer_use", "arguments": {"action": "left_click", "coordinate": [224, 150]}}\n'
        "</tool_call>",
        (224, 154),
    ),
}


@pytest.mark.parametrize(
    "name", ["json", "ui-tars-pixels", *(pytest.param(name, marks=pytest.mark.slow) for name in list(CLICKS)[2:])]
)
def test_every_format_plays(name, tmp_path):
    reply, point = CLICKS[name]
    with ChatServer(completion(reply)) as server:
        invoke(*words(server, tmp_path, "--format", name))
    [one] = RunFolder(tmp_path).episodes()
    assert all(note.is_readable for note in one.episode.notes)
    assert {note.thoughts for note in one.episode.notes} == {"There." if name == "ui-venus" else None}
    if point is not None:
        assert {step.click_point for step in one.trajectory().trajectory.steps} == {point}


def test_a_run_outlives_a_faulty_endpoint_and_the_cost_is_right(tmp_path):
    """Twelve tasks. Four faults are outlived; a reply that is too long ends one episode, and no other."""
    faults = [(429, "slow down", {"Retry-After": "0"}), (500, ""), (200, "garbage"), half(STOP), huge(30 * 2**20)]
    with ChatServer(*faults, STOP) as server:
        found = invoke(*words(server, tmp_path, "--parallel", "4", tasks=12))
    assert (found["num_tasks"], found["num_missing"], found["num_errors"]) == (12, 0, 1)
    [error] = [one.episode.error for one in RunFolder(tmp_path).episodes() if one.episode.error]
    assert "max_reply_bytes" in error
    assert found["spending"]["cost_usd"] == pytest.approx(11 * COST)
    assert found["spending"]["num_without_cost"] == 1, "garbage may have to be paid"
    assert len(server.asked) == 12 + 4


def test_an_endpoint_that_hangs_ends_the_episode_and_not_the_run(tmp_path):
    with ChatServer(HANG) as server:
        found = invoke(*words(server, tmp_path, "--set", "policy.endpoint.timeout_s=0.3"))
    assert (found["num_tasks"], found["num_missing"], found["num_errors"]) == (1, 0, 1)
    assert "timeout_s, 0.3 s" in RunFolder(tmp_path).episodes()[0].episode.error


@pytest.mark.parametrize(
    "answer",
    [
        completion(f'{{"name": "stop", "arguments": {{"answer": "Your key is {KEY}."}}}}'),
        completion(f"<think>{KEY}</think>I type {KEY}."),
        (400, KEY),
    ],
    ids=["answer", "thoughts", "error"],
)
def test_a_planted_key_is_nowhere_in_a_run(answer, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("FOCUSMEM_POLICY_KEY", KEY)
    caplog.set_level(0)
    with ChatServer(answer) as server:
        result = CliRunner().invoke(app, words(server, tmp_path))
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 5
    assert not any(KEY.encode() in path.read_bytes() for path in files)
    assert KEY not in caplog.text + result.output


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--policy", "http://localhost:1/v1"], "needs the name of its model; give it with --model"),
        (["--policy", "http://localhost:1/v1#eyes", "--model", "eyes"], "a fragment"),
        (["--policy", "lab", "--model", "eyes"], "is no endpoint"),
        (["--policy", "http://localhost:1/v1", "--model", "eyes", "--format", "uitars"], "policy.format is 'uitars'"),
        (["--format", "fara", "--memory", "words"], "no place for memory"),
        (["--grounder", "http://localhost:1/v1"], "--grounder-model"),
    ],
)
def test_a_mistake_is_one_line(arguments, problem, tmp_path):
    result = CliRunner().invoke(
        app, ["run", "lab", "--browser", "raster", "--tasks", "1", *arguments, "--out", str(tmp_path / "run")]
    )
    assert isinstance(result.exception, ConfigError), result.output
    assert problem in str(result.exception)


def test_the_default_folder_names_the_model():
    named = resolved(lab(), values={"policy.model": "Qwen/Qwen3-VL 8B"})
    assert default_folder(named).name.endswith("-Qwen3-VL-8B")


@pytest.mark.slow
def test_a_killed_run_goes_on_and_pays_for_no_reply_twice(tmp_path):
    """The endpoint stops answering in the middle of the run, which is killed while it waits."""
    is_reached = threading.Event()

    def answer(asked):
        if len(server.asked) == 5 and not is_reached.is_set():
            is_reached.set()
            return HANG
        return completion('{"name": "scroll", "arguments": {"direction": "down"}}', **USAGE)

    with ChatServer(answer) as server:
        command = words(server, tmp_path, "--parallel", "1", tasks=2)
        process = subprocess.Popen(
            [sys.executable, "-m", "focusmem.cli.main", *command],
            env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while not is_reached.wait(0.05):
            assert process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.communicate()
        found = invoke(*command)
    times = Counter(json.dumps(asked) for asked in server.asked)
    assert found["num_errors"] == 0
    assert sorted(times.values(), reverse=True)[:2] == [2, 1], "only the request without an answer was sent again"
    assert found["spending"]["num_replies"] == len(server.asked) - 1
    assert found["spending"]["cost_usd"] == pytest.approx((len(server.asked) - 1) * COST)
