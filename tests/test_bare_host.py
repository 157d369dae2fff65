"""A GPU host has torch and transformers, and few packages besides. Runs, training and timing work there."""

import json
import os
import subprocess
import sys

import pytest

from banks import make_many
from focusmem.bank.numpy_bank import write_numpy_bank
from focusmem.cli.bank import load_embedder
from focusmem.schemas import save_trajectory

ABSENT = ("lancedb", "pyarrow", "playwright", "openai", "ray", "accelerate", "peft", "fastapi")


@pytest.fixture
def bare(tmp_path):
    """Runs focusmem in a process, and in processes that it starts, which cannot import what such a host lacks."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(f"import sys\nsys.modules.update(dict.fromkeys({ABSENT}))\n")
    environment = os.environ | {"PYTHONPATH": str(hidden), "OMP_NUM_THREADS": "1"}

    def run(code: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def commands(*lines: list[object]) -> str:
    """Commands one after the other in one process, since every start loads torch."""
    words = [list(map(str, line)) for line in lines]
    return f"from focusmem.cli.main import app\nfor words in {words}: app(words, standalone_mode=False)"


def test_what_such_a_host_lacks_cannot_be_imported(bare):
    code = f"import importlib.util as u; print(any(u.find_spec(name) for name in {ABSENT}))"
    assert bare(code) == "False\n"


def test_a_hosted_model_names_the_package_that_it_needs(bare):
    code = """
from focusmem.clients.openai_chat import ChatConfig, OpenAIChat
from focusmem.errors import MissingPackageError
try:
    OpenAIChat(ChatConfig(url="http://localhost:8000/v1", model="eyes"))
except MissingPackageError as error:
    print(error)
"""
    assert "pip install openai" in bare(code)


def test_runs_without_and_with_memory(bare, toy_weights, tmp_path):
    parts = ["--policy", toy_weights / "policy", "--set", "policy.generation.max_new_tokens=2"]
    memory = ["--checkpoint", toy_weights / "memory" / "full", "--embedder", toy_weights / "embedder"]
    run = ["run", "lab", "--browser", "raster", "--tasks", 1, *parts]
    bare(
        commands(
            [*run, "--memory", "none", "--out", "none"],
            [*run, "--memory", "full", *memory, "--bank", toy_weights / "bank", "--out", "full"],
        )
    )
    for name in ("none", "full"):
        results = json.loads((tmp_path / name / "results.json").read_text())
        assert (results["num_tasks"], results["num_errors"]) == (1, 0)
        assert (results["mean_memory_tokens"] > 0) is (name == "full")
        packages = json.loads((tmp_path / name / "environment.json").read_text())["packages"]
        assert packages["torch"] != "not installed"
    assert (tmp_path / "full" / "page.html").is_file()


def test_trains_and_times(bare, toy_weights, tmp_path):
    own = tmp_path / "own"
    for item in make_many(2, 4, num_steps=3):
        save_trajectory(own / item.trajectory.trajectory_id, item.trajectory, item.screenshots)
    write_numpy_bank(tmp_path / "bank", make_many(4, num_steps=3), load_embedder("toy", None, "cpu"))
    toys = ["--bank", tmp_path / "bank", "--embedder", "toy", "--policy", "toy"]
    steps = ["--steps", 1, "--batch", 2, "--workers", 0, "--set", "data.min_steps=1"]
    sizes = ["--width", 32, "--episodic-tokens", 32, "--working-tokens", 16, "--repeats", 1]
    bare(
        commands(
            ["bench", "readout", "--device", "cpu", "--out", "bench.json", *sizes],
            ["train", "action-only", own, "--out", "trained", "--device", "cpu", *toys, *steps],
        )
    )
    assert json.loads((tmp_path / "bench.json").read_text())
    assert (tmp_path / "trained" / "stage-b" / "memory" / "checkpoint.json").is_file()


@pytest.mark.slow
def test_trains_in_the_laboratory(bare, toy_weights, tmp_path):
    steps = ["--steps", 1, "--more-steps", 1, "--gate-steps", 1, "--episodes", 1, "--drills", 0, "--workers", 0]
    words = ["--policy", toy_weights / "policy", "--device", "cpu", "--set", "stream.course=[]"]
    bare(commands(["lab", "train", "full", "--out", "lab", *words, *steps]))
    assert (tmp_path / "lab" / "gate" / "memory" / "checkpoint.json").is_file()
