"""How sure one can be of a rate: intervals for shares of few trials."""

import math


def wilson_interval(num_successes: int, num_trials: int, *, z: float = 1.96) -> tuple[float, float]:
    """The range that holds the true rate with 95 % confidence; sensible also for none, all, or few of them."""
    if num_trials == 0:
        return 0.0, 1.0
    rate, share = num_successes / num_trials, z * z / num_trials
    middle = (rate + share / 2) / (1 + share)
    half = z / (1 + share) * math.sqrt(rate * (1 - rate) / num_trials + share / (4 * num_trials))
    return max(0.0, middle - half), min(1.0, middle + half)
