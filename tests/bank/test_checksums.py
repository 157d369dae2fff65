import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from focusmem.bank.checksums import are_unit, damaged_vectors, entry_checks, named, search_checks, vector_checks

VECTORS = np.eye(3, 16, dtype=np.float32)
ENTRY = {
    "trajectory_id": ["a", "b"],
    "content": ["c", "d"],
    "task_id": ["shop/1", "shop/2"],
    "instruction": ["Buy", "Sell"],
    "site": ["shop", ""],
    "outcome": ["success", "failure"],
    "source": ["human", "agent"],
    "num_steps": [3, 4],
    "instance": ["mug", None],
    "template": [None, "Buy {}"],
    "num_frames_left_out": [0, 1],
    "num_characters_left_out": [0, 2],
}
SEARCH = {
    "trajectory_id": ["a", "b"],
    "outcome": ["success", "failure"],
    "source": ["human", "agent"],
    **{name: [5, -6] for name in ("guard", "task_key", "instance_key", "template_key", "wording_key")},
    "vector_check": [7, 8],
    "sketch": np.array([[1, 2], [3, 4]], dtype=np.uint64),
}


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 3 * 16 * 32 - 1))
def test_every_flipped_bit_of_a_vector_is_seen_and_no_other_vector_is_blamed(bit):
    changed = VECTORS.copy()
    changed.view(np.uint8).reshape(-1)[bit // 8] ^= 1 << bit % 8
    assert np.flatnonzero(damaged_vectors(changed, vector_checks(VECTORS))).tolist() == [bit // (16 * 32)]


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0, 1.01])
def test_a_vector_that_is_not_of_length_one_is_damaged_whatever_its_checksum_says(value):
    changed = VECTORS.copy()
    changed[1, 1] = value
    assert damaged_vectors(changed, vector_checks(changed)).tolist() == [False, True, False]
    assert are_unit(VECTORS).all()


@pytest.mark.parametrize("column", ENTRY)
def test_every_column_of_an_entry_counts(column):
    changed = ENTRY | {column: [ENTRY[column][0], 9 if column.startswith("num_") else "other"]}
    assert (entry_checks(changed) == entry_checks(ENTRY)).tolist() == [True, False]


@pytest.mark.parametrize("column", SEARCH)
def test_every_column_of_a_search_counts(column):
    values = np.array(SEARCH[column])
    values[1] = "other" if values.dtype.kind == "U" else values[1] + 1
    changed = SEARCH | {column: values}
    assert (search_checks(changed) == search_checks(SEARCH)).tolist() == [True, False]


def test_absent_is_not_empty():
    assert (entry_checks(ENTRY | {"instance": ["mug", ""]}) == entry_checks(ENTRY)).tolist() == [True, False]


def test_long_lists_of_names_are_shortened():
    assert (named(["a", "b"]), named(list("abcde"))) == ("a, b", "a, b, c and 2 more")
