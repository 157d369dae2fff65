"""The benchmarks' own evaluation scripts, unchanged, read our exported run and reach the verdicts of our judges.

The scripts are not in this repository. Clone them, and name the clones and a Python that has their packages:

    FOCUSMEM_WEBVOYAGER=~/WebVoyager FOCUSMEM_ONLINE_MIND2WEB=~/Online-Mind2Web \\
    FOCUSMEM_OFFICIAL_PYTHON=~/official/bin/python \\
    python -m pytest tests/data/exporters/test_official_scripts.py -m slow

That Python needs openai 1.68.2, backoff 2.2.1 and Pillow 11.1.0, as Online-Mind2Web asks for. WebVoyager's script asks
for openai 1.1.1, which cannot be pointed at another endpoint by an environment variable; it runs with 1.68.2 as it is.
Both sides ask one scripted endpoint on this machine, so each reply is read by both.
"""

import base64
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from chat_server import ChatServer, completion
from focusmem.recipes.interchange import export_run
from focusmem.recipes.judge import JudgeRequest, judge_run
from focusmem.schemas import Closing, RunFolder, Screenshot, Step, Task, Trajectory, make_action
from stored_runs import make_finished, write_run

pytestmark = pytest.mark.slow

WEBVOYAGER_REPLIES = [
    "SUCCESS",
    "NOT SUCCESS",
    "The agent found the price. Verdict: SUCCESS.",
    "**NOT SUCCESS**",
    "I cannot call this NOT SUCCESS, so it is SUCCESS.",
    "success",
    "not success",
    "UNSUCCESSFUL",
    "SUCCESSFUL",
    "NOT  SUCCESS",
    "NOT\nSUCCESS",
    "Not SUCCESS",
    "NOTSUCCESS",
    "NOT-SUCCESS",
    "FAILURE",
    "SUC CESS",
    "<result>SUCCESS</result>",
    "<result>not success</result>",
    '{"thought": "All shown.", "verdict": "SUCCESS"}',
    "Status: success",
    "SUCCESS or NOT SUCCESS? That cannot be said.",
    "NOT SUCCESS. On reflection: SUCCESS",
    "\uff33\uff35\uff23\uff23\uff25\uff33\uff33",
    "The words were: TASK SUCCESS CRITERIA unmet",
    "A long story. " * 200 + "SUCCESS",
]
WEBVOYAGER_IDS = [
    f"{site}--{number}" for site in ("Allrecipes", "Google Flights", "Wolfram Alpha") for number in range(9)
]

MIND2WEB_REPLIES = [
    "Thoughts: All there.\nStatus: success",
    'Thoughts: All there.\nStatus: "success"',
    "Thoughts: No.\nStatus: failure",
    "Status: unsuccessful",
    "Status: not success",
    "status: SUCCESS",
    "STATUS: FAILURE",
    "It was a success.",
    "Thoughts: Status: success was my first idea.\nStatus: failure",
    "Status: failure. Status: success",
    "Status:success",
    "Status : success",
    "**Status**: success",
    "**Status:** success",
    'Status: "failure", because success needs a filter',
    "Status: partial success",
    "The final status: the task is a success",
    "Status: succes",
    "Thoughts: The page says HTTP status: 404.\nStatus: success",
    "Status: success\nStatus: failure",
    "Status\uff1a success",
    '{"Status": "success"}',
    "Status:",
    "failure",
]
POINTS_REPLIES = [
    "**Key Points**:\n1. The mug\n\n2. The price",
    "**Key Points**: 1. The mug\n   2. The price\n**Key Points**: again",
    "Key Points: first try\nKey Points:\n  1. The mug",
    "1. The mug\n\n\n2. The price",
    "**Key points**:\n1. The mug",
]
LOOK_REPLIES = [
    "**Reasoning**: A list of mugs\nwith prices.\n\nMore.\n\n2. **Score**: 4",
    "Score: 3",
    "**Score**: 1, although Score 5 was near",
    "Score",
    "The Score is 7 out of 10",
    "score: 5",
    "**Reasoning**: first **Reasoning**: second\nline\n\n**Score**: 5",
    "Score: 0",
    "**Score**: 3\n**Reasoning**:",
    "1. Reasoning: A cart.\n2. Score: 5",
    "No number at all",
    "**Reasoning**: It shows 2 mugs.\n**Score**: [3]",
]


