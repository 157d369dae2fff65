"""The parts of Playwright that we use, in one place, so that a machine without Playwright gets a one-line message."""

from focusmem.errors import MissingPackageError

try:
    from playwright.async_api import (
        Browser,
        BrowserContext,
        CDPSession,
        ElementHandle,
        Page,
        Playwright,
        Request,
        Response,
        Route,
        async_playwright,
    )
    from playwright.async_api import Error as PlaywrightError
except ImportError as error:
    raise MissingPackageError("playwright") from error

__all__ = [
    "Browser",
    "BrowserContext",
    "CDPSession",
    "ElementHandle",
    "Page",
    "Playwright",
    "PlaywrightError",
    "Request",
    "Response",
    "Route",
    "async_playwright",
]
