"""`focusmem judge` with a real endpoint on this machine."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from chat_server import HANG, ChatServer, completion
from clocks import PATIENT_S
from focusmem.cli.main import app
from focusmem.schemas import RunFolder
from stored_runs import make_finished, write_run

WON, LOST = "It fits. <result>SUCCESS</result>", "It lacks a price. <result>NOT SUCCESS</result>"
USAGE = {"prompt_tokens": 1000, "completion_tokens": 100}
PRICE = ["--price", "1", "10"]
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def no_sync(monkeypatch):
    """No test here needs its files after a crash."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def make_run(folder, num=4, outcome="failure"):
    return RunFolder(write_run(folder, [make_finished(number, outcome) for number in range(num)]))


def number_in(asked):
    """Which mug a request is about."""
    return int(json.dumps(asked["messages"]).partition("mug number ")[2].partition("?")[0])


def judge(run, *words, code=0):
    told = CliRunner().invoke(app, ["judge", str(run.path), "--judge", "webvoyager", *map(str, words)])
    assert told.exit_code == code, told.output
    return told


def outcomes(run):
    return {int(one.episode.task.task_id[-1]): one.outcome for one in run.episodes()}


def test_a_run_is_judged_over_http_with_its_cost(tmp_path):
    run = make_run(tmp_path)
    answer = lambda asked: completion(WON if number_in(asked) % 2 else LOST, **USAGE)  # noqa: E731
    with ChatServer(answer) as server:
        estimate = json.loads(judge(run, "--url", server.url, *PRICE, "--dry-run", "--json").stdout)
        assert (estimate["at_most_calls"], estimate["at_most_images"], server.asked) == (4, 12, [])
        assert estimate["about_usd"] == pytest.approx(
            (estimate["about_prompt_tokens"] + 10 * estimate["about_reply_tokens"]) / 1e6
        )
        found = json.loads(judge(run, "--url", server.url, "--model", "small", *PRICE, "--json").stdout)
        assert len(server.asked) == 4
        assert {one["model"] for one in server.asked} == {"small"}
        assert {one["temperature"] for one in server.asked} == {0.0}
        judge(run, "--url", server.url, "--model", "small")
        judge(run, "--url", server.url, "--model", "small", "--replay")
        assert len(server.asked) == 4, "nothing is paid twice"
    assert outcomes(run) == {0: "failure", 1: "success", 2: "failure", 3: "success"}
    assert (found["success_rate"], found["num_changed"]) == (0.5, 2)
    assert found["judge_usd"] == pytest.approx(4 * (1000 * 1 + 100 * 10) / 1e6)
    departure = "judged by small, where the profile asks for gemini-3.1-pro"
    [about] = found["judges"]
    assert (about["judge"], about["profile"], about["model"], about["departures"]) == (
        "webvoyager",
        "paper",
        "small",
        [departure],
    )
    assert f"Departure: {departure}." in judge(run, "--replay").stdout
    assert json.loads((tmp_path / "judging.json").read_text()) == found["judging"]
    told = CliRunner().invoke(app, ["compare", str(run.path), str(run.path)])
    assert f"Judged with webvoyager (paper) by small. Departures: {departure}." in told.stdout.replace("\n", " ")


def test_an_endpoint_that_refuses_a_temperature_is_named_on_every_verdict(tmp_path):
    run = make_run(tmp_path, 2)
    refusal = {
        "error": {"message": "Unsupported value: temperature", "param": "temperature", "code": "unsupported_value"}
    }

    def answer(asked):
        return (400, json.dumps(refusal)) if "temperature" in asked else completion(WON)

    with ChatServer(answer) as server:
        judge(run, "--url", server.url)
    for one in run.episodes():
        assert one.outcome == "success"
        assert any("temperature" in text for text in one.verdict.consultation.departures)


