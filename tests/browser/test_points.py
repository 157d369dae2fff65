"""Chromium acts where a policy points, and its limits hold there too."""

import pytest

from browser.sites import Site
from focusmem.browser.base import BrowserLimits, Performed
from focusmem.browser.chromium import ChromiumBrowser
from focusmem.schemas import make_action

pytestmark = pytest.mark.browser

LIMITS = BrowserLimits(width=640, height=480, load_s=1.0, settle_s=0.0, wait_s=0.0)
# Only the place on the screen tells what is what.
PAGE = """<title>Start</title><style>* { position: absolute; margin: 0; } div { width: 320px; height: 200px; }</style>
    <div onclick="document.title = 'left'" style="left: 0"></div>
    <div onclick="document.title = 'right'" style="left: 320px"></div>
    <input aria-label="x" style="left: 400px; top: 300px; height: 20px" oninput="document.title = this.value">
    <a href="http://elsewhere.test/" style="left: 10px; top: 300px; width: 100px; height: 20px">away</a>
    <section style="left: 10px; top: 340px; width: 200px; height: 100px; overflow-y: scroll"
        onscroll="document.title = 'list'"><p style="height: 2000px; width: 10px"></p></section>"""


@pytest.fixture(scope="module")
def site():
    with Site(points=PAGE) as site:
        yield site


@pytest.fixture
def act(chromium, site):
    """Performs one action at a point, and tells how it went and the page's title after it."""

    def run(point, name, **arguments):
        async def whole():
            browser = await ChromiumBrowser.launch(LIMITS, [site.host], pool=chromium.pool)
            try:
                await browser.open(f"{site.url}/points")
                performed = await browser.perform(make_action(name, **arguments), point)
                return performed, (await browser.observe()).title
            finally:
                await browser.close()

        return chromium.run(whole())

    return run


def test_a_click_goes_to_the_point_whatever_its_description_says(act):
    assert act((500, 100), "click", description="the left half") == (Performed((500, 100)), "right")
    assert act((0, 0), "click", description="nothing of this name") == (Performed((0, 0)), "left")


def test_text_goes_into_the_field_at_the_point(act):
    assert act((420, 310), "type", text="mug", description="?") == (Performed((420, 310)), "mug")


def test_text_without_a_field_at_the_point_is_told(act):
    performed, title = act((500, 100), "type", text="mug", description="?")
    assert (performed.click_point, title) == ((500, 100), "right")
    assert performed.error is not None


def test_a_scroll_moves_the_list_at_the_point(act):
    assert act((100, 400), "scroll", direction="down") == (Performed(), "list")


@pytest.mark.parametrize("point", [(640, 0), (0, -1)])
def test_a_point_outside_of_the_view_is_refused(act, point):
    performed, title = act(point, "click", description="?")
    assert "outside of the view" in performed.error
    assert (performed.click_point, title) == (None, "Start")


def test_a_point_does_not_lead_to_another_site(act, site):
    performed, title = act((20, 310), "click", description="?")
    assert "elsewhere.test" in performed.error
    assert title == "Start"
