"""One page in Chromium: its content, the actions on it, and the wait until it has settled.

Playwright performs the actions. A session of the Chrome DevTools protocol reports when a navigation begins and ends,
because a click does not. Nothing here has a time limit: the caller sets it, and kills the process if necessary.
"""

import asyncio
import base64
import logging
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

from pydantic import ValidationError

from focusmem.browser.addresses import check_address
from focusmem.browser.base import BrowserLimits
from focusmem.browser.playwright_api import (
    BrowserContext,
    CDPSession,
    ElementHandle,
    Page,
    PlaywrightError,
    Request,
    Response,
    Route,
)
from focusmem.schemas.observation import ControlInfo
from focusmem.schemas.screenshot import Screenshot

log = logging.getLogger(__name__)

_CONTROLS: Final = (files("focusmem.browser") / "controls.js").read_text()
_FONTS_MS: Final = 1_000
_FILL_MS: Final = 10_000
_REFUSALS: Final = {403: "forbidden", 429: "too many requests"}
_DOWNLOAD: Final = "it is a file to download"
_NO_CONTENT: Final = (204, 205)
_WITHIN_THE_PAGE: Final = ("sameDocument", "historySameDocument")
# Waits long enough for a page that reacts immediately to an action.
_REACTION: Final = "() => new Promise((resolve) => setTimeout(resolve, 20))"
_FOCUSED: Final = """() => {
    let element = document.activeElement;
    while (element?.shadowRoot?.activeElement) element = element.shadowRoot.activeElement;
    element?.scrollIntoView({ block: "nearest", behavior: "instant" });
    return element;
}"""
_IS_LIST: Final = """() => {
    let element = document.activeElement;
    while (element?.shadowRoot?.activeElement) element = element.shadowRoot.activeElement;
    return element?.tagName === "SELECT";
}"""
_SHOWS_NOTHING: Final = """() =>
    document.contentType === "text/html" && document.readyState === "complete" && document.body === null"""
_HAS_OPTION: Final = """(element, text) => {
    const plain = (words) => words.trim().replace(/\\s+/g, " ");
    return [...element.options].some((option) => plain(option.label) === plain(text));
}"""
_WORLD: Final = "focusmem"
# Scrolls the scrollable element at a point, such as a long list, or otherwise the page. Without a point, it uses the
# element in # the middle of the view.
_SCROLL: Final = """(pixels, point) => {
    let element = document.elementFromPoint(...(point || [innerWidth / 2, innerHeight / 2]));
    for (; element && element !== document.documentElement; element = element.parentElement) {
        const before = element.scrollTop;
        if (/auto|scroll/.test(getComputedStyle(element).overflowY) && element !== document.body) {
            element.scrollBy({ top: pixels, behavior: "instant" });
            if (element.scrollTop !== before) return;
        }
    }
    scrollBy({ top: pixels, behavior: "instant" });
}"""


@dataclass(frozen=True)
class Look:
    title: str
    has_focus: bool
    """Whether a field is ready to be typed into."""
    controls: tuple[ControlInfo, ...]


