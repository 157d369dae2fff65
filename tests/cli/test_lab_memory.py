import json
import tomllib

import pytest
import torch
from typer.testing import CliRunner

from focusmem.bank import open_bank
from focusmem.cli.main import app
from focusmem.errors import ConfigError, StorageError
from focusmem.lab import shipped
from focusmem.lab.policy.policy import new_policy, train_tokenizer
from focusmem.lab.world.world import World
from small_lab import SMALL


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("policy") / "policy"
    new_policy(train_tokenizer(World(0), num_episodes=20), **SMALL).save(folder)
    return str(folder)


def run(*words):
    return CliRunner().invoke(app, ["lab", *words], catch_exceptions=True)


def test_an_embedder_is_trained_and_written(policy, tmp_path):
    words = ("--steps", "1", "--pairs", "2", "--workers", "0", "--tasks", "0", "--device", "cpu", "--json")
    result = run("embedder", "--policy", policy, "--out", str(tmp_path / "e"), *words)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout[result.stdout.index("{") :])["embedder"] == str(tmp_path / "e")
    assert (tmp_path / "e" / "embedder.safetensors").exists()


def test_without_a_gpu_the_way_out_is_told(policy, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    result = run("train", "full", "--policy", policy, "--out", str(tmp_path / "run"))
    assert isinstance(result.exception, ConfigError)
    assert "no such GPU here; use --device cpu" in str(result.exception)


def test_a_damaged_memory_is_named_before_a_bank_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr("focusmem.lab.memory.training.SplitBank", None)
    words = ("full", "--device", "cpu", "--start", str(tmp_path / "nowhere"), "--out", str(tmp_path / "run"))
    result = run("train", *words)
    assert isinstance(result.exception, StorageError)
    assert "holds no checkpoint" in str(result.exception)
    assert not (tmp_path / "run").exists()


def settings_of(*words):
    result = run("train", *words, "--dry-run")
    assert result.exit_code == 0, (result.output, result.exception)
    return tomllib.loads(result.stdout)


def test_options_of_a_training_are_settings():
    plain, small = settings_of("full"), settings_of("full", "--steps", "7", "--gate-steps", "5", "--workers", "0")
    assert plain["stream"]["course"]
    assert (small["loop_a"]["num_steps"], small["gate"]["num_steps"]) == (7, 5)
    assert [small[loop]["num_workers"] for loop in ("loop_a", "loop_b", "gate")] == [0, 0, 0]
    learning_on = settings_of("full", "--start", "memory", "--gate-steps", "0", "--drills", "2")
    assert learning_on["stream"]["course"] == []
    assert learning_on["stream"]["drills"]["num_ways"] == learning_on["stream"]["drills"]["num_numbers"] == 2
    assert "gate" in learning_on["unset"]
    offices = settings_of("full", "--suite", "lab-entries", "--drills", "3")
    assert offices["decisions"]["split"] == "mo"
    assert offices["stream"]["drills"]["entries"]["num"] == 3
    assert len(offices["later_course"]) == len(offices["stream"]["course"]) == 5
    narrow = settings_of("full", "--set", "variant.memory.compressor.num_tokens=1")
    assert narrow["variant"]["memory"]["compressor"]["num_tokens"] == 1


ALONE = ("--set", "variant.stage_b=null")


def test_a_memory_is_trained_and_its_run_file_repeats_it(policy, tmp_path):
    few = ("--set", "stream.num_decisions=1", "--set", "decisions.num_sites=3", "--set", "stream.course=[]", *ALONE)
    quick = ("--steps", "1", "--episodes", "1", "--drills", "0", "--workers", "0", "--device", "cpu")
    first = run("train", "action-only", "--policy", policy, *few, *quick, "--out", str(tmp_path / "a"))
    assert first.exit_code == 0, (first.output, first.exception)
    again = run("train", "--config", str(tmp_path / "a" / "run.json"), "--out", str(tmp_path / "b"))
    assert again.exit_code == 0, (again.output, again.exception)
    weights = [tmp_path / name / "stage-a" / "memory" / "memory.safetensors" for name in "ab"]
    assert weights[0].read_bytes() == weights[1].read_bytes()


def test_a_memory_without_a_gate_has_no_threshold_to_set(policy, tmp_path):
    words = ("--policy", policy, "--checkpoint", str(tmp_path), "--device", "cpu", "--set-threshold")
    result = run("gate", "content", *words)
    assert isinstance(result.exception, ConfigError)
    assert "has no gate" in str(result.exception)


def test_a_policy_is_examined(policy):
    result = run("examine", "--policy", policy, "--values", "1", "--records", "1", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout[result.stdout.index("{") :])
    assert found["values_read"]["num"] == 1


def test_a_bank_of_experts_is_made(toy_weights, tmp_path):
    own = ("--policy", str(toy_weights / "policy"), "--embedder", str(toy_weights / "embedder"))
    result = run("bank", "--out", str(tmp_path / "bank"), "--sites", "1", *own, "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout[result.stdout.index("{") :])
    assert told["num_trajectories"] == open_bank(tmp_path / "bank").stats().num_trajectories == 6
    assert told["num_bytes"] == sum(path.stat().st_size for path in (tmp_path / "bank").rglob("*") if path.is_file())


def test_a_bank_for_another_policy_needs_its_embedder(policy, tmp_path):
    result = run("bank", "--out", str(tmp_path / "bank"), "--policy", policy)
    assert isinstance(result.exception, ConfigError)
    assert "--embedder" in str(result.exception)


@pytest.mark.parametrize(
    "words",
    [
        ("examine",),
        ("embedder", "--out", "x"),
        ("bank", "--out", "x"),
        ("train", "full", "--out", "x"),
        ("gate", "full", "--checkpoint", "x"),
    ],
)
def test_without_a_shipped_policy_every_command_says_how_to_make_one(tmp_path, monkeypatch, words):
    monkeypatch.setattr(shipped, "SHIPPED", tmp_path)
    monkeypatch.chdir(tmp_path)
    result = run(*words)
    assert isinstance(result.exception, StorageError)
    assert "focusmem lab pretrain" in str(result.exception)
    assert list(tmp_path.iterdir()) == []
