"""An evaluation shared out over processes, with untrained toys: garbage replies, but the same garbage each time."""

import json

import pytest

from focusmem.errors import ConfigError, FocusmemError
from focusmem.lab.evaluate import EvaluateConfig
from focusmem.recipes.lab_evaluation import EvaluationPlan, evaluate
from toy_weights import make_toy_weights


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    folder = tmp_path_factory.mktemp("weights")
    make_toy_weights(folder)
    return folder


def plan(weights, folder, **changes) -> EvaluationPlan:
    config = EvaluateConfig(**{"num_tasks": 3, "batch_size": 2, "max_new_tokens": 4, **changes})
    return EvaluationPlan(
        config=config,
        folder=folder,
        policy=weights / "policy",
        checkpoint=weights / "memory" / "full",
        embedder=weights / "embedder",
    )


def table(results):
    return {name: value for name, value in results.items() if not name.endswith("_s")}


def test_two_processes_give_the_table_of_one(weights, tmp_path):
    alone = evaluate(plan(weights, tmp_path / "alone"))
    shared = evaluate(plan(weights, tmp_path / "shared"), num_processes=2)
    assert table(shared) == table(alone)
    assert shared["num_tasks"] == 3
    run = json.loads((tmp_path / "shared" / "run.json").read_text())
    assert run["status"] == "finished"


@pytest.mark.slow  # the whole evaluation bank is embedded, twice
def test_two_processes_remember_what_one_does(weights, tmp_path):
    latent = {"memory": "latent", "name": "full"}
    alone = evaluate(plan(weights, tmp_path / "alone", **latent))
    shared = evaluate(plan(weights, tmp_path / "shared", **latent), num_processes=2)
    assert table(shared) == table(alone)
    names = [{path.name for path in (tmp_path / run / "recalled").iterdir()} for run in ("alone", "shared")]
    assert names[0] == names[1] != set()


def test_a_process_that_fails_is_told_and_the_others_work_counts(weights, tmp_path):
    folder = tmp_path / "run"
    evaluate(plan(weights, folder))
    [first, *_] = sorted((folder / "episodes").iterdir())
    (first / "episode.json").unlink()
    (first / "trajectory" / "trajectory.json").unlink()
    (first / "trajectory" / "mine.txt").write_text("not to be overwritten")
    with pytest.raises(FocusmemError, match=r"1 of 2 processes stopped early"):
        evaluate(plan(weights, folder), num_processes=2)
    run = json.loads((folder / "run.json").read_text())
    assert run["status"] == "failed"


def test_no_process_at_all_is_refused(weights, tmp_path):
    with pytest.raises(ConfigError, match="num_processes is 0"):
        evaluate(plan(weights, tmp_path), num_processes=0)