class Tab:
    """Call `begin` before and `settle` after each action; then `problem` says what went wrong with the page."""

    def __init__(
        self,
        page: Page,
        session: CDPSession,
        allowed: Sequence[str],
        limits: BrowserLimits,
        on_end: Callable[[str], None],
    ) -> None:
        self._page, self._session, self._allowed, self._load_s = page, session, allowed, limits.load_s
        self._on_end, self._scale = on_end, limits.scale
        self.problem: str | None = None
        """A sentence for the policy."""
        self.refusal: str | None = None
        """Why the site refused to show the page that was last requested; None if it did not."""
        self.is_shut_out = False
        """Whether the site refuses the agent, not only this page."""
        self._popup: str | None = None
        self._failure: str | None = None
        self._response: Response | None = None
        """The response to the last navigation."""
        self._is_error_page = False
        self._main_frame = ""
        self._arrived, self._loaded = asyncio.Event(), asyncio.Event()
        self._arrived.set()
        self._loaded.set()

    @classmethod
    async def open(
        cls,
        context: BrowserContext,
        allowed: Sequence[str],
        limits: BrowserLimits,
        on_end: Callable[[str], None],
    ) -> "Tab":
        """Opens the context's only page. Playwright dismisses its dialogs, and confirms leaving a page.

        `on_end` is called when the page is gone, with the reason; after that, no call is answered.
        """
        page = await context.new_page()
        session = await context.new_cdp_session(page)
        tab = cls(page, session, allowed, limits, on_end)
        if limits.scale != 1:  # screenshots have the scale that their own session knows
            size = {"width": limits.width, "height": limits.height}
            await session.send(
                "Emulation.setDeviceMetricsOverride", {**size, "deviceScaleFactor": limits.scale, "mobile": False}
            )
        await tab._watch(context)
        return tab

    @property
    def url(self) -> str:
        return self._page.url

    @property
    def has_page(self) -> bool:
        """Whether the tab shows a page of a site. The empty page that a tab begins with does not count."""
        return self._page.url.startswith("http")

    @property
    def is_alive(self) -> bool:
        browser = self._page.context.browser
        return not self._page.is_closed() and browser is not None and browser.is_connected()

    # Actions on the page.

    def begin(self) -> None:
        """Forget problems, windows and failures that the page caused before this action."""
        self.problem = self._popup = self._failure = None

    async def goto(self, url: str) -> None:
        try:
            await self._page.goto(url, wait_until="commit")
        except PlaywrightError as error:
            if "interrupted by another navigation" in error.message:
                return
            reason = re.search(r"net::(\w+)|Download is starting", error.message)
            if reason is None:
                raise
            self._failure = self._failure or reason[1] or _DOWNLOAD

    async def click(self, x: int, y: int) -> None:
        """Clicks a pixel of the screenshot."""
        await self._page.mouse.click(x / self._scale, y / self._scale)

    async def fill_focused(self, text: str) -> str | None:
        """Replace the text of the focused field; returns the reason if that was not possible."""
        try:
            element = (await self._page.evaluate_handle(_FOCUSED)).as_element()
            if element is None:
                return "The field does not take the focus."
            return await _fill(element, text)
        except PlaywrightError as error:
            if not self.is_alive:
                raise
            return f"The field does not take this text ({_first_line(error)})."

    async def has_list_focused(self) -> bool:
        """Whether the focus is on a list of options, or the page that had the field is gone."""
        with suppress(PlaywrightError):
            return bool(await self._evaluate(_IS_LIST))
        return True

    async def scroll(self, pixels: int, point: tuple[int, int] | None = None) -> None:
        """Scrolls the element at a pixel of the screenshot, by this number of the page's pixels."""
        place = None if point is None else [number / self._scale for number in point]
        await self._evaluate(_SCROLL, pixels, place)

    async def press(self, key: str) -> None:
        await self._page.keyboard.press(key)

    # Contents of the page.

    async def look(self) -> Look:
        while True:
            try:
                found = await self._evaluate(_CONTROLS, _FONTS_MS)
                break
            except PlaywrightError as error:
                if not _is_about_navigation(error):
                    raise
                await self._wait_until_loaded()  # the page was left while we looked; look at the next one
        controls = [_scaled(one, self._scale) for one in map(_read_control, found["controls"]) if one is not None]
        controls.sort(key=lambda control: (control.top, control.left))
        return Look(str(found["title"]), bool(found["hasFocus"]), tuple(controls))

    async def evaluate(self, function: str) -> Any:
        """Runs a function of ours over the page's elements; the page's scripts can neither see nor influence it."""
        return await self._evaluate(function)

    async def controls(self) -> tuple[ControlInfo, ...]:
        return (await self.look()).controls

    async def screenshot(self) -> Screenshot:
        # Playwright's own screenshot is not used, because it waits for fonts, endlessly if one never loads.
        reply = await self._session.send("Page.captureScreenshot", {"format": "png"})
        return Screenshot.from_png(base64.b64decode(reply["data"]))

    async def _evaluate(self, function: str, *arguments: object) -> Any:
        """Run a function in an isolated world, where the page's scripts can neither see nor influence it."""
        world = {"frameId": self._main_frame, "worldName": _WORLD}
        context = await self._session.send("Page.createIsolatedWorld", world)
        call = {
            "functionDeclaration": function,
            "executionContextId": context["executionContextId"],
            "arguments": [{"value": argument} for argument in arguments],
            "awaitPromise": True,
            "returnByValue": True,
        }
        reply = await self._session.send("Runtime.callFunctionOn", call)
        if "exceptionDetails" in reply:
            raise PlaywrightError(f"The page could not be read: {reply['exceptionDetails'].get('text')}")
        return reply["result"].get("value")

    # Waiting until the page has settled.

    async def settle(self, seconds: float = 0.0) -> None:
        """Wait for the effects of the last action: navigation, a new window, and `seconds` for the page's scripts."""
        await self._react()
        if self._popup is not None:
            await self.goto(self._popup)  # a page for a new window opens in this one
        await self._wait_until_loaded()
        await asyncio.sleep(seconds)
        if self._failure is not None:
            self.problem = self.problem or f"The page could not be opened ({self._failure})."
            self._failure = None
        shows_nothing = await self._shows_nothing()
        if shows_nothing:
            self.problem = self.problem or "The page stopped before it showed anything."
        if self._is_error_page or shows_nothing:
            await self._page.go_back(wait_until="commit")
            await self._wait_until_loaded()

    async def _shows_nothing(self) -> bool:
        """Whether the page was left, or stopped itself, before its body began. Chromium never draws such a page, so a
        screenshot of it never comes.
        """
        with suppress(PlaywrightError):  # if the page is being left
            return bool(await self._evaluate(_SHOWS_NOTHING))
        return False

    async def _react(self) -> None:
        with suppress(PlaywrightError):  # if the page is already being left
            await self._evaluate(_REACTION)

    async def _wait_until_loaded(self) -> None:
        await self._arrived.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._load_s):
                await self._loaded.wait()

    # Events of the page.

    async def _watch(self, context: BrowserContext) -> None:
        self._page.on("crash", lambda page: self._on_end("the page crashed"))
        self._page.on("close", lambda page: self._on_end("the page closed itself"))
        context.on("page", self._close_popup)
        context.on("request", self._check_redirect)
        context.on("requestfailed", self._note_failure)
        context.on("response", self._note_response)
        await context.route("**/*", self._check_request)
        self._session.on("Page.frameStartedNavigating", self._on_started)
        self._session.on("Page.frameStartedLoading", self._on_started)
        self._session.on("Page.frameNavigated", self._on_arrived)
        self._session.on("Page.frameStoppedLoading", self._on_stopped)
        self._session.on("Page.windowOpen", self._on_window)
        await self._session.send("Page.enable")
        tree = await self._session.send("Page.getFrameTree")
        self._main_frame = tree["frameTree"]["frame"]["id"]

    def _on_started(self, event: dict[str, Any]) -> None:
        if event["frameId"] == self._main_frame and event.get("navigationType") not in _WITHIN_THE_PAGE:
            self._loaded.clear()
            if "navigationType" in event:  # a navigation, not only the loading that follows it
                self._arrived.clear()

    def _on_arrived(self, event: dict[str, Any]) -> None:
        frame = event["frame"]
        if "parentId" not in frame:
            self._main_frame = frame["id"]
            self._is_error_page = "unreachableUrl" in frame
            if not self._is_error_page:
                self._failure = None
            self._arrived.set()

    def _on_stopped(self, event: dict[str, Any]) -> None:
        if event["frameId"] == self._main_frame:
            self._arrived.set()
            self._loaded.set()

    # A page for a new window opens in this tab. The window itself is made harmless in two steps, because Playwright
    # reports a window only after its first response: until then, its requests get an empty page, so nothing is fetched
    # twice and no server can delay the report; then it is closed.

    def _on_window(self, event: dict[str, Any]) -> None:
        if str(event["url"]).startswith("http"):
            self._popup = str(event["url"])

    async def _close_popup(self, page: Page) -> None:
        if page is not self._page:
            with suppress(PlaywrightError):
                await page.close()

    async def _check_request(self, route: Route) -> None:
        request = route.request
        refusal = check_address(request.url, self._allowed)
        with suppress(PlaywrightError):  # the page may be gone before its request is answered
            if _is_of_other_page(request, self._page):
                await route.fulfill(status=200, content_type="text/html", body="")
            elif refusal is None:
                await route.continue_()
            else:
                self._refuse(request, refusal)
                await route.abort("aborted")  # with other codes, an error page would replace the page

    def _check_redirect(self, request: Request) -> None:
        """`_check_request` does not see the later hops of a redirect. The process cannot reach them; this records the
        refusal.
        """
        if request.redirected_from is not None:
            refusal = check_address(request.url, self._allowed)
            if refusal is not None:
                self._refuse(request, refusal)

    def _refuse(self, request: Request, refusal: str) -> None:
        log.info("Refused a request to %s.", request.url[:200])
        if _is_own_navigation(request, self._page):
            self.problem = refusal

    def _note_failure(self, request: Request) -> None:
        if _is_own_navigation(request, self._page):
            self._failure = self._aborted(request) or str(request.failure or "unknown reason").removeprefix("net::")

    def _aborted(self, request: Request) -> str | None:
        """Why Chromium gave up a navigation that the site answered; None if the site did not answer."""
        if self._response is None or self._response.request != request or request.failure != "net::ERR_ABORTED":
            return None
        return "the site sent no page" if self._response.status in _NO_CONTENT else _DOWNLOAD

    def _note_response(self, response: Response) -> None:
        """Records why a site refused. Status 403 concerns the page; status 429 or a challenge concerns the agent."""
        if not _is_own_navigation(response.request, self._page):
            return
        self._response = response
        is_challenge = response.headers.get("cf-mitigated") == "challenge"
        reason = "it wants to know whether a person is there" if is_challenge else _REFUSALS.get(response.status)
        self.refusal = None if reason is None else f"HTTP {response.status}, {reason}"
        self.is_shut_out = is_challenge or response.status == 429


