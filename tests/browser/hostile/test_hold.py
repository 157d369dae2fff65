"""No page blocks an episode: every call returns or ends the episode, and the next episode is not affected."""

import asyncio

import pytest

from browser.hostile.pages import HOLDING
from browser.sites import Site
from focusmem.browser.base import BrowserLimits
from focusmem.browser.chromium import ChromiumBrowser
from focusmem.errors import WorldError
from focusmem.schemas import make_action

pytestmark = [pytest.mark.browser, pytest.mark.hostile, pytest.mark.slow]

HURRIED = BrowserLimits(width=640, height=480, load_s=0.2, settle_s=0.1, wait_s=0.0, action_s=3.0)
PATIENT = BrowserLimits(width=640, height=480, load_s=5.0, settle_s=0.0, wait_s=0.0, action_s=300.0, step_s=600.0)
HANG_S = 300
ACTIONS = [
    make_action("click", description="x"),
    make_action("type", text="x"),
    make_action("scroll", direction="down"),
    make_action("press_key", key="Enter"),
    make_action("goto", url="/second"),
]


async def episode(browser, url):
    """The addresses that were seen, and the error that ended it."""
    seen = []
    try:
        await browser.open(url)
        for action in ACTIONS:
            seen.append((await browser.observe()).url)
            await browser.perform(action)
        seen.append((await browser.observe()).url)
    except WorldError as error:
        return seen, str(error)
    return seen, None


@pytest.mark.parametrize("name", HOLDING)
def test_no_page_holds_an_episode_up(chromium, name):
    async def work(site):
        browser = await ChromiumBrowser.launch(HURRIED, [site.host], pool=chromium.pool)
        try:
            async with asyncio.timeout(HANG_S):
                seen, error = await episode(browser, f"{site.url}/hostile")
            browser._limits = browser._clock._limits = PATIENT
            await browser.open(f"{site.url}/second")
            return seen, error, (await browser.observe()).title
        finally:
            await browser.close()

    with Site(hostile=HOLDING[name]) as site:
        seen, error, found = chromium.run(work(site))
    print(name, len(seen), error)
    assert all(url == "about:blank" or url.startswith(site.url) for url in seen)
    assert seen or error is not None
    assert found == "Second"
