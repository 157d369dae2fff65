import math

import pytest

from focusmem.browser.base import BrowserLimits
from focusmem.browser.clock import Clock
from focusmem.errors import ConfigError


@pytest.mark.parametrize(
    ("field", "value"),
    [("width", 0), ("height", -1), ("action_s", 0), ("step_s", math.nan), ("settle_s", -1), ("scroll_pixels", 0)],
)
def test_a_limit_that_cannot_work_names_itself(field, value):
    with pytest.raises(ConfigError, match=f"BrowserLimits.{field} is {value}"):
        BrowserLimits(**{field: value})


def test_an_action_has_time_for_what_it_must_wait_for():
    with pytest.raises(ConfigError, match=r"exceed load_s \+ settle_s \+ wait_s, 8"):
        BrowserLimits(load_s=5, settle_s=1, wait_s=2, action_s=8)


def test_scrolling_keeps_a_part_of_the_view():
    assert BrowserLimits(height=720).scroll == 540
    assert BrowserLimits(height=720, scroll_pixels=100).scroll == 100


class Time:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_a_step_counts_work_and_an_episode_counts_everything():
    time = Time()
    clock = Clock(BrowserLimits(action_s=10, step_s=12, episode_s=100), time)
    assert clock.left() == (10, "action_s, 10 s")
    with clock.running():
        time.now += 5
    time.now += 30
    assert clock.left() == (7, "step_s, 12 s")
    clock.begin_step()
    assert clock.left() == (10, "action_s, 10 s")
    time.now += 64
    assert clock.left() == (1, "episode_s, 100 s")
    clock.begin_episode()
    assert clock.left() == (10, "action_s, 10 s")