async def _fill(element: ElementHandle, text: str) -> str | None:
    """Fills a field. Returns why the field does not take the text, or None. The field is checked first, because
    Playwright would wait until it can be filled.
    """
    if not await element.is_editable():
        return "The field cannot be changed."
    if not await element.evaluate("(element) => element.tagName === 'SELECT'"):
        await element.fill(text, timeout=_FILL_MS)
    elif await element.evaluate(_HAS_OPTION, text):
        await element.select_option(label=text, timeout=_FILL_MS)
    else:
        return f"The field has no option {text[:80]!r}."
    return None


def _read_control(found: object) -> ControlInfo | None:
    """A control as the page describes it; None if the description is invalid, because a page may report anything."""
    try:
        return ControlInfo.model_validate(found)
    except ValidationError:
        return None


def _scaled(control: ControlInfo, scale: float) -> ControlInfo:
    """Converts a control from the page's pixels to the screenshot's pixels."""
    if scale == 1.0:
        return control
    place = {name: int(getattr(control, name) * scale) for name in ("left", "top")}
    return control.model_copy(
        update=place | {name: max(1, int(getattr(control, name) * scale)) for name in ("width", "height")}
    )


def _is_of_other_page(request: Request, page: Page) -> bool:
    try:
        return request.frame.page is not page
    except PlaywrightError:  # the first request of a window that does not exist yet
        return True


def _is_own_navigation(request: Request, page: Page) -> bool:
    if not request.is_navigation_request() or _is_of_other_page(request, page):
        return False
    return request.frame is page.main_frame


def _is_about_navigation(error: PlaywrightError) -> bool:
    signs = ("context was destroyed", "Cannot find context", "navigated or closed", "No frame", "Frame with the given")
    return any(sign in error.message for sign in signs)


def _first_line(error: PlaywrightError) -> str:
    line = error.message.splitlines()[0] if error.message else "no reason given"
    return line.partition(": ")[2] or line
