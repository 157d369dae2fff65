"""Browsers for many episodes, from one choice."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Literal

from focusmem.browser.base import Browser, BrowserLimits
from focusmem.browser.grounder import Grounder

BrowserKind = Literal["chromium", "raster"]
"""`raster` draws pages without a browser, where a suite can do that: only the laboratory."""


@dataclass(frozen=True, kw_only=True)
class BrowserChoice:
    kind: BrowserKind = "chromium"
    grounder: Grounder | None = None
    """What finds the point that a description means; None: the names on the page."""


async def open_chromium(
    limits: BrowserLimits, choice: BrowserChoice, stack: AsyncExitStack
) -> Callable[[Sequence[str]], Awaitable[Browser]]:
    """A way to get a Chromium for a list of allowed hosts; processes are shared, and end with the stack."""
    from focusmem.browser.chromium import ChromiumBrowser  # needs Playwright, which a bare GPU host lacks
    from focusmem.browser.chromium_process import ChromiumPool

    pool = await stack.enter_async_context(ChromiumPool(max_users=1))

    async def launch(hosts: Sequence[str]) -> Browser:
        return await ChromiumBrowser.launch(limits, hosts, pool=pool, grounder=choice.grounder)

    return launch
