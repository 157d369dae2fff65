import json
import sys
from functools import partial

import pytest
import torch
from typer.testing import CliRunner

from focusmem.bank.store import Bank
from focusmem.cli.main import app
from focusmem.errors import ConfigError, StorageError
from focusmem.evaluation.metrics import figures
from focusmem.lab import evaluate as lab_evaluate
from focusmem.lab import shipped
from focusmem.lab.policy.policy import new_policy, train_tokenizer
from focusmem.lab.world.world import World
from focusmem.recipes import lab_evaluation


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("policy") / "policy"
    text = {"num_hidden_layers": 1, "intermediate_size": 64}
    vision = {"depth": 3, "intermediate_size": 32, "deepstack_visual_indexes": [0, 1]}
    new_policy(train_tokenizer(World(0), num_episodes=20), text_config=text, vision_config=vision).save(folder)
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


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--memory", "full"), "needs a checkpoint: what `focusmem lab train full --out RUN` leaves"),
        (("--memory", "retrieved"), "embedder"),
        (("--memory", "dreams"), "dreams"),
        (("--memory", "latent"), "no memory 'latent'; choose one of none, notes, replay, retrieved, or a trained one"),
        (("--memory", "fulll"), "action-only, semantic, functional, content, readout, full"),
        (("--memory", "none", "--checkpoint", "x"), "checkpoint is x"),
    ],
)
def test_a_memory_that_cannot_be_is_named(policy, tmp_path, words, message):
    result = run("evaluate", "--policy", policy, "--out", str(tmp_path / "run"), *words)
    assert isinstance(result.exception, ConfigError)
    assert message in str(result.exception)


def test_a_mistyped_memory_is_named_before_anything_is_loaded(tmp_path):
    for words in (("--memory", "fulll"), ("--memory", "notes", "--checkpoint", "x")):
        result = run("evaluate", "--policy", str(tmp_path / "nowhere"), *words)
        assert isinstance(result.exception, ConfigError)


def test_only_a_run_that_is_there_is_resumed(tmp_path):
    result = run("evaluate", "--resume", "--out", str(tmp_path / "run"))
    assert isinstance(result.exception, ConfigError)
    assert "no run in" in str(result.exception)


@pytest.mark.parametrize("verb", ["evaluate", "train"])
def test_a_damaged_memory_is_named_before_a_bank_is_made(tmp_path, monkeypatch, verb):
    monkeypatch.setattr("focusmem.recipes.lab_evaluation.LabRecall.build", None)
    monkeypatch.setattr("focusmem.lab.memory.training.SplitBank", None)
    words = {"evaluate": ("--memory", "full", "--checkpoint"), "train": ("full", "--device", "cpu", "--start")}
    result = run(verb, *words[verb], str(tmp_path / "nowhere"), "--out", str(tmp_path / "run"))
    assert isinstance(result.exception, StorageError)
    assert "holds no checkpoint" in str(result.exception)


def test_a_memory_without_a_gate_has_no_threshold_to_set(policy, tmp_path):
    words = ("--policy", policy, "--checkpoint", str(tmp_path), "--device", "cpu", "--set-threshold")
    result = run("gate", "content", *words)
    assert isinstance(result.exception, ConfigError)
    assert "has no gate" in str(result.exception)


def test_a_run_in_which_nothing_was_judged_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(lab_evaluation, "evaluate", lambda plan, num_processes: figures([], {"one": None}))
    result = run("evaluate", "--out", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert "No task was judged" in result.output
    assert "0 episodes ended in an error" in result.output


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
    assert told["num_trajectories"] == Bank.open(tmp_path / "bank").stats()["num_trajectories"] == 6
    assert told["num_bytes"] == sum(path.stat().st_size for path in (tmp_path / "bank").rglob("*") if path.is_file())


def test_a_bank_for_another_policy_needs_its_embedder(policy, tmp_path):
    result = run("bank", "--out", str(tmp_path / "bank"), "--policy", policy)
    assert isinstance(result.exception, ConfigError)
    assert "--embedder" in str(result.exception)


def test_what_ships_is_used_unless_told_otherwise(toy_weights, tmp_path, monkeypatch):
    monkeypatch.setattr(shipped, "SHIPPED", toy_weights)
    monkeypatch.setattr(lab_evaluate, "EvaluateConfig", partial(lab_evaluate.EvaluateConfig, max_new_tokens=4))
    few = ("--bank-sites", "1", "--tasks", "1", "--seeds", "2")  # the whole takes too long here
    words = ("evaluate", "--memory", "full", *few, "--out", str(tmp_path), "--json")
    monkeypatch.setattr(sys, "argv", ["/usr/bin/focusmem", "lab", *words])
    result = run(*words)
    assert result.exit_code == 0, result.output
    assert json.loads((tmp_path / "run.json").read_text())["command"] == ["focusmem", "lab", *words]
    found = json.loads(result.stdout[result.stdout.index("{") :])
    assert (found["memory"], found["num_tasks"]) == ("full", 2)
    assert found["mean_memory_tokens"] > 0
    config = json.loads((tmp_path / "run.json").read_text())["config"]
    assert (config["sites"], config["bank"], config["num_seeds"]) == (["e-0"], "the first 1 sites", 2)


@pytest.mark.parametrize(
    "words",
    [
        ("evaluate",),
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
