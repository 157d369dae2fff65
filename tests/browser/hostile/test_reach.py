"""No page reaches another host by any channel. Without protection the same pages do, so each channel is tested."""

import asyncio
from contextlib import contextmanager

import pytest

from browser.hostile.outside import ADDRESS, NAME, Outside
from browser.hostile.pages import MARKUP, REQUESTS, SERVICE_WORKER, UDP, reaching
from browser.sites import Site, send
from focusmem.browser import chromium_process
from focusmem.browser.base import BrowserLimits
from focusmem.browser.chromium import ChromiumBrowser
from focusmem.browser.chromium_process import ChromiumPool

pytestmark = [pytest.mark.browser, pytest.mark.hostile]

PATIENT = BrowserLimits(width=640, height=480, load_s=20, settle_s=0.5, wait_s=0, action_s=300, step_s=600)
LONG_S = 300
NOT_SHOWN = {"preconnect", "prerender"}
"""Channels that need no host name, or that work only between related sites."""


class GreedySite(Site):
    """Its pages contain the address of the other host in many places."""

    def __init__(self, outside: str) -> None:
        super().__init__()
        address, _, port = outside.partition(":")
        texts = {"/greedy": reaching(), "/calls": UDP, "/service-worker.js": SERVICE_WORKER}
        for old, new in {"HOST": outside, "OWN": self.url, "ADDRESS": address, "PORT": port}.items():
            texts = {path: text.replace(old, new) for path, text in texts.items()}
        self.pages |= texts

    def answer(self, request) -> None:
        if request.path == "/service-worker.js":
            send(request, 200, {"Content-Type": "text/javascript"}, self.pages[request.path])
        else:
            super().answer(request)


@contextmanager
def hosts(where):
    with Outside() as outside, GreedySite(f"{where}:{outside.port}") as site:
        yield outside, site


@pytest.fixture
def unprotected(monkeypatch):
    """Chromium without our flags and without the handler of requests; it can resolve the name of the other host."""
    flags = tuple(flag for flag in chromium_process._FLAGS if "webrtc" not in flag)
    monkeypatch.setattr(chromium_process, "_FLAGS", flags)
    monkeypatch.setattr(chromium_process, "host_rules", lambda allowed: f"MAP {NAME} {ADDRESS}, MAP *.test ~NOTFOUND")

    async def visit(url, is_enough):
        async with ChromiumPool() as pool:
            process = await pool.process(())
            page = await (await process._browser.new_context()).new_page()
            await page.goto(url, wait_until="commit")
            async with asyncio.timeout(LONG_S):
                while not is_enough():
                    await asyncio.sleep(0.05)

    return visit


async def visit(chromium, site, path, until=None, allowed=()):
    browser = await ChromiumBrowser.launch(PATIENT, [site.host, *allowed], pool=chromium.pool)
    try:
        await browser.open(site.url + path)
        if until is not None:
            await browser._tab._page.wait_for_function(until)
        return (await browser.observe()).title
    finally:
        await browser.close()


@pytest.mark.parametrize("where", [ADDRESS, pytest.param(NAME, marks=pytest.mark.slow)])
def test_no_request_socket_frame_or_worker_reaches_another_host(chromium, where):
    with hosts(where) as (outside, site):
        assert chromium.run(visit(chromium, site, "/greedy")) == "Greedy"
        assert outside.heard == []


@pytest.mark.parametrize("where", [ADDRESS, pytest.param(NAME, marks=pytest.mark.slow)])
def test_no_call_reaches_another_host(chromium, where):
    """WebRTC and WebTransport, over UDP and TCP."""
    with hosts(where) as (outside, site):
        assert chromium.run(visit(chromium, site, "/calls", "document.title === 'Done'")) == "Done"
        assert outside.heard == []


@pytest.mark.slow
@pytest.mark.parametrize("where", [ADDRESS, NAME])
def test_nor_does_it_where_every_public_site_is_allowed(chromium, where):
    with hosts(where) as (outside, site):
        assert chromium.run(visit(chromium, site, "/greedy", allowed=["*"])) == "Greedy"
        assert chromium.run(visit(chromium, site, "/calls", "document.title === 'Done'", allowed=["*"])) == "Done"
        assert outside.heard == []


def test_without_protection_calls_do_reach_it(unprotected):
    with hosts(ADDRESS) as (outside, site):
        asyncio.run(unprotected(f"{site.url}/calls", lambda: outside.has_heard("udp") and outside.has_heard("tcp")))


@pytest.mark.slow
@pytest.mark.parametrize("where", [ADDRESS, NAME])
def test_without_protection_every_channel_reaches_it(unprotected, where):
    with hosts(where) as (outside, site):
        names = (REQUESTS.keys() | MARKUP.keys()) - NOT_SHOWN

        def missing():
            return {name for name in names if not outside.has_heard(f" /{name} ")}

        try:
            asyncio.run(unprotected(f"{site.url}/greedy", lambda: not missing()))
        except TimeoutError:
            assert missing() == set()
