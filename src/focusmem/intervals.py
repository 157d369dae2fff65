"""How sure one can be of a rate, of the difference of two, of a mean: intervals for few trials."""

import math
from collections.abc import Callable, Sequence

import numpy as np

MIN_VALUES = 10
"""A mean of fewer has no interval."""


def wilson_interval(num_successes: int, num_trials: int, *, z: float = 1.96) -> tuple[float, float]:
    """The range that holds the true rate with 95 % confidence; sensible also for none, all, or few of them."""
    return _wilson(num_successes / max(1, num_trials), num_trials, z)


def grouped_interval(groups: Sequence[Sequence[bool]]) -> tuple[float, float]:
    """Wilson's interval for trials that come in groups, such as the steps of a task, which tend to go the same way.

    As many trials are counted as would make single ones so unsure; never more than there are, and where all went the
    same way, which leaves nothing to estimate, no more than groups.
    """
    held = [group for group in groups if group]
    num = sum(map(len, held))
    successes = sum(map(sum, held))
    if not 0 < successes < num:
        share = successes / num if num else 0.0
        return _wilson(share, len(held))
    rate = successes / num
    spread = sum((sum(group) - rate * len(group)) ** 2 for group in held)
    return _wilson(rate, min(num, num * num * rate * (1 - rate) / spread) if spread else num)


def paired_interval(num_first: int, num_second: int, num_pairs: int, *, z: float = 1.96) -> tuple[float, float]:
    """The range of the difference of two rates over the same trials, with 95 % confidence: Tango's score interval.

    `num_first` trials succeeded only the first time, `num_second` only the second; the others do not tell them apart.
    Where neither ever did better alone this is as wide as Wilson's interval is for no success (T. Tango, Equivalence
    test and confidence interval for the difference in proportions for the paired-sample design, 1998).
    """
    if num_pairs == 0:
        return -1.0, 1.0
    observed = (num_first - num_second) / num_pairs

    def is_inside(difference: float) -> bool:
        return abs(_paired_score(num_first, num_second, num_pairs, difference)) <= z

    return _edge(observed, -1.0, is_inside), _edge(observed, 1.0, is_inside)


def mean_interval(values: Sequence[float], *, num_resamples: int = 10_000, seed: int = 0) -> tuple[float, float] | None:
    """The range of a mean with 95 % confidence, by drawing the values again and again.

    None for so few values that drawing them again hardly shows how they vary: the range would hold the true mean far
    less often than it says.
    """
    if len(values) < MIN_VALUES:
        return None
    random, found = np.random.default_rng(seed), np.asarray(values, dtype=np.float64)
    means = [float(random.choice(found, len(found)).mean()) for _ in range(num_resamples)]
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
    """How many standard errors the observed difference is away from this one."""
    b = (2 * num_pairs - num_first + num_second) * difference - num_first - num_second
    c = -num_second * difference * (1 - difference)
    # The likeliest share of trials that only the second won, if this were the difference.
    share = (math.sqrt(max(0.0, b * b - 8 * num_pairs * c)) - b) / (4 * num_pairs)
    variance = num_pairs * (2 * share + difference * (1 - difference))
    distance = num_first - num_second - num_pairs * difference
    return (
        distance / math.sqrt(variance) if variance > 1e-12 else math.copysign(math.inf, distance) if distance else 0.0
    )


def _edge(inside: float, outside: float, is_inside: Callable[[float], bool]) -> float:
    """Where a range ends, between a point in it and the end of what is possible."""
    if is_inside(outside):
        return outside
    for _ in range(60):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if is_inside(middle) else (inside, middle)
    return inside