def test_webvoyager_reads_our_export_and_agrees_reply_for_reply(tmp_path):
    script = script_of("FOCUSMEM_WEBVOYAGER", "evaluation/auto_eval.py")
    replies = dict(zip(WEBVOYAGER_IDS, WEBVOYAGER_REPLIES, strict=False))
    unanswered = WEBVOYAGER_IDS[len(replies)]
    numbers = {name: 3 + index % 4 for index, name in enumerate(replies)}
    numbers["Allrecipes--3"] = 18  # more than the script shows
    finished = [attempt(f"webvoyager/{name}", numbers[name]) for name in replies]
    finished.append(attempt(f"webvoyager/{unanswered}", 3, answer=None))
    run = write_run(tmp_path / "run", finished)
    export_run(run, "webvoyager", tmp_path / "results")
    seen = {}

    def answer(asked):
        name = name_in(asked)
        seen[asked["model"], name] = [shade_of(url) for url in pictures_in(asked)]
        return completion(replies[name], prompt_tokens=1, completion_tokens=1)

    with ChatServer(answer) as server:
        words = ["--process_dir", tmp_path / "results", "--max_attached_imgs", "15", "--api_model", "official"]
        printed = run_script(script, server, *words)
        judge_run(run, JudgeRequest(judges=("webvoyager:official@ours",), changes={"url": server.url}))
    theirs = dict(
        re.findall(
            r"-{5,} .*?/task(.+?) -{5,}\n(?:.*?)(?:Auto_eval_res: |Not find answer for )(\S+)", printed, re.DOTALL
        )
    )
    meaning = {"1": "success", "0": "failure", "None": "not_judged"}
    theirs = {name: meaning.get(found, "failure") for name, found in theirs.items()}
    assert set(theirs) == {*replies, unanswered}
    assert theirs == outcomes(run)
    assert len(theirs) > 25
    assert all(seen["official", name] == seen["ours", name] for name in replies)
    assert len(seen["ours", "Allrecipes--3"]) == 15
    assert not any(name == unanswered for _, name in seen)


def test_our_judge_departs_from_webvoyagers_script_only_where_it_says_so(tmp_path):
    """Thoughts are set aside before a reply is read, and a reply that was cut off decides nothing."""
    script = script_of("FOCUSMEM_WEBVOYAGER", "evaluation/auto_eval.py")
    replies = {
        "Allrecipes--0": ("<think>It could be NOT SUCCESS.</think>SUCCESS", "stop"),
        "Allrecipes--1": ("<think>SUCCESS?</think>No verdict", "stop"),
        "Allrecipes--2": ("SUCCESS is what I would say if", "length"),
    }
    run = write_run(tmp_path / "run", [attempt(f"webvoyager/{name}", 3) for name in replies])
    export_run(run, "webvoyager", tmp_path / "results")

    def answer(asked):
        return completion(*replies[name_in(asked)], prompt_tokens=1, completion_tokens=1)

    with ChatServer(answer) as server:
        printed = run_script(script, server, "--process_dir", tmp_path / "results", "--max_attached_imgs", "15")
        judge_run(run, JudgeRequest(judges=("webvoyager:official@ours",), changes={"url": server.url}))
    assert re.findall(r"Auto_eval_res: (\S+)", printed) == ["0", "1", "1"]
    assert outcomes(run) == {
        "Allrecipes--0": "success",
        "Allrecipes--1": "not_judged",
        "Allrecipes--2": "not_judged",
    }


