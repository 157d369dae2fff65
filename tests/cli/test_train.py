import json
import re

import pytest
from typer.testing import CliRunner

from banks import make_stored
from focusmem.cli.main import app
from focusmem.errors import UserError
from focusmem.model.checkpoint import Checkpoint
from focusmem.schemas import save_trajectory


def run(*words):
    return CliRunner().invoke(app, [*map(str, words)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("train")
    for number in range(6):
        item = make_stored(number, num_steps=3, site=f"site-{number % 2}")
        where = folder / ("seen" if number < 4 else "own") / item.trajectory.trajectory_id
        save_trajectory(where, item.trajectory, item.screenshots)
    added = run("bank", "add", folder / "bank", folder / "seen", "--embedder", "toy")
    assert added.exit_code == 0, added.output
    return folder


def train(folder, *words, variant="fixed-4"):
    fixed = ("--bank", folder / "bank", "--policy", "toy", "--embedder", "toy", "--set", "data.validation_share=0")
    quick = ("--set", "data.min_steps=1", "--steps", 1, "--batch", 2, "--workers", 0, "--device", "cpu")
    return run("train", variant, folder / "own", *fixed, *quick, *words)


ACTIONS = ("--set", "variant.stage_a.content_weight=0", "--set", "variant.stage_b=null")


def test_memory_is_trained_from_folders_in_one_line(folder, tmp_path):
    result = train(folder, *ACTIONS, "--out", tmp_path / "run", "--json")
    assert result.exit_code == 0, (result.output, result.exception)
    told = json.loads(result.stdout)
    assert (told["num_trajectories"], told["num_decisions"], told["unusable"]) == (2, 6, {})
    assert "lessons" not in told, "actions alone need none"
    card = Checkpoint.open(tmp_path / "run" / "stage-a" / "memory")
    assert told["memory"] == str(card.folder)
    assert card.config.compressor.num_tokens == 4
    assert (card.notes["variant"], card.notes["num_steps"]) == ("fixed-4", 1)
    again = train(folder, *ACTIONS, "--out", tmp_path / "run")
    assert "2 trajectories to learn from." in again.output
    assert str(card.folder) in again.output


def test_a_training_is_repeated_from_its_run_file(folder, tmp_path):
    """And from what --dry-run prints; both hold what every option has set."""
    first = train(folder, *ACTIONS, "--seed", 3, "--out", tmp_path / "a")
    assert first.exit_code == 0, (first.output, first.exception)
    printed = train(folder, *ACTIONS, "--seed", 3, "--dry-run")
    (tmp_path / "same.toml").write_text(printed.stdout)
    for name, file in (("b", tmp_path / "a" / "run.json"), ("c", tmp_path / "same.toml")):
        again = run("train", "--config", file, "--out", tmp_path / name)
        assert again.exit_code == 0, (again.output, again.exception)
        cards = [Checkpoint.open(tmp_path / one / "stage-a" / "memory") for one in ("a", name)]
        assert cards[0].weights_sha256 == cards[1].weights_sha256
        records = [json.loads((tmp_path / one / "run.json").read_text()) for one in ("a", name)]
        assert records[0]["config"] == records[1]["config"]
        assert [record["status"] for record in records] == ["finished", "finished"]
    settings = records[0]["config"]["settings"]
    assert {settings[room]["seed"] for room in ("data", "batching", "loop_a", "loop_b")} == {3}
    assert json.loads((tmp_path / "a" / "environment.json").read_text())["seeds"] == {"training": 3}


def test_only_preparing_stops_there(folder, tmp_path):
    result = train(folder, "--out", tmp_path / "run", "--only-prepare", "--json", variant="probe-semantic")
    told = json.loads(result.stdout)
    assert told["lessons"]["num_made"] > 0
    assert set(told["lessons"]["num_discarded"]) <= {"episodic_summary", "episodic_anchor"}
    assert sum(told["lessons"]["discarded_because"].values()) == sum(told["lessons"]["num_discarded"].values()) > 0
    again = train(folder, "--out", tmp_path / "run", "--only-prepare", variant="probe-semantic")
    reason, num = max(told["lessons"]["discarded_because"].items(), key=lambda pair: pair[1])
    assert f"{reason} {num}" in again.stdout
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["prepared"]


def test_a_policy_that_answers_no_question_is_refused_before_training(folder, tmp_path):
    """A toy's answers are no JSON."""
    for words in (("--only-prepare",), ()):
        result = train(folder, "--out", tmp_path / "run", *words, variant="content")
        assert isinstance(result.exception, UserError), result.output
        said = str(result.exception)
        assert re.search(r"none of them can be learnt \(.*\d\).*--set variant\.stage_a\.functional_weight=0", said)
        assert "Teacher" not in said
        assert "answers could not be used" in result.output
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["prepared"]


def test_several_processes_want_it_prepared(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    result = train(folder, "--out", tmp_path / "run")
    assert isinstance(result.exception, UserError)
    assert "prepare it first, in one process" in str(result.exception)


def test_evaluation_tasks_are_not_given_away(folder, tmp_path):
    record = make_stored(4).trajectory
    task = {
        "task_id": "x",
        "instruction": record.instruction,
        "start_url": "https://shop.example/",
        "site": "shop.example",
        "annotations": record.annotations.model_dump(exclude_none=True),
    }
    (tmp_path / "tasks.jsonl").write_text(json.dumps(task) + "\n\n")
    words = ("--only-prepare", "--json", "--evaluation", tmp_path / "tasks.jsonl")
    told = json.loads(train(folder, "--out", tmp_path / "run", *words).stdout)
    assert told["num_trajectories"] == 1
    assert told["removed_by"] == {"instance": 1, "template": 1}


def test_mistakes_are_told_in_a_sentence(folder, tmp_path):
    (tmp_path / "tasks.jsonl").write_text('{"task_id": "a"}\n')
    for words, variant, expected in (
        ((), "fullest", "There is no memory variant 'fullest'"),
        (("--set", "variant.memory.compressor.num_tokens=3"), "action-only", "num_tokens is 3; choose one of"),
        (
            ("--set", "data.min_steps=9"),
            "action-only",
            "nothing to learn from: 0 trajectories to learn from; left out: fewer than 9 steps 2.",
        ),
        (("--evaluation", tmp_path / "tasks.jsonl"), "action-only", "tasks.jsonl, line 1"),
        (("--set", "thresholds=[]"), "full", "thresholds is []; it must have at least 1"),
        (("--set", "data.tries=3"), "action-only", "There is no setting 'data.tries'"),
    ):
        result = train(folder, *words, "--out", tmp_path / variant / str(len(words)), variant=variant)
        assert isinstance(result.exception, UserError), (expected, result.output)
        assert expected in str(result.exception)


def test_what_is_missing_is_told(folder, tmp_path):
    (tmp_path / "full.toml").write_text(run("train", "full", "--dry-run").stdout)
    for words, expected in (
        ((), "variant is missing"),
        (("full",), "give it with --out"),
        (("readout", "--config", tmp_path / "full.toml"), "settings of the variant 'full'; leave out 'readout'"),
        (
            ("full", folder / "own", "--policy", "toy", "--device", "cpu", "--out", tmp_path / "run"),
            "give one with --bank",
        ),
    ):
        result = run("train", *words)
        assert isinstance(result.exception, UserError), (expected, result.output)
        assert expected in str(result.exception)
