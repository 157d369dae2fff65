import json

import pytest

from evaluation.stored_runs import store_run
from focusmem.evaluation.metrics import figures, summarise
from focusmem.evaluation.run_store import RunStore
from reports.runs import make_episode, make_notes, make_offer


def test_failed_errored_and_blocked_are_counted_apart(tmp_path):
    store_run(tmp_path, ["success", "failure", "error", "blocked", "not_judged", None])
    found = summarise(RunStore(tmp_path))
    assert (found["num_tasks"], found["num_errors"], found["num_blocked"]) == (2, 1, 1)
    assert (found["num_not_judged"], found["num_missing"]) == (1, 1)
    assert found["success_rate"] == 0.5
    assert json.loads((tmp_path / "results.json").read_text()) == found


def test_the_figures_of_the_paper():
    _, (trajectory, _) = make_episode(1)
    offered = [make_offer(trajectory), make_offer(trajectory, rank=1, is_accepted=False)]
    notes = [
        make_notes(*offered, seconds={"reply": 2.0}, num_removed={"task": 1, "template": 5}),
        make_notes(offered[1], is_readable=False, seconds={}),
    ]
    one, _ = make_episode(1, "success", notes=tuple(notes), seconds=2.0)
    task = one.task.model_copy(update={"max_steps": 4})
    other, _ = make_episode(1, "failure", task=task, answer=None, notes=(make_notes(seconds={}),) * 4, seconds=6.0)
    found = figures([one, other], {"task-1": "price"})
    assert found["hit_max_rate"] == 0.5
    assert found["mean_steps"] == 3
    assert found["removed_per_step"] == {"task": pytest.approx(1 / 6), "template": pytest.approx(5 / 6)}
    assert (found["mean_task_s"], found["mean_step_s"]) == (4.0, pytest.approx(8 / 6))
    assert found["accepted_rate"] == pytest.approx(1 / 3)
    assert found["unreadable_rate"] == pytest.approx(1 / 6)
    assert found["by_kind"] == {"price": {"num_tasks": 2, "success_rate": 0.5}}


def test_an_answer_at_the_last_step_came_to_the_limit_all_the_same():
    one, _ = make_episode(1, "success", notes=(make_notes(),) * 2)
    for max_steps, rate in ((2, 1.0), (3, 0.0)):
        task = one.task.model_copy(update={"max_steps": max_steps})
        assert one.answer is not None
        assert figures([one.model_copy(update={"task": task})], {"task-1": None})["hit_max_rate"] == rate


def test_a_run_without_episodes_has_no_figures_but_counts(tmp_path):
    store_run(tmp_path, [None, None])
    found = summarise(RunStore(tmp_path))
    assert (found["num_tasks"], found["num_missing"]) == (0, 2)
    shares = [name for name in found if name.endswith(("_rate", "_interval")) or name.startswith("mean_")]
    assert len(shares) == 11
    assert all(found[name] is None for name in shares), "missing is None, never 0"


def test_episodes_without_a_step_have_rates_but_no_mean_step():
    one, _ = make_episode(1, "failure", answer=None, notes=(), seconds=0.0)
    found = figures([one], {"task-1": None})
    assert (found["success_rate"], found["mean_steps"], found["mean_step_s"]) == (0.0, 0.0, None)
