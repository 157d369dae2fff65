import pytest

from focusmem.intervals import wilson_interval


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [(8, 10, 0.490, 0.943), (0, 10, 0.0, 0.278), (10, 10, 0.722, 1.0), (200, 400, 0.451, 0.549)],
)
def test_known_values(successes, trials, low, high):
    assert wilson_interval(successes, trials) == pytest.approx((low, high), abs=5e-4)


def test_no_trials_say_nothing():
    assert wilson_interval(0, 0) == (0.0, 1.0)
