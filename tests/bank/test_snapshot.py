import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from banks import WordEmbedder, make_many
from focusmem.bank import Bank, LeakageGuard
from focusmem.bank.snapshot import Growing, take_snapshot
from focusmem.bank.vectors import ROW_ID


@pytest.fixture
def bank(tmp_path):
    embedder = WordEmbedder(width=600)
    bank = Bank.create(tmp_path / "bank", embedder)
    bank.add(make_many(10, num_steps=1), embedder)
    return bank


def content(snapshot):
    """Everything that is held, by id."""
    names = [name for name in sorted(snapshot.columns) if name != "trajectory_id"]
    rows = zip(*(snapshot.columns[name].values.tolist() for name in names), strict=True)
    return dict(zip(snapshot.ids_N.tolist(), rows, strict=True))


@settings(max_examples=30)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=8))
def test_growing_equals_joining_and_leaves_earlier_states_alone(sizes):
    parts = [np.arange(size * 3).reshape(size, 3) + 100 * place for place, size in enumerate(sizes)]
    states = [Growing(parts[0])]
    for part in parts[1:]:
        states.append(states[-1].extended(part))
    for place, state in enumerate(states):
        np.testing.assert_array_equal(state.values, np.concatenate(parts[: place + 1]))


@pytest.mark.parametrize("body", ["vector", "sketch"])
def test_following_equals_reading_all(bank, body):
    embedder, guard = WordEmbedder(width=600), LeakageGuard()
    followed = take_snapshot(bank.vectors, guard, body)
    for step, change in enumerate(
        (
            lambda: bank.add(make_many(3, start=10, num_steps=1), embedder),
            lambda: bank.delete(["trajectory-2", "trajectory-11"]),
            lambda: bank.vectors.tidy(),
            lambda: (bank.delete(["trajectory-0"]), bank.add(make_many(3, start=20, num_steps=1), embedder)),
            lambda: bank.delete([f"trajectory-{number}" for number in range(40)]),
            lambda: bank.add(make_many(2, num_steps=1), embedder),
        )
    ):
        before = content(followed)
        change()
        bank.vectors.newest_version()
        following = take_snapshot(bank.vectors, guard, body, followed)
        assert content(following) == content(take_snapshot(bank.vectors, guard, body)), step
        assert content(followed) == before, "searches under way are not disturbed"
        followed = following


def test_an_addition_reads_what_was_added(bank, monkeypatch):
    guard = LeakageGuard()
    old = take_snapshot(bank.vectors, guard, "vector")
    bank.add(make_many(2, start=10, num_steps=1), WordEmbedder(width=600))
    read, taken = [], []
    table = bank.vectors
    table.newest_version()
    real_read, real_take = table.read, table.take
    monkeypatch.setattr(table, "read", lambda columns: read.append(columns) or real_read(columns))
    monkeypatch.setattr(table, "take", lambda rows, columns: taken.append(len(rows)) or real_take(rows, columns))
    new = take_snapshot(table, guard, "vector", old)
    assert (read, taken) == ([["stamp", ROW_ID]], [2])
    assert len(new.ids_N) == 12


def test_rows_of_another_guard_get_keys_of_this_one(bank):
    plain, other = LeakageGuard(), LeakageGuard(["thingaa"])
    old = take_snapshot(bank.vectors, plain, "sketch")
    made_again = take_snapshot(bank.vectors, other, "sketch")
    assert content(old).keys() == content(made_again).keys()
    assert set(made_again.columns["guard"].values) == {other.version}
    np.testing.assert_array_equal(old.candidates.keys.task_N, made_again.candidates.keys.task_N)
