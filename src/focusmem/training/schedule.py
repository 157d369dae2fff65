"""The learning rate, which depends only on the number of the step."""

import math


def learning_rate_at(step: int, *, num_steps: int, peak: float, warmup_share: float) -> float:
    """Linear warm-up over the first share of all steps, then a cosine decay to zero.

    `step` counts from zero.
    """
    num_warmup = math.ceil(warmup_share * num_steps)
    if step < num_warmup:
        return peak * (step + 1) / num_warmup
    share = (step - num_warmup) / max(1, num_steps - num_warmup)
    return peak * 0.5 * (1 + math.cos(math.pi * share))
