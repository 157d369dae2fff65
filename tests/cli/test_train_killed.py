"""`focusmem train` as a process that SIGKILL ends in the middle of a stage."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli.test_train import folder  # noqa: F401
from focusmem.training.metrics import read_metrics

ROOT = Path(__file__).parents[2]


def start(data, out):
    quick = ("--set", "data.min_steps=1", "--set", "data.validation_share=0", "--epochs", 3, "--batch", 2)
    saves = [("--set", f"loop_{stage}.{name}=2") for stage in "ab" for name in ("save_every_steps", "log_every_steps")]
    words = ("--bank", data / "bank", "--policy", "toy", "--embedder", "toy", *quick, *sum(saves, ()))
    words += ("--set", "variant.stage_a.content_weight=0", "--workers", 0, "--device", "cpu", "--out", out)
    return subprocess.Popen(
        [sys.executable, "-m", "focusmem.cli.main", "train", "full", *map(str, (data / "own", *words))],
        env=os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"},  # sums over threads differ
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(data, out):
    process = start(data, out)
    said = process.communicate()[1]
    assert process.returncode == 0, said


def saved_steps(stage):
    return {int(path.name.removeprefix("step-")) for path in stage.glob("states/step-*")}


def kill_in(stage, data, out):
    """Kill the training after it has saved a step of this stage. One that was faster than this test starts again."""
    before = out.with_name(f"before-{stage}")
    out.mkdir(exist_ok=True)
    shutil.copytree(out, before)
    while True:
        process = start(data, out)
        while not saved_steps(out / stage) - {0} and process.poll() is None:
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        said = process.communicate()[1]
        assert process.returncode in (0, -signal.SIGKILL), said
        if not (out / stage / "memory").exists():
            return max(saved_steps(out / stage))
        shutil.rmtree(out)
        shutil.copytree(before, out)


@pytest.mark.slow
def test_killed_in_the_middle_of_each_stage_the_same_command_ends_as_if_never_stopped(folder, tmp_path):  # noqa: F811
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    finish(folder, whole)
    assert 0 < kill_in("stage-a", folder, cut) < 9
    assert not (cut / "stage-b").exists()
    assert 0 < kill_in("stage-b", folder, cut) < 9
    assert (cut / "stage-a" / "memory").exists()
    finish(folder, cut)
    for stage in ("stage-a", "stage-b"):
        one, other = (run / stage / "memory" / "memory.safetensors" for run in (whole, cut))
        assert one.read_bytes() == other.read_bytes(), "bit for bit"
        lines = [read_metrics(run / stage / "metrics.jsonl") for run in (whole, cut)]
        assert [line["loss"] for line in lines[0]] == [line["loss"] for line in lines[1]]
    cards = [(run / "stage-b" / "memory" / "checkpoint.json").read_text() for run in (whole, cut)]
    assert cards[0] == cards[1].replace(str(cut), str(whole))
    assert list(cut.rglob(".*.partial")) == []
