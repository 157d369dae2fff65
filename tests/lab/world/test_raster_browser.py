import asyncio

import pytest

from focusmem.browser.base import Browser
from focusmem.errors import WorldError
from focusmem.lab.world.raster_browser import RasterBrowser
from focusmem.lab.world.scene import VIEW_HEIGHT, VIEW_WIDTH
from focusmem.schemas import make_action
from lab.scenes import ToyPages


def test_an_episode():
    async def episode():
        browser: Browser = RasterBrowser(ToyPages())
        await browser.open("http://lab.test/toy/")
        await browser.perform(make_action("type", text="lamp", description="Search"))
        await browser.perform(make_action("press_key", key="Enter"))
        seen = await browser.observe()
        await browser.close()
        with pytest.raises(WorldError, match="No page is open"):
            await browser.observe()
        return seen

    seen = asyncio.run(episode())
    assert seen.url == "http://lab.test/toy/find?q=lamp&seen=1"
    assert seen.title == "Search: lamp"
    assert (seen.screenshot.width, seen.screenshot.height) == (VIEW_WIDTH, VIEW_HEIGHT)
    assert [control.name for control in seen.controls][:2] == ["Lamp number 0", "Lamp number 1"]


def test_an_address_outside_the_world_cannot_be_opened():
    with pytest.raises(WorldError, match=r"shop.example does not belong to this task"):
        asyncio.run(RasterBrowser(ToyPages()).open("https://shop.example/"))
