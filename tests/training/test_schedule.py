import pytest

from focusmem.training.schedule import learning_rate_at


def rate(step: int, num_steps: int = 100, warmup_share: float = 0.1) -> float:
    return learning_rate_at(step, num_steps=num_steps, peak=2.0, warmup_share=warmup_share)


def test_up_in_a_line_then_down_along_a_cosine():
    assert [rate(step) for step in (0, 4, 9)] == pytest.approx([0.2, 1.0, 2.0])
    assert rate(10) == 2.0
    assert rate(55) == pytest.approx(1.0)
    assert rate(99) == pytest.approx(0.0, abs=1e-3)
    falling = [rate(step) for step in range(10, 100)]
    assert falling == sorted(falling, reverse=True)


def test_every_step_of_a_short_run_learns():
    assert all(rate(step, num_steps=3) > 0 for step in range(3))
    assert rate(0, num_steps=1) == 2.0
    assert rate(0, warmup_share=0.0) == 2.0
