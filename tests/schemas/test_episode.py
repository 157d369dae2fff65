import pytest

from factories import make_screenshot
from focusmem.errors import RecordError
from focusmem.schemas import Task, dump_record, parse_record
from focusmem.schemas.episode import AttentionMap, Episode, OfferedItem, StepNotes

TASK = Task(task_id="shop/1", instruction="How much is it?", start_url="https://shop.example/", site="shop.example")


def episode(**changes) -> Episode:
    looked = AttentionMap(screenshot=make_screenshot().ref(), num_rows=2, num_columns=3, weights=(0.1,) * 6)
    item = OfferedItem(
        role="episodic", rank=0, trajectory_id="one", num_steps=3, score=0.8, trust_logit=2.0, is_accepted=True,
        num_tokens=8, attention=(looked,),
    )  # fmt: skip
    notes = StepNotes(prompt=("user: Decide.",), offered=(item,), num_prompt_tokens=600, seconds={"reply": 0.2})
    values = {"task": TASK, "method": "full", "trajectory_id": "one", "answer": "$3", "notes": (notes,), "seconds": 1.5}
    return Episode(**values | changes)


def test_comes_back_as_it_was():
    stored = dump_record(episode())
    assert parse_record(Episode, stored, "episode.json") == episode()


def test_a_map_fills_its_grid():
    with pytest.raises(ValueError, match="6 weights for 2 by 2"):
        AttentionMap(screenshot=make_screenshot().ref(), num_rows=2, num_columns=2, weights=(0.1,) * 6)


@pytest.mark.parametrize(
    "changes", [{"attempt": 0}, {"seconds": -1.0}, {"method": ""}, {"trajectory_id": "../one"}, {"surprise": 1}]
)
def test_nothing_else_is_accepted(changes):
    with pytest.raises((ValueError, RecordError)):
        episode(**changes)
