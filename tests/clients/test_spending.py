"""Counts of tokens and their prices."""

import pytest

from focusmem.clients.options import Prices
from focusmem.clients.spending import Usage

PRICES = Prices(prompt=2.0, reply=8.0, cached_prompt=0.5)


@pytest.mark.parametrize(
    ("counts", "usage", "cost"),
    [
        ({"prompt_tokens": 1000, "completion_tokens": 100}, Usage(1000, 100), 0.0028),
        (
            {"prompt_tokens": 1000, "completion_tokens": 100, "prompt_tokens_details": {"cached_tokens": 600}},
            Usage(1000, 100, 600),
            0.0008 + 0.0003 + 0.0008,
        ),
        # Thoughts that are counted in the total alone, as Gemini's endpoint does, are charged like the reply.
        ({"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1500}, Usage(1000, 500), 0.006),
        ({"prompt_tokens": 1000, "total_tokens": 1100}, Usage(1000, 100), 0.0028),
        ({"prompt_tokens": 1000}, Usage(1000, None), None),
        ({"prompt_tokens": 1000, "completion_tokens": 10, "prompt_tokens_details": None}, Usage(1000, 10), 0.00208),
        ({"prompt_tokens": "many", "completion_tokens": True}, Usage(None, None), None),
        ({"prompt_tokens": -5, "completion_tokens": 1}, Usage(None, 1), None),
        (None, Usage(), None),
        (3, Usage(), None),
    ],
)
def test_usage_and_cost(counts, usage, cost):
    assert Usage.of(counts) == usage
    assert usage.cost_usd(PRICES) == (None if cost is None else pytest.approx(cost))
    assert usage.cost_usd(None) is None


def test_cached_tokens_cost_like_others_unless_they_have_a_price():
    assert Usage(1000, 0, 600).cost_usd(Prices(prompt=2.0, reply=8.0)) == pytest.approx(0.002)
