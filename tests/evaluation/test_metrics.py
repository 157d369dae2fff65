import json

import pytest

from focusmem.evaluation.metrics import figures, summarise
from focusmem.intervals import grouped_interval, wilson_interval
from focusmem.schemas import Conditions, Manifest, RunFolder, StoredEpisode
from stored_runs import make_finished, make_notes, make_offer, make_task, store_outcomes

W, L, E, B, N = "success", "failure", "error", "blocked", "not_judged"


def summary(tmp_path, outcomes, **options):
    return summarise(RunFolder.open(store_outcomes(tmp_path / "run", outcomes, **options)))


def of(*finished, kinds=None):
    """The figures of these attempts, which never were on disk."""
    tasks = list({one.episode.task.task_id: one.episode.task for one in finished}.values())
    manifest = Manifest.of("shop", tasks, kinds or {})
    return figures(manifest, [StoredEpisode(one.episode, one.verdict, folder=None) for one in finished])


def test_every_attempt_is_counted_once_and_only_a_win_counts_as_won(tmp_path):
    found = summary(tmp_path, [W, L, E, B, N, None])
    names = ("num_won", "num_judged", "num_errors", "num_blocked", "num_not_judged", "num_missing")
    assert [found[name] for name in names] == [1, 2, 1, 1, 1, 1]
    assert (found["num_tasks"], found["num_attempts"]) == (6, 1)
    assert (found["success_rate"], found["success_interval"]) == (1 / 6, list(wilson_interval(1, 6)))
    assert (found["judged_success_rate"], found["judged_success_interval"]) == (0.5, list(wilson_interval(1, 2)))
    assert json.loads((tmp_path / "run" / "results.json").read_text()) == found


def test_several_attempts_at_a_task_are_one_group_of_the_interval(tmp_path):
    found = summary(tmp_path, [[W, W, L], [L, E, None], [W, W, W]])
    assert (found["num_tasks"], found["num_attempts"], found["num_missing"]) == (3, 3, 1)
    assert found["success_rate"] == 5 / 9
    planned = [[True, True, False], [False] * 3, [True] * 3]
    assert found["success_interval"] == pytest.approx(grouped_interval(planned))
    assert found["judged_success_rate"] == 5 / 7
    assert found["judged_success_interval"] == pytest.approx(
        grouped_interval([[True, True, False], [False], [True] * 3])
    )


def test_without_a_judge_there_is_no_rate(tmp_path):
    found = summary(tmp_path, [N, N, None])
    assert (found["num_not_judged"], found["success_rate"], found["success_interval"]) == (2, None, None)
    assert found["mean_steps"] == 3, "what happened is known all the same"


def test_the_rules_alone_cannot_rate_a_run_whose_answers_nobody_judged():
    by_rule = make_finished(1, L, answer=None, verdict={"judge": "rules", "score": 0.0})
    without_judge = make_finished(2, N, verdict={"judge": "rules"})
    found = of(by_rule, without_judge)
    assert (found["num_judged"], found["success_rate"], found["judged_success_rate"]) == (1, None, None)
    assert found["mean_score"] is None
    assert of(by_rule)["success_rate"] == 0.0, "if nobody stopped with an answer, the rules are enough"
    assert of(by_rule, without_judge, make_finished(3, W))["success_rate"] == 1 / 3


def test_a_run_of_errors_alone_won_nothing(tmp_path):
    found = summary(tmp_path, [E, B])
    assert (found["success_rate"], found["judged_success_rate"]) == (0.0, None)