@pytest.mark.parametrize("last", [(200, ""), pytest.param(HANG, marks=pytest.mark.slow)])
def test_whatever_an_endpoint_does_no_verdict_is_invented(last, tmp_path):
    """429 and 500 pass; garbage, half a reply, 30 MB and silence do not. The judging ends, and goes on later."""
    run, times = make_run(tmp_path, 7), {}
    huge = completion("<result>SUCCESS</result>" + " " * 30_000_000)
    half = completion(WON)[1]
    half = (200, half[: len(half) // 2])

    def answer(asked):
        number = number_in(asked)
        times[number] = times.get(number, 0) + 1
        passing = {0: (429, "busy"), 1: (500, "broken")}
        if number in passing:
            return passing[number] if times[number] == 1 else completion(WON, **USAGE)
        return {2: (200, "SUCCESS"), 3: half, 4: huge, 5: last, 6: completion(LOST, **USAGE)}[number]

    words = ["--set", "endpoint.wait_s=0", "--set", "endpoint.num_attempts=2", *PRICE]
    words += ["--set", "endpoint.timeout_s=15"] if last == HANG else []
    with ChatServer(answer) as server:
        found = json.loads(judge(run, "--url", server.url, *words, "--json").stdout)
    assert outcomes(run) == {0: "success", 1: "success", **dict.fromkeys((2, 3, 4, 5), "not_judged"), 6: "failure"}
    assert (found["num_not_judged"], found["success_rate"]) == (4, 2 / 7)
    assert found["judge_usd"] == pytest.approx(3 * 0.002)
    for one in run.episodes():
        assert (one.verdict.score is None) == (one.outcome == "not_judged")

    with ChatServer(completion(WON, **USAGE)) as server:
        judge(run, "--url", server.url, *words)
        assert sorted(map(number_in, server.asked)) == [2, 3, 4, 5]
    assert outcomes(run) == {**dict.fromkeys(range(6), "success"), 6: "failure"}


def test_a_wrong_model_or_key_stops_at_once_with_the_fix(tmp_path):
    run = make_run(tmp_path, 2)
    with ChatServer((404, json.dumps({"error": {"message": "no such model"}}))) as server:
        told = judge(run, "--url", server.url, "--model", "typo", code=1)
    assert "no such model" in str(told.exception)
    assert set(outcomes(run).values()) == {"failure"}


def test_without_an_endpoint_no_verdict_is_replaced(tmp_path):
    run = make_run(tmp_path, 1)
    assert "give its endpoint with --url" in str(judge(run, code=1).exception)
    assert outcomes(run) == {0: "failure"}
    with ChatServer(completion(WON)) as server:
        judge(run, "--url", server.url)
    judge(run)
    assert outcomes(run) == {0: "success"}, "nothing is left to ask"


def test_several_judges_are_compared_with_each_other_and_with_people(tmp_path):
    run = make_run(tmp_path / "run")
    labels = tmp_path / "labels.jsonl"
    entries = ({"task_id": f"task-{number}", "label": str(int(number < 3))} for number in range(4))
    labels.write_text("\n".join(map(json.dumps, entries)))

    def answer(asked):
        is_official = "verdict" in json.dumps(asked["messages"][-1])
        wins = number_in(asked) < (3 if is_official else 2)
        return completion(("SUCCESS" if wins else "NOT SUCCESS") if is_official else (WON if wins else LOST))

    with ChatServer(answer) as server:
        judges = ["--judge", "webvoyager:official@gpt-4o", "--judge", "exact"]
        found = json.loads(judge(run, *judges, "--url", server.url, "--labels", labels, "--json").stdout)
    assert outcomes(run) == {0: "success", 1: "success", 2: "failure", 3: "failure"}, "the first judge counts"
    pairs = {(one["first"].split(".")[0], one["second"].split(".")[0]): one for one in found["judging"]["agreement"]}
    official = next(key for key in found["judging"]["judges"] if key.startswith("webvoyager.official"))
    paper = next(key for key in found["judging"]["judges"] if key.startswith("webvoyager.paper"))
    assert found["judging"]["judges"][official]["model"] == "gpt-4o"
    both = next(one for one in found["judging"]["agreement"] if {one["first"], one["second"]} == {paper, official})
    assert (both["agreement"], both["kappa"]) == (0.75, pytest.approx(0.5))
    assert pairs["exact-answer", "human"]["table"] == [[0, 0], [1, 3]]
    told = judge(run, *judges, "--replay", "--labels", labels).stdout
    for words in ("Agreement", "kappa", "0.50", "75.0%", "human"):
        assert words in told


def test_a_live_suite_is_screened(tmp_path):
    run = make_run(tmp_path, 3)
    answer = lambda asked: completion("BLOCK CAPTCHA step1 Press & Hold" if number_in(asked) == 1 else "OK")  # noqa: E731
    with ChatServer(answer) as server:
        assert "At most 3 calls with 6 images" in judge(run, "--screen", "--dry-run", "--url", server.url).stdout
        told = judge(run, "--screen", "--url", server.url).stdout
        assert "2 tasks kept, 1 blocked. 3 failed episodes audited" in told
        assert "CAPTCHA" in told
        assert judge(run, "--screen", "--url", server.url, code=1).exception is not None
    assert run.screening().kept == ("shop/task-0", "shop/task-2")


def test_replay_and_dry_run_are_two_things(tmp_path):
    told = judge(make_run(tmp_path, 1), "--replay", "--dry-run", code=1)
    assert "Leave out --dry-run" in str(told.exception)


@pytest.mark.slow
def test_a_judging_that_was_killed_goes_on_without_paying_twice(tmp_path):
    run = make_run(tmp_path, 8)
    with ChatServer(lambda asked: HANG if number_in(asked) >= 4 else completion(WON, **USAGE)) as server:
        words = [sys.executable, "-m", "focusmem.cli.main", "judge", str(run.path), "--judge", "webvoyager"]
        environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
        process = subprocess.Popen([*words, "--url", server.url, "--parallel", "2"], env=environment)
        deadline = time.monotonic() + PATIENT_S
        while len({number_in(asked) for asked in server.asked} & {4, 5, 6, 7}) < 2:
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert list(outcomes(run).values()).count("success") == 4
    with ChatServer(completion(WON, **USAGE)) as server:
        found = json.loads(judge(run, "--url", server.url, *PRICE, "--json").stdout)
        assert sorted(map(number_in, server.asked)) == [4, 5, 6, 7]
    assert set(outcomes(run).values()) == {"success"}
    assert found["judge_calls"] == 8
