"""Two processes, as torchrun starts them, equal one; so do two passes of one process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from clocks import PATIENT_S
from focusmem.model.backbone import Backbone
from focusmem.model.checkpoint import Checkpoint
from focusmem.training.metrics import read_metrics
from focusmem.training.processes import Team, join_team, own_device
from training.train_script import train_both

TESTS = Path(__file__).parents[1]
LAUNCHERS = {
    "torchrun": ["torch.distributed.run", "--standalone", "--nproc-per-node", "2"],
    "accelerate": ["accelerate.commands.launch", "--cpu", "--num_processes", "2", "--num_machines", "1"],
}


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    train_both(folder, opens_gate=True)
    return folder


def check_equal(one: Path, two: Path) -> None:
    for stage in ("a", "b"):
        first, second = (
            Checkpoint.open(folder / stage / "memory").build(Backbone.toy(num_layers=2)).trained_state()
            for folder in (one, two)
        )
        for name, tensor in first.items():
            # Adam turns the sign of a vanishing gradient into a whole step, so a few numbers may stray a little.
            torch.testing.assert_close(second[name], tensor, rtol=1e-3, atol=3e-4, msg=lambda m, n=name: f"{n}: {m}")
        lines = [read_metrics(folder / stage / "metrics.jsonl") for folder in (one, two)]
        for before, after in zip(*lines, strict=True):
            assert after["loss"] == pytest.approx(before["loss"], rel=1e-4)
            assert after["gradient_norm"] == pytest.approx(before["gradient_norm"], rel=1e-3)
            assert after["passage"] == before["passage"]
            if stage == "b":
                for name in (
                    "query_change_rms",
                    "base_query_rms",
                    "own_nats",
                    "shuffled_nats",
                    "fixed_nats",
                    "num_decisions",
                ):
                    own, others = before["vital_signs"][name], after["vital_signs"][name]
                    assert others == pytest.approx(own, rel=1e-3, abs=1e-5), name


def run_two(launcher: str, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(TESTS.parent / "src"), str(TESTS)]),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", *LAUNCHERS[launcher], str(TESTS / "training" / "train_script.py"), str(folder)]
    return subprocess.run(
        [*command, *words], env=environment, capture_output=True, text=True, timeout=PATIENT_S, check=False
    )


@pytest.mark.parametrize("launcher", ["torchrun", pytest.param("accelerate", marks=pytest.mark.slow)])
def test_two_processes_equal_one(alone, tmp_path, launcher):
    done = run_two(launcher, tmp_path, "--opens-gate")
    assert done.returncode == 0, done.stderr[-3000:]
    check_equal(alone, tmp_path)


@pytest.mark.parametrize(("item", "is_taught"), [pytest.param(0, True, marks=pytest.mark.slow), (2, True), (3, False)])
def test_one_process_with_lessons_is_enough(tmp_path, item, is_taught):
    """The first item is the first process's, the third one the second's; the fourth has no lesson."""
    done = run_two("torchrun", tmp_path, "--num-steps", "2", "--lesson-of", str(item))
    assert (tmp_path / "b" / "memory").exists() == is_taught, done.stderr[-3000:]
    if not is_taught:
        assert done.stderr.count("RecordError: Up to step 1, the semantic loss and the functional loss") == 2
        assert not (tmp_path / "a" / "memory").exists()


def test_two_passes_equal_one(alone, tmp_path):
    train_both(tmp_path, opens_gate=True, num_passes=2)
    check_equal(alone, tmp_path)


def test_one_process_is_a_team_of_one(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    team = join_team(torch.device("cpu"))
    assert team == Team(0, 1)
    assert team.is_first
    assert team.total(torch.tensor([3.0])).item() == 3.0
    team.wait()
    assert own_device().type in ("cpu", "cuda")
