import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from focusmem.browser.grounder import MARGIN, Point
from focusmem.errors import GroundingError

SIZES = st.integers(1, 4000)


def test_thousandths_are_of_the_view_and_pixels_are_pixels():
    assert Point(500, 250, "per_mille").pixel(1280, 720) == (640, 180)
    assert Point(500, 250, "pixels").pixel(1280, 720) == (500, 250)


def test_a_little_outside_is_the_edge():
    assert Point(1000, -3, "per_mille").pixel(1280, 720) == (1279, 0)
    assert Point(1280, 725.5, "pixels").pixel(1280, 720) == (1279, 719)


@given(SIZES, SIZES, st.data())
def test_every_pixel_is_found_by_its_middle(width, height, data):
    x, y = data.draw(st.integers(0, width - 1)), data.draw(st.integers(0, height - 1))
    middle = Point((x + 0.5) / width * 1000, (y + 0.5) / height * 1000, "per_mille")
    assert middle.pixel(width, height) == Point(x, y, "pixels").pixel(width, height) == (x, y)


@given(SIZES, st.floats(0, 1000), st.floats(0, 1000))
def test_what_lies_further_right_never_comes_out_further_left(width, one, other):
    left, right = sorted([one, other])
    assert Point(left, 0, "per_mille").pixel(width, 1) <= Point(right, 0, "per_mille").pixel(width, 1)


@given(SIZES, SIZES, st.floats(), st.floats(), st.sampled_from(["pixels", "per_mille"]))
def test_a_point_is_in_the_view_or_an_error(width, height, x, y, space):
    spans = (width, height) if space == "pixels" else (1000, 1000)
    is_near = all(-MARGIN < value / span < 1 + MARGIN for value, span in zip((x, y), spans, strict=True))
    try:
        found = Point(x, y, space).pixel(width, height)
    except GroundingError:
        assert not is_near
    else:
        assert 0 <= found[0] < width
        assert 0 <= found[1] < height


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1200, -60])
def test_far_outside_names_the_point_and_its_space(value):
    with pytest.raises(GroundingError, match="in per mille is far outside"):
        Point(value, 5, "per_mille").pixel(1280, 720)
