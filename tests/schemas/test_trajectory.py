import pytest
from pydantic import ValidationError

from factories import make_step, make_trajectory
from focusmem.schemas import Annotations, Step, Task, Trajectory, Verdict, dump_record, parse_record
from focusmem.schemas.trajectory import MAX_STEPS


def test_factories_repeat_themselves():
    assert make_trajectory(4, seed=2) == make_trajectory(4, seed=2)
    assert make_trajectory(4, seed=2) != make_trajectory(4, seed=3)


def test_a_trajectory_can_be_a_key():
    assert len({make_trajectory(2)[0], make_trajectory(2)[0], make_trajectory(3)[0]}) == 2


@pytest.mark.parametrize(
    "fields",
    [
        {"steps": ()},
        {"steps": [make_step()[0]]},
        {"steps": (make_step()[0],) * (MAX_STEPS + 1)},
        {"instruction": " "},
        {"task_id": ""},
        {"source": ""},
        {"trajectory_id": "a/b"},
        {"site": None},
        {"outcome": "won"},
        {"colour": "red"},
    ],
)
def test_a_trajectory_without_sense_is_refused(fields):
    values = dict(make_trajectory(1)[0])
    assert Trajectory(**values) == make_trajectory(1)[0]
    with pytest.raises(ValidationError):
        Trajectory(**{**values, **fields})


@pytest.mark.parametrize("point", [(-1, 0), (0, -1), (1.5, 0), (1,), (1, 2, 3), [1, 2], (True, 0), (10**12, 0)])
def test_a_click_point_is_a_pair_of_pixels(point):
    step, _ = make_step()
    with pytest.raises(ValidationError):
        type(step)(screenshot=step.screenshot, action=step.action, click_point=point)


@pytest.mark.parametrize("max_steps", [0, -1, MAX_STEPS + 1, "15", 1.0])
def test_a_task_has_a_reasonable_budget(max_steps):
    values = {
        "task_id": "t",
        "instruction": "Find it.",
        "start_url": "https://shop.example/",
        "site": "shop.example",
    }
    assert Task(**values).max_steps == 15
    with pytest.raises(ValidationError):
        Task(**values, max_steps=max_steps)


def test_an_attempt_at_a_task_takes_over_what_it_shares_with_the_task():
    about = Annotations(instance="mug number 0", template="How much is {thing}?")
    expected = make_trajectory(2)[0].model_copy(update={"annotations": about})
    shared = {name: value for name, value in expected if name in Task.model_fields}
    made = Task(**shared, answer="12 euros").trajectory(
        expected.trajectory_id, list(expected.steps), outcome=expected.outcome, source=expected.source
    )
    assert made == expected


def test_a_verdict_is_one_of_four():
    for outcome in ("success", "failure", "error", "not_judged"):
        assert Verdict(task_id="t", outcome=outcome, reason="", judge="exact").outcome == outcome
    with pytest.raises(ValidationError):
        Verdict(task_id="t", outcome="blocked", reason="", judge="exact")


def test_a_step_without_an_action_needs_an_error():
    step, _ = make_step()
    unread = step.model_dump() | {"screenshot": step.screenshot, "action": None}
    with pytest.raises(ValidationError, match="neither an action nor an error"):
        Step(**unread)
    kept = Step(**unread | {"error": "The reply contains no JSON object.", "reply": "hm"})
    assert parse_record(Step, dump_record(kept), "step") == kept
