from focusmem.training.config import LoopConfig
from focusmem.training.deadline import Deadline

LOOP = LoopConfig(learning_rate=1e-3)


def test_without_a_limit_a_loop_stays_as_it_is():
    assert Deadline(None).limit(LOOP) is LOOP


def test_stages_share_the_time_and_a_loop_may_ask_for_less():
    deadline = Deadline(60.0)
    first = deadline.limit(LOOP).max_minutes
    assert 50 < first <= 60
    assert deadline.limit(LOOP).max_minutes <= first
    assert deadline.limit(LoopConfig(learning_rate=1e-3, max_minutes=0.01)).max_minutes == 0.01


def test_a_stage_that_is_late_still_takes_a_step():
    assert Deadline(-5.0).limit(LOOP).max_minutes > 0