def test_online_mind2web_reads_our_export_and_agrees_reply_for_reply(tmp_path):
    script = script_of("FOCUSMEM_ONLINE_MIND2WEB", "src/run.py")
    replies = {f"{index:032x}": reply for index, reply in enumerate(MIND2WEB_REPLIES)}
    finished = [attempt(f"online-mind2web/{name}", 2 + index % 5) for index, name in enumerate(replies)]
    finished[3] = attempt(f"online-mind2web/{3:032x}", 55)  # more than the script shows
    finished[4] = attempt(f"online-mind2web/{4:032x}", 4, answer=None)
    run = write_run(tmp_path / "run", finished)
    export_run(run, "online-mind2web", tmp_path / "results")
    verdict_requests = {}

    def answer(asked):
        name, text = name_in(asked), text_in(asked)
        shades = [shade_of(url) for url in pictures_in(asked)]
        if "Action History:" in text:
            verdict_requests[asked["model"], name] = text, shades
            reply = replies[name]
        elif shades:
            reply = (
                LOOK_REPLIES[0]
                if name == f"{3:032x}"
                else LOOK_REPLIES[(shades[0] + int(name, 16)) % len(LOOK_REPLIES)]
            )
        else:
            reply = POINTS_REPLIES[int(name, 16) % len(POINTS_REPLIES)]
        return completion(reply, prompt_tokens=1, completion_tokens=1)

    with ChatServer(answer) as server:
        words = ["--mode", "WebJudge_Online_Mind2Web_eval", "--model", "official", "--api_key", "none"]
        words += ["--trajectories_dir", tmp_path / "results", "--output_path", tmp_path / "judged", "--num_worker", "1"]
        run_script(script, server, *words)
        judge_run(run, JudgeRequest(judges=("online-mind2web:official@ours",), changes={"url": server.url}))
    [file] = (tmp_path / "judged").iterdir()
    theirs = [json.loads(line) for line in file.read_text().splitlines()]
    labels = {one["task_id"]: "success" if one["predicted_label"] else "failure" for one in theirs}
    assert set(labels) == set(replies)
    assert labels == outcomes(run)
    assert all(verdict_requests["official", name][1] == verdict_requests["ours", name][1] for name in replies)
    assert len(verdict_requests["ours", f"{3:032x}"][1]) == 50
    for name in replies:
        their_parts = official_parts(verdict_requests["official", name][0])
        assert their_parts == our_parts(verdict_requests["ours", name][0]), name


# The run


def attempt(task_id, num_pages, answer="12 euros"):
    """An attempt whose pages are plain, each of another grey. Without an answer, the last page is the closing one."""
    pages = [page(number) for number in range(num_pages)]
    actions = [make_action("click", description=f"mug {n}", reasoning="It is [blue].") for n in range(num_pages - 1)]
    if answer is not None:
        actions.append(make_action("stop", answer=answer))
    task = Task(
        task_id=task_id,
        instruction=f"What is the price of mug {task_id.partition('/')[2]}?",
        start_url="https://shop.example/",
        site="shop.example",
        max_steps=60,
    )
    trajectory = Trajectory(
        trajectory_id=re.sub(r"[^A-Za-z0-9]", "-", task_id),
        task_id=task.task_id,
        instruction=task.instruction,
        start_url=task.start_url,
        site=task.site,
        steps=tuple(Step(screenshot=one.ref(), action=action) for one, action in zip(pages, actions, strict=False)),
        closing=Closing(screenshot=pages[-1].ref()),
        source="test",
    )
    recording = trajectory, {one.digest: one for one in pages}
    return make_finished(0, recording=recording, task=task, answer=answer)


def page(number):
    return Screenshot.from_image(Image.new("RGB", (32, 24), (4 * number + 2,) * 3))


def outcomes(run):
    return {one.episode.task.task_id.partition("/")[2]: one.outcome for one in RunFolder.open(run).episodes()}


# Both sides


def script_of(variable, path):
    if variable not in os.environ:
        pytest.skip(f"{variable} does not name a clone of the benchmark's repository")
    script = Path(os.environ[variable]).expanduser() / path
    assert script.is_file(), script
    return script


def run_script(script, server, *words):
    python = Path(os.environ.get("FOCUSMEM_OFFICIAL_PYTHON", sys.executable)).expanduser()
    environment = {"PATH": os.environ["PATH"], "OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "none"}
    done = subprocess.run(
        [python, script, *map(str, words)],
        cwd=script.parent.parent,
        env=environment | {"PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def text_in(asked):
    content = asked["messages"][-1]["content"]
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content if "text" in part)


def pictures_in(asked):
    content = asked["messages"][-1]["content"]
    return [part["image_url"]["url"] for part in content if "image_url" in part] if isinstance(content, list) else []


def name_in(asked):
    return re.search(r"price of mug (.+?)\?", text_in(asked))[1]


def shade_of(url):
    """The number of the page; JPEG keeps a plain grey to within one level."""
    image = Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2])))
    return image.convert("L").getpixel((16, 12)) // 4


def official_parts(text):
    """Key points, actions and reasons as the script words them."""
    found = re.fullmatch(
        r"User Task: .*?\n\nKey Points: (.*?)\n\nAction History:\n(.*?)(?:\n\nThe potentially important .*?:\n(.*))?",
        text,
        re.DOTALL,
    )
    return found[1].strip(), found[2], found[3]


def our_parts(text):
    fences = re.findall(r'<data id="[0-9a-f]+">\n(.*?)\n</data', text, re.DOTALL)
    points = re.search(r"Key Points: (.*?)\n\nAction History:", text, re.DOTALL)[1]
    return points.strip(), fences[0], fences[1] if len(fences) > 1 else None
