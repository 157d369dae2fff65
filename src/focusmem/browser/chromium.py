"""Chromium as a `Browser`. Elements are found by the page's own names or by a grounding model, and every call has a
time limit.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Self

from focusmem.browser.addresses import check_address, check_allowed, full_address
from focusmem.browser.base import BrowserLimits, Performed
from focusmem.browser.chromium_process import CLOSE_S, ChromiumPool, ChromiumProcess
from focusmem.browser.clock import Clock
from focusmem.browser.grounder import Grounder
from focusmem.browser.grounding import NameGrounder, find_field
from focusmem.browser.keys import read_key, unknown_key
from focusmem.browser.playwright_api import BrowserContext, PlaywrightError
from focusmem.browser.tab import Tab
from focusmem.errors import BlockedError, WorldError
from focusmem.schemas.action import AnyAction, Click, Goto, PressKey, Scroll, Stop, Type, Wait
from focusmem.schemas.observation import ControlInfo, Observation


class ChromiumBrowser:
    """Every `open` makes a new context, so no cookies, storage or windows remain after an episode."""

    def __init__(
        self,
        limits: BrowserLimits,
        allowed: Sequence[str],
        pool: ChromiumPool,
        *,
        grounder: Grounder | None = None,
        presses_enter: bool = False,
        owns_pool: bool = False,
    ) -> None:
        """With `presses_enter`, the action `type` presses Enter after the text, except in a list of options."""
        self._presses_enter = presses_enter
        self._limits, self._allowed = limits, check_allowed(allowed)
        self._grounder = grounder or NameGrounder()
        self._pool, self._owns_pool = pool, owns_pool
        self._clock = Clock(limits)
        self._process: ChromiumProcess | None = None
        self._context: BrowserContext | None = None
        self._tab: Tab | None = None
        self._limit: asyncio.Timeout | None = None
        """The time limit of the running call."""
        self._ending: str | None = None
        """How the page ended; None while the page is open."""

    @classmethod
    async def launch(
        cls,
        limits: BrowserLimits,
        allowed: Sequence[str],
        *,
        pool: ChromiumPool | None = None,
        grounder: Grounder | None = None,
        presses_enter: bool = False,
    ) -> Self:
        """A browser that may visit these sites. Without a pool it starts its own process at once."""
        browser = cls(
            limits,
            allowed,
            pool or ChromiumPool(),
            grounder=grounder,
            presses_enter=presses_enter,
            owns_pool=pool is None,
        )
        try:
            await browser._pool.process(browser._allowed)
        except BaseException:
            await browser.close()
            raise
        return browser

    async def open(self, url: str) -> None:
        await self._leave()
        refusal = check_address(url, self._allowed)
        if refusal is not None:
            raise WorldError(f"The start page {url[:200]} cannot be opened. {refusal}")
        self._process = await self._pool.process(self._allowed)
        self._process.num_users += 1
        self._clock.begin_episode()
        self._ending = None
        async with self._limited("Opening the start page"):
            limits = self._limits
            self._context = await self._process.new_context(limits.width, limits.height, limits.scale)
            on_end = partial(self._on_end, self._context)
            tab = await Tab.open(self._context, self._allowed, limits, on_end)
            await tab.goto(url)
            await tab.settle(limits.settle_s)
        if tab.refusal is not None:
            await self._leave()
            raise BlockedError(f"The start page {url[:200]} was refused: {tab.refusal}.")
        if not tab.has_page:
            await self._leave()
            reason = tab.problem or f"It leads to {tab.url[:200]}."
            raise WorldError(f"The start page {url[:200]} cannot be opened. {reason}")
        self._tab = tab

    async def observe(self) -> Observation:
        tab = self._open_tab()
        self._clock.begin_step()
        async with self._limited("Looking at the page"):
            look = await tab.look()
            screenshot = await tab.screenshot()
        return Observation(screenshot, tab.url, look.title, look.controls)

    async def perform(self, action: AnyAction, point: tuple[int, int] | None = None) -> Performed:
        tab = self._open_tab()
        async with self._limited(f"The action {action.name}"):
            tab.begin()
            performed = await self._do(tab, action, point)
            if performed.error is None and not isinstance(action, Stop):
                await tab.settle(self._limits.settle_s)
        if tab.is_shut_out and not isinstance(action, Stop):  # an answer counts even if the page fails meanwhile
            await self._leave()
            raise BlockedError(f"The site refused the agent after {action.name}: {tab.refusal}.")
        return Performed(performed.click_point, performed.error or tab.problem)

    async def evaluate(self, function: str) -> Any:
        """The value of a JavaScript function over the page's elements, hidden from the page's scripts."""
        tab = self._open_tab()
        async with self._limited("Reading the page"):
            return await tab.evaluate(function)

    async def close(self) -> None:
        await self._leave()
        if self._owns_pool:
            await self._pool.close()

    async def abandon(self) -> None:
        await self._leave(is_stuck=True)
        await self.close()

    # Actions.

    async def _do(self, tab: Tab, action: AnyAction, point: tuple[int, int] | None) -> Performed:
        if point is not None and not self._is_in_view(point):
            return Performed(error=f"The point {point} is outside of the view.")
        match action:
            case Click():
                return await self._click(tab, action.arguments.description, point)
            case Type():
                return await self._type(tab, action.arguments.text, action.arguments.description, point)
            case Scroll():
                down = action.arguments.direction == "down"
                await tab.scroll(self._limits.scroll if down else -self._limits.scroll, point)
            case PressKey():
                return await self._press(tab, action.arguments.key)
            case Goto():
                return await self._goto(tab, action.arguments.url)
            case Wait():
                await asyncio.sleep(self._limits.wait_s)
            case Stop():
                pass
        return Performed()

    async def _click(self, tab: Tab, description: str, point: tuple[int, int] | None) -> Performed:
        place = await self._ground(tab, description) if point is None else point
        if isinstance(place, str):
            return Performed(error=place)
        await tab.click(*place)
        return Performed(place)

    async def _type(self, tab: Tab, text: str, description: str | None, point: tuple[int, int] | None) -> Performed:
        place = await self._field(tab, description) if point is None else point
        if isinstance(place, str):
            return Performed(error=place)
        if place is not None:
            await tab.click(*place)
        problem = await tab.fill_focused(text)
        if problem is None and self._presses_enter and not await tab.has_list_focused():
            await tab.press("Enter")
        return Performed(place, problem)

    async def _field(self, tab: Tab, description: str | None) -> tuple[int, int] | str | None:
        """The point to click before typing, or why there is no field; None if a field already has the focus."""
        if description is not None:
            return await self._ground(tab, description, is_field=True)
        look = await tab.look()
        field = find_field(None, look.controls, has_focus=look.has_focus)
        return field.centre if isinstance(field, ControlInfo) else field

    async def _ground(self, tab: Tab, description: str, *, is_field: bool = False) -> tuple[int, int] | str:
        found = await self._grounder.find(description, tab, is_field=is_field)
        return found if isinstance(found, str) else found.pixel(*self._limits.screenshot_size)

    def _is_in_view(self, point: tuple[int, int]) -> bool:
        width, height = self._limits.screenshot_size
        return 0 <= point[0] < width and 0 <= point[1] < height

    async def _press(self, tab: Tab, text: str) -> Performed:
        key = read_key(text)
        if key is None:
            return Performed(error=unknown_key(text))
        await tab.press(key)
        return Performed()

    async def _goto(self, tab: Tab, text: str) -> Performed:
        url = full_address(text, tab.url)
        refusal = check_address(url, self._allowed)
        if refusal is None:
            await tab.goto(url)
        return Performed(error=refusal)

    # Limits.

    def _open_tab(self) -> Tab:
        if self._tab is None:
            raise WorldError("No page is open: the browser was closed, or has failed; open a page first.")
        return self._tab

    @asynccontextmanager
    async def _limited(self, what: str) -> AsyncIterator[None]:
        """Runs a call under its time limit. Any failure inside ends the episode and closes its context."""
        seconds, passed = self._clock.left()
        try:
            with self._clock.running():
                async with asyncio.timeout(0 if self._ending else seconds) as self._limit:
                    try:
                        yield
                    finally:
                        self._limit = None
        except (TimeoutError, PlaywrightError) as error:
            ending = self._ending
            await self._leave(is_stuck=ending is None)
            if ending is not None:
                raise WorldError(f"{what} failed: {ending}.") from error
            if isinstance(error, PlaywrightError):
                raise WorldError(f"{what} failed: {error.message.splitlines()[0]}") from error
            raise WorldError(f"{what} took too long: {passed}, has passed.") from error
        except WorldError:  # the grounder failed; the browser itself works
            await self._leave()
            raise

    def _on_end(self, context: BrowserContext, ending: str) -> None:
        """Ends the running call at once. A closed or crashed page does not answer, so waiting for the time limit would
        be useless.
        """
        if context is not self._context:
            return  # this browser has closed that context already
        self._ending = self._ending or ending
        if self._limit is not None and not self._limit.expired():
            self._limit.reschedule(0)

    async def _leave(self, *, is_stuck: bool = False) -> None:
        """Close the episode's context. A stuck process is killed, unless other episodes use it and it
        still responds.
        """
        process, context = self._process, self._context
        self._process = self._context = self._tab = None
        if process is None:
            return
        process.num_users -= 1
        if is_stuck and process.num_users == 0:
            process.kill()
        elif context is not None and process.is_alive:
            try:
                async with asyncio.timeout(CLOSE_S):
                    await context.close()
            except (TimeoutError, PlaywrightError):
                process.kill()
