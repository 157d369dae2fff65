"""A run that is cut off, at any moment and by any means, goes on as if nothing had been, and leaves nothing running."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from browser.fixtures import descendants, is_gone
from clocks import PATIENT_S
from evaluation.expert_run import expert_run

TIMES = ("judge_s", "mean_task_s", "mean_step_s", "step_parts_s", "mean_together")
ROOT = Path(__file__).parents[2]


def start(folder, *words):
    """The run as a process. It has a place of its own for temporary files, by which its offspring is known."""
    own = folder.with_name("temporary")
    own.mkdir(exist_ok=True)
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}", "TMPDIR": str(own)}
    script = Path(__file__).with_name("expert_run.py")
    command = [sys.executable, str(script), str(folder), *map(str, words)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def finish(folder, *words):
    out, _ = start(folder, *words).communicate(timeout=PATIENT_S)
    return table(json.loads(out))


def table(results):
    return {name: value for name, value in results.items() if name not in TIMES}


def num_done(folder):
    return len(list(folder.glob("episodes/*/*/episode.json")))


def trajectories(folder):
    """Without their ids, which differ from run to run."""
    return {
        path.parts[-4]: json.loads(path.read_bytes()) | {"trajectory_id": ""}
        for path in folder.glob("episodes/*/*/trajectory/trajectory.json")
    }


def offspring(folder):
    """Processes that mention the run's place for temporary files, in their words or in their surroundings."""
    mark, found = str(folder.with_name("temporary")).encode(), set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            told = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
        except OSError:  # it has just ended, or is not ours
            continue
        if mark in told:
            found.add(int(process.name))
    return found


def test_killed_at_random_and_gone_on_with_gives_the_same_table(tmp_path):
    rng = random.Random()  # any moment must do; what it was is told when it did not
    words, moments = (16, "raster", 3), []
    for num in (1, 6, 11):
        process = start(tmp_path / "cut", *words)
        while num_done(tmp_path / "cut") < num and process.poll() is None:
            time.sleep(0.001)
        moments.append(rng.uniform(0, 0.1))
        time.sleep(moments[-1])
        process.kill()
        process.communicate()
    cut_at = num_done(tmp_path / "cut")
    resumed = finish(tmp_path / "cut", *words)
    assert resumed == table(expert_run(tmp_path / "whole", 16, "raster", 3)), (moments, cut_at)
    assert trajectories(tmp_path / "cut") == trajectories(tmp_path / "whole")
    assert len(trajectories(tmp_path / "whole")) == 16
    assert {path.name for path in (tmp_path / "cut").rglob(".*")} == {".lock"}, "what was half written is cleared away"


@pytest.mark.browser
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_cut_off_in_chromium_nothing_is_left_running_and_it_goes_on(tmp_path, how):
    words = (3, "chromium", 2)
    process = start(tmp_path / "cut", *words, "--stuck")
    while num_done(tmp_path / "cut") < 1:
        assert process.poll() is None
        time.sleep(0.02)
    left = offspring(tmp_path / "cut") - {process.pid}
    assert len(left) > 3, "Chromium and its driver"
    process.send_signal(how)
    if how == signal.SIGINT:
        process.send_signal(signal.SIGUSR1)  # the mind answers, as a model would after a while
    process.communicate(timeout=PATIENT_S)
    assert process.returncode != 0
    assert all(is_gone(pid) for pid in left)
    assert 1 <= num_done(tmp_path / "cut") <= 2
    assert finish(tmp_path / "cut", *words) == table(expert_run(tmp_path / "whole", 3, "raster", 2))
    assert offspring(tmp_path / "cut") == set()


@pytest.mark.browser
@pytest.mark.parametrize(
    ("num_tasks", "num_parallel"), [(12, 12), pytest.param(50, 10, marks=pytest.mark.slow)], ids=["some", "many"]
)
def test_many_browsers_side_by_side_leave_no_process(tmp_path, num_tasks, num_parallel):
    before = descendants()
    found = expert_run(tmp_path / "run", num_tasks, "chromium", num_parallel)
    assert all(is_gone(pid) for pid in descendants() - before)
    assert (found["num_tasks"], found["num_errors"]) == (num_tasks, 0)
    assert table(found) == table(expert_run(tmp_path / "raster", num_tasks, "raster", num_parallel))
