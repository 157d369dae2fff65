import pytest
from hypothesis import given
from hypothesis import strategies as st

from factories import make_item, make_trajectory
from focusmem.errors import ConfigError
from focusmem.evidence import episodic_items, working_items


def steps_of(num):
    item, _ = make_item("working", num_steps=max(1, num))
    return item.steps[:num]


@given(st.integers(0, 20), st.integers(0, 5), st.integers(1, 6))
def test_expired_steps_come_once_and_in_order(num_steps, num_recent, chunk_events):
    steps = steps_of(num_steps)
    items = working_items(steps, instruction="a task", num_recent=num_recent, chunk_events=chunk_events)
    assert [step for item in items for step in item.steps] == list(steps[: max(0, num_steps - num_recent)])
    assert [item.rank for item in items] == list(range(len(items)))
    assert all(len(item.steps) == chunk_events for item in items[:-1])


@given(st.integers(1, 20))
def test_a_full_chunk_never_changes(num_steps):
    steps = steps_of(num_steps + 1)
    before = working_items(steps[:num_steps], instruction="a task", num_recent=3)
    after = working_items(steps, instruction="a task", num_recent=3)
    full = [item for item in before if len(item.steps) == 4]
    assert list(after[: len(full)]) == full


def trajectories(*names):
    return [make_trajectory()[0].model_copy(update={"trajectory_id": name}) for name in names]


def test_nothing_has_expired_within_the_window():
    assert working_items(steps_of(3), instruction="a task", num_recent=3) == ()


def test_chunks_need_events():
    with pytest.raises(ConfigError, match="chunks of 0 events"):
        working_items(steps_of(3), instruction="a task", num_recent=3, chunk_events=0)


def test_trajectories_keep_the_retrievers_order_and_scores():
    found = trajectories("one", "two")
    items = episodic_items(zip(found, (0.9, 0.4), strict=True))
    assert [(item.trajectory_id, item.rank, item.score) for item in items] == [("one", 0, 0.9), ("two", 1, 0.4)]
    assert items[0].steps == found[0].steps
