"""95 % confidence intervals of a rate, of the difference of two rates, and of a mean, for few trials."""

import math
from collections.abc import Callable, Sequence

import numpy as np

MIN_VALUES = 10
"""A mean of fewer values has no interval."""


def wilson_interval(num_successes: int, num_trials: int, *, z: float = 1.96) -> tuple[float, float]:
    """Wilson's score interval of a rate, which stays sensible for few trials and for rates of 0 and 1."""
    return _wilson(num_successes / max(1, num_trials), num_trials, z)


def grouped_interval(groups: Sequence[Sequence[bool]]) -> tuple[float, float]:
    """Wilson's interval for correlated trials, such as several attempts at each task. A group holds correlated trials.

    Uses the effective sample size, at most the number of trials. If all trials agree, their correlation cannot be
    estimated, and the number of groups is used.
    """
    groups = [group for group in groups if group]
    num = sum(map(len, groups))
    successes = sum(map(sum, groups))
    if not 0 < successes < num:
        return _wilson(successes / num if num else 0.0, len(groups))
    rate = successes / num
    spread = sum((sum(group) - rate * len(group)) ** 2 for group in groups)
    return _wilson(rate, min(num, num * num * rate * (1 - rate) / spread) if spread else num)


def paired_interval(num_first: int, num_second: int, num_pairs: int, *, z: float = 1.96) -> tuple[float, float]:
    """Tango's score interval of the difference of two success rates over the same pairs.

    Only the first succeeded in `num_first` pairs, only the second in `num_second`; in the other pairs they agree. If
    both are 0, the interval is as wide as Wilson's for no success. (T. Tango, Equivalence test and confidence interval
    for the difference in proportions for the paired-sample design, 1998.)
    """
    if num_pairs == 0:
        return -1.0, 1.0
    observed = (num_first - num_second) / num_pairs

    def is_inside(difference: float) -> bool:
        return abs(_paired_score(num_first, num_second, num_pairs, difference)) <= z

    return _edge(observed, -1.0, is_inside), _edge(observed, 1.0, is_inside)


def mean_interval(values: Sequence[float], *, num_resamples: int = 10_000, seed: int = 0) -> tuple[float, float] | None:
    """The percentile bootstrap interval of a mean.

    None for fewer than MIN_VALUES values: the interval would hold the true mean far less often than in 95 % of cases.
    """
    if len(values) < MIN_VALUES:
        return None
    random, observed = np.random.default_rng(seed), np.asarray(values, dtype=np.float64)
    means = [float(random.choice(observed, len(observed)).mean()) for _ in range(num_resamples)]
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)


def _wilson(rate: float, num_trials: float, z: float = 1.96) -> tuple[float, float]:
    if num_trials == 0:
        return 0.0, 1.0
    share = z * z / num_trials
    middle = (rate + share / 2) / (1 + share)
    half = z / (1 + share) * math.sqrt(rate * (1 - rate) / num_trials + share / (4 * num_trials))
    return max(0.0, middle - half), min(1.0, middle + half)


def _paired_score(num_first: int, num_second: int, num_pairs: int, difference: float) -> float:
    """The distance between the observed difference and the given difference, in standard errors."""
    b = (2 * num_pairs - num_first + num_second) * difference - num_first - num_second
    c = -num_second * difference * (1 - difference)
    # The maximum-likelihood share of pairs that only the second won, given this difference.
    share = (math.sqrt(max(0.0, b * b - 8 * num_pairs * c)) - b) / (4 * num_pairs)
    variance = num_pairs * (2 * share + difference * (1 - difference))
    distance = num_first - num_second - num_pairs * difference
    return (
        distance / math.sqrt(variance) if variance > 1e-12 else math.copysign(math.inf, distance) if distance else 0.0
    )


def _edge(inside: float, outside: float, is_inside: Callable[[float], bool]) -> float:
    """Finds one end of an interval by bisection, between a point inside it and the end of the possible range."""
    if is_inside(outside):
        return outside
    for _ in range(60):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if is_inside(middle) else (inside, middle)
    return inside
