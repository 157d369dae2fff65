"""Chromium's world lies at a port of this machine; whoever acts in it never learns which."""

import asyncio

import pytest

from evaluation.browsers import FakeBrowser
from focusmem.browser.base import Performed
from focusmem.browser.served_browser import ServedBrowser
from focusmem.errors import BlockedError
from focusmem.schemas import make_action

SHOWN, SERVED = "http://shop.test", "http://127.0.0.1:34055"


class Talkative(FakeBrowser):
    async def open(self, url):
        assert url.startswith(SERVED)
        raise BlockedError(f"{url} is closed; stay on 127.0.0.1:34055.")

    async def perform(self, action, point=None):
        return Performed(error=f"{SERVED}/x is not allowed; stay on 127.0.0.1:34055.")


def test_errors_tell_of_no_port():
    browser = ServedBrowser(Talkative(), shown=SHOWN, served=SERVED)
    performed = asyncio.run(browser.perform(make_action("goto", url="https://elsewhere.test/")))
    assert performed.error == f"{SHOWN}/x is not allowed; stay on shop.test."
    with pytest.raises(BlockedError) as raised:
        asyncio.run(browser.open(f"{SHOWN}/e-1/"))
    assert str(raised.value) == f"{SHOWN}/e-1/ is closed; stay on shop.test."
