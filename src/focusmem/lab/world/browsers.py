"""Browsers for episodes in the laboratory: the raster's, or Chromium on a server of the world."""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Literal

from focusmem.browser.base import Browser
from focusmem.lab.world.raster_browser import RasterBrowser
from focusmem.lab.world.served_browser import ServedBrowser
from focusmem.lab.world.world import World
from focusmem.schemas import Task

BrowserKind = Literal["raster", "chromium"]


async def lab_browsers(world: World, kind: BrowserKind, stack: AsyncExitStack) -> Callable[[Task], Awaitable[Browser]]:
    """A way to get browsers that see the world; they live until the stack is closed."""
    if kind == "raster":

        async def raster(task: Task) -> Browser:
            return RasterBrowser(world)

        return raster
    # Imported here: the raster needs neither Playwright nor a browser.
    from focusmem.browser.chromium import ChromiumBrowser
    from focusmem.browser.chromium_process import ChromiumPool
    from focusmem.lab.world.server import LAB_LIMITS, LabServer

    server = stack.enter_context(LabServer(world))
    pool = await stack.enter_async_context(ChromiumPool(max_users=1))

    async def chromium(task: Task) -> Browser:
        browser = await ChromiumBrowser.launch(LAB_LIMITS, [server.host], pool=pool)
        return ServedBrowser(browser, server.url.removesuffix("/"))

    return chromium
