"""Chromium on pages that a server on this machine serves. Addresses are translated to fixed ones, so that records hold
no port.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from urllib.parse import urlsplit

from focusmem.browser.base import Browser, Performed
from focusmem.errors import WorldError
from focusmem.schemas.action import AnyAction, Goto, make_action
from focusmem.schemas.observation import Observation


class ServedBrowser:
    """`browser` opens the pages at the address `served`; all other code sees the address `shown`. Both have no slash at
    the end.
    """

    def __init__(self, browser: Browser, *, shown: str, served: str) -> None:
        self._browser, self._shown, self._served = browser, shown, served

    async def open(self, url: str) -> None:
        with self._in_own_words():
            await self._browser.open(_moved(url, self._shown, self._served))

    async def observe(self) -> Observation:
        with self._in_own_words():
            seen = await self._browser.observe()
        return replace(seen, url=_moved(seen.url, self._served, self._shown))

    async def perform(self, action: AnyAction, point: tuple[int, int] | None = None) -> Performed:
        if isinstance(action, Goto):
            action = make_action("goto", url=_moved(action.arguments.url, self._shown, self._served))
        with self._in_own_words():
            performed = await self._browser.perform(action, point)
        error = None if performed.error is None else self._told(performed.error)
        return replace(performed, error=error)

    async def close(self) -> None:
        await self._browser.close()

    async def abandon(self) -> None:
        await self._browser.abandon()

    def _told(self, text: str) -> str:
        """Translates addresses in error messages too, because the policy reads them."""
        shown, served = urlsplit(self._shown), urlsplit(self._served)
        return text.replace(self._served, self._shown).replace(served.netloc, shown.netloc)

    @contextmanager
    def _in_own_words(self) -> Iterator[None]:
        try:
            yield
        except WorldError as error:
            raise type(error)(self._told(str(error))) from error


def _moved(url: str, old: str, new: str) -> str:
    return new + url.removeprefix(old) if url == old or url.startswith((f"{old}/", f"{old}?", f"{old}#")) else url
