import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from focusmem.intervals import grouped_interval, mean_interval, paired_interval, wilson_interval


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [(8, 10, 0.490, 0.943), (0, 10, 0.0, 0.278), (10, 10, 0.722, 1.0), (200, 400, 0.451, 0.549)],
)
def test_known_values(successes, trials, low, high):
    assert wilson_interval(successes, trials) == pytest.approx((low, high), abs=5e-4)


def test_no_trials_say_nothing():
    assert wilson_interval(0, 0) == (0.0, 1.0)


def test_paired_trials_that_never_differ_are_as_sure_as_no_success_is():
    low, high = paired_interval(0, 0, 20)
    assert high == pytest.approx(1.96**2 / (20 + 1.96**2)) == pytest.approx(wilson_interval(0, 20)[1])
    assert low == -high


def test_a_large_sample_gives_the_plain_interval():
    half = 1.96 * math.sqrt(236 - 64 * 64 / 1600) / 1600
    assert paired_interval(150, 86, 1600) == pytest.approx((0.04 - half, 0.04 + half), abs=5e-4)


@pytest.mark.parametrize(("first", "second", "pairs"), [(1, 1, 4), (9, 1, 40), (150, 86, 1600)])
def test_at_its_edges_what_was_seen_is_just_likely_enough(first, second, pairs):
    """Against the definition: the likeliest shares that have this difference, found by trying them all."""
    for difference, score in zip(paired_interval(first, second, pairs), (1.96, -1.96), strict=True):
        shares = [(n / 5000 + difference, n / 5000) for n in range(1, 5000)]
        possible = [(one, other) for one, other in shares if one > 0 and one + other < 1]
        one, other = max(
            possible,
            key=lambda own: (
                first * math.log(own[0])
                + second * math.log(own[1])
                + (pairs - first - second) * math.log(1 - own[0] - own[1])
            ),
        )
        spread = math.sqrt(pairs * (one + other - difference**2))
        assert (first - second - pairs * difference) / spread == pytest.approx(score, abs=0.002)


@pytest.mark.parametrize(("first", "second", "pairs"), [(9, 1, 40), (3, 0, 3), (0, 0, 1), (120, 80, 400)])
def test_turning_the_pair_round_turns_the_interval_round(first, second, pairs):
    low, high = paired_interval(first, second, pairs)
    assert low <= (first - second) / pairs <= high
    assert paired_interval(second, first, pairs) == pytest.approx((-high, -low))


def test_a_mean_that_is_drawn_again_is_the_same_each_time():
    values = [0.0] * 50 + [2.0] * 50
    low, high = mean_interval(values)
    assert (low, high) == mean_interval(values)
    assert (low, high) == pytest.approx((1 - 1.96 / 10, 1 + 1.96 / 10), abs=0.03)
    assert mean_interval([0.0, 1.0] * 5) is not None
    assert mean_interval([0.0, 1.0, 2.0] * 3) is None, "too few to be drawn again"


@given(st.lists(st.booleans(), min_size=1, max_size=40))
def test_groups_of_one_are_plain_trials(trials):
    assert grouped_interval([[one] for one in trials]) == pytest.approx(wilson_interval(sum(trials), len(trials)))


@given(st.lists(st.booleans(), min_size=1, max_size=40), st.integers(1, 6))
def test_trials_that_only_repeat_one_another_count_once(trials, times):
    assert grouped_interval([[one] * times for one in trials]) == pytest.approx(
        wilson_interval(sum(trials), len(trials))
    )


def test_groups_never_make_one_surer_than_single_trials_would():
    mixed = [[True, False]] * 20
    assert grouped_interval(mixed) == pytest.approx(wilson_interval(20, 40))
    assert grouped_interval([]) == (0.0, 1.0)
    assert grouped_interval([[], [True] * 5, [True] * 9]) == wilson_interval(2, 2), "two groups, however many trials"
