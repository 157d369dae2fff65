import json

import pytest

from focusmem.errors import RecordError
from focusmem.evaluation.agreement import agreement, judging_figures, named_as_in, read_labels
from focusmem.schemas import RunFolder
from stored_runs import make_consultation, make_finished, write_run


def wins(*values):
    return {(f"task-{number}", 1): value for number, value in enumerate(values) if value is not None}


@pytest.mark.parametrize(
    ("first", "second", "table", "share", "kappa"),
    [
        ((True, False), (True, False), [[1, 0], [0, 1]], 1.0, 1.0),
        ((True, False), (False, True), [[0, 1], [1, 0]], 0.0, -1.0),
        ((True, True, False, False), (True, False, True, False), [[1, 1], [1, 1]], 0.5, 0.0),
        ((True, True), (True, True), [[0, 0], [0, 2]], 1.0, None),
        ((True, True), (True, False), [[0, 0], [1, 1]], 0.5, 0.0),
        ((True, None), (None, True), [[0, 0], [0, 0]], None, None),
    ],
)
def test_agreement_and_kappa(first, second, table, share, kappa):
    found = agreement(wins(*first), wins(*second))
    assert (found["table"], found["agreement"], found["kappa"]) == (table, share, kappa)


def test_kappa_of_a_published_table():
    """Both yes 20, first only 5, second only 10, both no 15: 0.4 (the usual textbook example)."""
    rows = [(True, True)] * 20 + [(True, False)] * 5 + [(False, True)] * 10 + [(False, False)] * 15
    found = agreement(wins(*(one for one, _ in rows)), wins(*(other for _, other in rows)))
    assert found["kappa"] == pytest.approx(0.4)
    assert found["table"] == [[15, 10], [5, 20]]


def test_what_only_one_judged_is_counted_and_left_out():
    found = agreement(wins(True, None, False), wins(True, True, None))
    assert (found["num_both"], found["num_only_one"]) == (1, 2)


def test_figures_of_a_run_name_its_judges_with_unreadable_replies_and_differing_parsers(tmp_path):
    asked = {
        "judge": "webvoyager",
        "judge_profile": "paper",
        "consultation": make_consultation("SUCCESS", departures=("d",)),
    }
    finished = [
        make_finished(1, verdict={**asked, "strict": "success", "cost": {"num_calls": 1, "usd": 0.5}}),
        make_finished(2, verdict={**asked, "strict": "failure", "cost": {"num_calls": 1, "usd": 0.25}}),
        make_finished(3, "failure", verdict={**asked, "strict": "unreadable", "num_unreadable": 1}),
        make_finished(4, "failure", verdict={"judge": "rules"}),
    ]
    run = RunFolder(write_run(tmp_path, finished))
    [(key, about)] = judging_figures(run.episodes())["judges"].items()
    assert key.startswith("webvoyager.paper.")
    names = ("judge", "profile", "model", "departures", "num_success", "num_failure", "num_unreadable")
    assert tuple(about[name] for name in names) == ("webvoyager", "paper", "a model", ["d"], 2, 1, 1)
    assert (about["num_parser_disagreements"], about["num_strict_unreadable"], about["usd"]) == (1, 1, 0.75)


# Labels by people


@pytest.mark.parametrize(
    "entries",
    [
        [{"task_id": "shop/task-1", "label": "success"}, {"task_id": "shop/task-2", "label": "failure", "attempt": 1}],
        [{"task_id": "task-1", "label": "1"}, {"task_id": "task-2", "label": 0}],
        [{"task_id": "task-1", "SeeAct_human_label": "1"}, {"task_id": "task-2", "SeeAct_human_label": "0"}],
        [{"task_id": "task-1", "label": "1"}, {"task_id": "task-2", "label": "0"}, {"task_id": "task-3", "label": "2"}],
    ],
)
@pytest.mark.parametrize("as_lines", [True, False])
def test_labels_of_several_forms_are_read_and_named_as_in_the_run(entries, as_lines, tmp_path):
    path = tmp_path / "labels.json"
    path.write_text("\n".join(map(json.dumps, entries)) if as_lines else json.dumps(entries))
    run = RunFolder(write_run(tmp_path / "run", [make_finished(number) for number in (1, 2, 3)]))
    found = named_as_in(run.episodes(), read_labels(path))
    assert found == {("shop/task-1", 1): True, ("shop/task-2", 1): False}
    [pair] = judging_figures(run.episodes(), read_labels(path))["agreement"]
    assert (pair["second"], pair["table"]) == ("human", [[0, 0], [1, 1]])


def test_one_of_several_agents_labels_is_chosen(tmp_path):
    path = tmp_path / "human_label.json"
    path.write_text(json.dumps([{"task_id": "a", "confirmed_task": "Do.", "X_human_label": "1", "Y_human_label": "0"}]))
    assert read_labels(path, agent="Y") == {("a", 1): False}
    with pytest.raises(RecordError, match="those of: X, Y"):
        read_labels(path)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"task_id": "a", "label": "maybe"}', "label is 'maybe'"),
        ('{"task_id": "a", "label": null}', "label is None"),
        ('{"label": "1"}', "no.*task_id|not an object with a task_id"),
        ('{"task_id": "a"}', "those of: none"),
        ('{"task_id": "a", "label": "1"}\n{"task_id": "a", "label": "0"}', "two labels"),
        ("[{]", "neither a JSON list nor JSON lines"),
        ("label", "neither a JSON list nor JSON lines"),
    ],
)
def test_other_labels_are_refused_with_their_place(text, problem, tmp_path):
    path = tmp_path / "labels.jsonl"
    path.write_text(text)
    with pytest.raises(RecordError, match=problem):
        read_labels(path)


def test_labels_of_other_tasks_are_refused(tmp_path):
    run = RunFolder(write_run(tmp_path, [make_finished(1)]))
    with pytest.raises(RecordError, match="No label is about"):
        judging_figures(run.episodes(), {("elsewhere", 1): True})