def test_the_figures_of_steps():
    _, _, (trajectory, _) = make_finished(1)
    offered = [make_offer(trajectory), make_offer(trajectory, rank=1, is_accepted=False)]
    notes = [
        make_notes(*offered, seconds={"reply": 2.0}, num_removed={"task": 1, "template": 5}),
        make_notes(offered[1], is_readable=False, seconds={}),
    ]
    one = make_finished(1, notes=tuple(notes), seconds=2.0)
    longer = (make_notes(seconds={}),) * 4
    other = make_finished(2, L, task=make_task(2, max_steps=4), answer=None, notes=longer, seconds=6.0)
    found = of(one, other)
    assert found["hit_max_rate"] == 0.5
    assert found["mean_steps"] == 3
    assert found["removed_per_step"] == {"task": pytest.approx(1 / 6), "template": pytest.approx(5 / 6)}
    assert (found["mean_task_s"], found["mean_step_s"]) == (4.0, pytest.approx(8 / 6))
    assert found["accepted_rate"] == pytest.approx(1 / 3)
    assert found["unreadable_rate"] == pytest.approx(1 / 6)
    broken = make_finished(3, E, notes=(make_notes(is_readable=False),), seconds=99.0)
    names = [name for name in found if name.startswith("mean_") or name == "unreadable_rate"]
    assert [of(one, other, broken)[name] for name in names] == [found[name] for name in names], "errors lack steps"


def test_times_stand_beside_what_they_depend_on():
    of_step = {"num_together": 2, "seconds": {"wait": 1.0, "reply": 3.0}}
    notes = (make_notes(num_encoded=6, **of_step), make_notes(num_encoded=0, **of_step))
    first = make_finished(1, notes=notes, conditions=Conditions(num_parallel=4, num_encoded_before=20))
    second = make_finished(2, notes=notes, conditions=Conditions(num_parallel=16, num_encoded_before=0))
    found = of(first, second)
    assert (found["parallel"], found["mean_together"]) == ([4, 16], 2)
    assert found["cache"] == {"num_before": [0, 20], "num_encoded": 6}, "each step has half of its batch's six"
    assert found["step_parts_s"] == {"reply": 3.0, "wait": 1.0}
    without = of(make_finished(1, notes=(make_notes(),)))
    assert without["cache"] == {"num_before": [], "num_encoded": None}


def test_kinds_have_rates_over_their_own_tasks(tmp_path):
    found = summary(tmp_path, [W, L, W, None], kinds=["price", "price", "fact", "fact"])
    assert {kind: (part["num_tasks"], part["success_rate"]) for kind, part in found["by_kind"].items()} == {
        "fact": (2, 0.5),
        "price": (2, 0.5),
    }
    assert found["by_kind"]["fact"]["judged_success_rate"] == 1.0
    assert found["by_kind"]["price"]["success_interval"] == list(wilson_interval(1, 2))


def test_scores_and_the_cost_of_judging():
    cost = {"num_calls": 2, "seconds": 1.5}
    finished = [
        make_finished(number, L, verdict={"score": score, "cost": cost}) for number, score in ((1, 0.5), (2, 0.0))
    ]
    found = of(*finished, make_finished(3, E))
    assert (found["mean_score"], found["judge_calls"], found["judge_s"]) == (0.25, 4, 3.0)


def test_attempts_that_broke_and_were_started_again_are_counted():
    assert of(make_finished(1, num_broken=2), make_finished(2, E, num_broken=1))["num_broken"] == 3


def test_an_answer_at_the_last_step_uses_up_the_budget_all_the_same():
    for max_steps, rate in ((2, 1.0), (3, 0.0)):
        one = make_finished(1, notes=(make_notes(),) * 2, task=make_task(1, max_steps=max_steps))
        assert one.episode.answer is not None
        assert of(one)["hit_max_rate"] == rate


def test_a_run_without_episodes_has_no_figures_but_counts(tmp_path):
    found = summary(tmp_path, [None, None], kinds=["price", "price"])
    assert (found["num_tasks"], found["num_missing"], found["memory"]) == (2, 2, None)
    shares = [name for name in found if name.endswith(("_rate", "_interval")) or name.startswith("mean_")]
    assert len(shares) == 15
    assert all(found[name] is None for name in shares), "missing is None, never 0"
    assert found["by_kind"]["price"]["success_rate"] is None


def test_episodes_without_a_step_have_rates_but_no_mean_step():
    found = of(make_finished(1, L, answer=None, notes=(), seconds=0.0))
    assert (found["success_rate"], found["mean_steps"], found["mean_step_s"]) == (0.0, 0.0, None)
