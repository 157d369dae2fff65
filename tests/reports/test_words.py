import pytest

from focusmem.reports.words import at_once, cache_state, counted, in_words, task_set
from focusmem.schemas import make_action


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (make_action("click", description="Specs"), "click 'Specs'"),
        (make_action("type", text="lamp", description="Search"), "type 'lamp' in 'Search'"),
        (make_action("scroll", direction="down"), "scroll down"),
        (make_action("press_key", key="Enter"), "press key 'Enter'"),
        (make_action("wait"), "wait"),
        (make_action("stop", answer="12"), "stop '12'"),
        (None, "wrote something that is no action"),
    ],
)
def test_actions_in_words(action, words):
    assert in_words(action) == words


def test_one_is_counted_as_one():
    assert [counted(num, "step") for num in (0, 1, 2)] == ["0 steps", "1 step", "2 steps"]


@pytest.mark.parametrize(
    ("parallel", "cache", "words"),
    [
        ([1], {"num_before": [26], "num_encoded": 3}, ("1", "26 before, 3 while acting")),
        ([4, 16], {"num_before": [], "num_encoded": 9}, ("4 or 16", "0 before, 9 while acting")),
        ([], {"num_before": [], "num_encoded": None}, ("-", "-")),
    ],
)
def test_what_times_depend_on_in_words(parallel, cache, words):
    figures = {"parallel": parallel, "cache": cache}
    assert (at_once(figures), cache_state(figures)) == words


def test_the_set_of_tasks_in_words():
    subset = {"suite": "webvoyager", "sha256": "a" * 64, "revision": "r7", "num_days": 1085, "num_left_out": 2}
    assert task_set({"num_tasks": 641, "subset": subset}) == (
        "Tasks: 641 of webvoyager, revision r7, dates moved by 1085 days, 2 left out, subset aaaaaaaaaaaa."
    )
    bare = {"suite": "lab", "sha256": None, "revision": None, "num_days": None, "num_left_out": 0}
    assert task_set({"num_tasks": 400, "subset": bare}) == "Tasks: 400 of lab."
