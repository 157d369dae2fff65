"""An evaluation shared out over processes, with untrained toys: garbage replies, but the same garbage each time."""

import json
from dataclasses import replace

import pytest

from evaluation.stored_runs import store_run
from focusmem.errors import ConfigError, FocusmemError
from focusmem.evaluation.run_store import RunStore
from focusmem.lab.evaluate import EvaluateConfig
from focusmem.recipes import lab_evaluation
from focusmem.recipes.lab_evaluation import BankChoice, EvaluationPlan, evaluate, memory_kind
from reports.runs import make_task
from toy_weights import make_toy_weights


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    folder = tmp_path_factory.mktemp("weights")
    make_toy_weights(folder)
    return folder


def plan(weights, folder, **changes) -> EvaluationPlan:
    config = EvaluateConfig(**{"num_tasks": 3, "batch_size": 2, "max_new_tokens": 4, **changes})
    checkpoint = weights / "memory" / "full" if config.memory == "latent" else None
    return EvaluationPlan(
        config=config,
        folder=folder,
        policy=weights / "policy",
        checkpoint=checkpoint,
        embedder=weights / "embedder",
        command=("focusmem", "a", "test"),
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
    assert run["command"] == ["focusmem", "a", "test"]


def test_a_bank_on_disk_serves_as_the_same_sites_in_memory(weights, tmp_path):
    banks = [BankChoice(folder=weights / "bank"), BankChoice(num_sites=2)]
    assert banks[0].sites(0) == banks[1].sites(0) == ("e-0", "e-1")
    offered = []
    for bank in banks:
        name = "disk" if bank.folder else "memory"
        changes = {"memory": "latent", "name": "full", "num_tasks": 1, "sites": bank.sites(0), "bank": bank.words}
        evaluate(replace(plan(weights, tmp_path / name, **changes), bank=bank))
        store = RunStore(tmp_path / name)
        [episode] = store.episodes(list(store.kind_of()))
        offered.append([[(item.trajectory_id, item.is_accepted) for item in note.offered] for note in episode.notes])
    assert offered[0] == offered[1]
    assert len(offered[0]) == 15
    assert all(offered[0])


def test_tasks_of_several_seeds_are_those_of_each(weights, tmp_path):
    def tasks(**changes):
        return [one.task.task_id for one in plan(weights, tmp_path, num_tasks=2, **changes).build().tasks()]

    assert tasks(seed=4, num_seeds=3) == [*tasks(seed=4), *tasks(seed=5), *tasks(seed=6)]


def test_one_bank_at_a_time(tmp_path):
    with pytest.raises(ConfigError, match="choose one"):
        BankChoice(folder=tmp_path, num_sites=3)
    with pytest.raises(ConfigError, match="at least one"):
        BankChoice(num_sites=0)


@pytest.mark.slow  # the whole evaluation bank is embedded, twice
def test_two_processes_remember_what_one_does(weights, tmp_path):
    latent = {"memory": "latent", "name": "full"}
    alone = evaluate(plan(weights, tmp_path / "alone", **latent))
    shared = evaluate(plan(weights, tmp_path / "shared", **latent), num_processes=2)
    assert table(shared) == table(alone)
    names = [{path.name for path in (tmp_path / run / "recalled").iterdir()} for run in ("alone", "shared")]
    assert names[0] == names[1] != set()


def test_a_process_that_fails_is_told_and_the_others_work_counts(weights, tmp_path, capfd):
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
    told = capfd.readouterr().err
    assert "\nfocusmem: " in told
    assert "Traceback" not in told, "what the user can mend is a line"


def test_the_line_counts_episodes_that_failed(tmp_path, monkeypatch, capsys):
    """They are seen as they appear on disk, also those that appear last."""
    looks = iter([[], ["success", "error"]])
    monkeypatch.setattr(lab_evaluation, "wait", lambda *words, **more: store_run(tmp_path, next(looks)))

    class Process:
        sentinel = None
        left = 2

        def is_alive(self):
            self.left -= 0.5
            return self.left > 0

    lab_evaluation._watch(RunStore(tmp_path), [make_task(0), make_task(1)], [Process()], note="full")
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("evaluate 2/2  full")
    assert last.endswith("1 failed")


def test_a_checkpoint_that_nothing_would_read_is_refused(weights, tmp_path):
    with pytest.raises(ConfigError, match="memory 'replay' is not a trained one"):
        EvaluationPlan(config=EvaluateConfig(memory="replay"), folder=tmp_path, checkpoint=weights / "memory" / "full")


def test_a_memory_is_known_by_its_name():
    assert [memory_kind(name) for name in ("none", "retrieved", "full")] == ["none", "retrieved", "latent"]
    for name in ("fulll", "latent"):
        with pytest.raises(ConfigError, match=rf"no memory '{name}'; .*none, notes, replay, retrieved, or .*, full,"):
            memory_kind(name)


def test_no_process_at_all_is_refused(weights, tmp_path):
    with pytest.raises(ConfigError, match="num_processes is 0"):
        evaluate(plan(weights, tmp_path), num_processes=0)
