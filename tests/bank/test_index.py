from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from focusmem.bank.index import ExactIndex, SketchIndex
from focusmem.bank.sketches import count_differences, num_words, sketch

FAST = settings(max_examples=40)


def unit_vectors(num, width=96, seed=0):
    vectors = np.random.default_rng(seed).standard_normal((num, width)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def make_sketch_index(vectors, *, num_candidates=400, num_finalists=60, num_first=1, num_threads=2, fetched=None):
    words = sketch(vectors)

    def fetch(rows):
        if fetched is not None:
            fetched.append(rows)
        return vectors[rows]

    return SketchIndex(
        first_VN=list(np.ascontiguousarray(words[:, :num_first].T)),
        rest_NW=words[:, num_first:],
        fetch=fetch,
        executor=ThreadPoolExecutor(num_threads),
        num_threads=num_threads,
        num_candidates=num_candidates,
        num_finalists=num_finalists,
    )


def truth(vectors, query, allowed, num):
    scores = vectors @ query
    order = [row for row in np.argsort(-scores, kind="stable") if allowed[row]]
    return order[:num]


@FAST
@given(st.integers(0, 60), st.integers(1, 5), st.integers(0, 10**6), st.floats(0, 1))
def test_exact_search_is_the_truth(num_rows, num, seed, share):
    vectors, [query] = unit_vectors(num_rows, seed=seed), unit_vectors(1, seed=seed + 1)
    allowed = np.random.default_rng(seed).random(num_rows) < share
    rows, scores = ExactIndex(vectors).best(query, allowed, num)
    assert rows.tolist() == truth(vectors, query, allowed, num)
    np.testing.assert_allclose(scores, vectors[rows] @ query, atol=1e-6)


@FAST
@given(st.integers(0, 60), st.integers(1, 5), st.integers(0, 10**6), st.floats(0, 1), st.integers(1, 3))
def test_with_enough_finalists_sketches_find_the_truth(num_rows, num, seed, share, num_threads):
    vectors, [query] = unit_vectors(num_rows, seed=seed), unit_vectors(1, seed=seed + 1)
    allowed = np.random.default_rng(seed).random(num_rows) < share
    index = make_sketch_index(vectors, num_threads=num_threads)
    rows, _ = index.best(query, allowed, num)
    assert rows.tolist() == truth(vectors, query, allowed, num)


def test_equal_scores_come_in_the_order_of_rows():
    vectors = np.repeat(unit_vectors(1), 9, axis=0)
    for index in (ExactIndex(vectors), make_sketch_index(vectors)):
        rows, scores = index.best(vectors[0], np.arange(9) != 1, 3)
        assert len(set(rows.tolist())) == 3
        assert 1 not in rows
        np.testing.assert_allclose(scores, 1, rtol=1e-5)
    assert ExactIndex(vectors).best(vectors[0], np.arange(9) != 1, 3)[0].tolist() == [0, 2, 3]


def test_a_large_bank_reads_few_vectors_and_finds_nearly_all():
    rng = np.random.default_rng(5)
    centres = unit_vectors(60, seed=1)
    vectors = centres[rng.integers(60, size=5_000)] + 0.7 * unit_vectors(5_000, seed=2)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    queries = vectors[::100] + 0.5 * unit_vectors(50, seed=3)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    allowed = np.arange(5_000) % 100 != 0  # the guard removes the query's own source
    fetched = []
    index = make_sketch_index(vectors, num_candidates=1_000, num_finalists=150, fetched=fetched)
    found = [set(index.best(query, allowed, 3)[0].tolist()) for query in queries]
    wanted = [set(truth(vectors, query, allowed, 3)) for query in queries]
    assert np.mean([len(one & other) / 3 for one, other in zip(found, wanted, strict=True)]) >= 0.95
    assert all(len(rows) == 150 for rows in fetched)


@pytest.mark.parametrize(("width", "words"), [(1, 1), (64, 1), (65, 2), (96, 2), (2048, 32), (2049, 64)])
def test_a_sketch_has_a_bit_for_each_number(width, words):
    assert num_words(width) == words
    assert sketch(unit_vectors(3, width)).shape == (3, words)


def test_differing_bits_grow_with_the_angle():
    [one, other] = unit_vectors(2, 2048)
    other = other - (other @ one) * one
    other /= np.linalg.norm(other)
    angles = np.linspace(0, np.pi, 9)
    turned = np.stack([np.cos(angle) * one + np.sin(angle) * other for angle in angles]).astype(np.float32)
    differences = count_differences(sketch(turned), sketch(one[None])[0])
    np.testing.assert_allclose(differences / 2048, angles / np.pi, atol=0.05)


def test_sketches_are_stored_so_they_stay_the_same_for_ever():
    vectors = (np.arange(2 * 70) ** 3 % 11 - 5).astype(np.float32).reshape(2, 70)  # whole numbers: exact everywhere
    assert [hex(word) for word in sketch(vectors)[1]] == ["0xd4dc93f0ed4fdaa1", "0x959da3a2ad07ca21"]
