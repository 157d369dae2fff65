"""Serves only a world's pages, to browsers on this machine. A request never reads a file."""

from typing import Final

from focusmem.browser.base import BrowserLimits
from focusmem.browser.loopback import LoopbackServer, Served
from focusmem.lab.world.html import CONTENT_SECURITY_POLICY, FONT_PATHS, render_html
from focusmem.lab.world.scene import SCROLL_PIXELS, VIEW_HEIGHT, VIEW_WIDTH, font_file
from focusmem.lab.world.session import Pages

LAB_LIMITS: Final = BrowserLimits(
    width=VIEW_WIDTH,
    height=VIEW_HEIGHT,
    scroll_pixels=SCROLL_PIXELS,
    settle_s=0.0,
    wait_s=0.0,
    load_s=120.0,
    action_s=300.0,
    step_s=600.0,
)
"""Limits with which a browser shows these pages as the raster view draws them. The pages never change by themselves, so
the browser does not wait after an action. The pages always load, so a slow page only means that the machine is busy.
"""

_HEADERS: Final = {"Content-Security-Policy": CONTENT_SECURITY_POLICY}


class LabServer(LoopbackServer):
    """`with LabServer(pages) as server:` serves `server.url` until the block ends; port 0 takes any that is free."""

    def __init__(self, pages: Pages, port: int = 0) -> None:
        self._pages = pages
        self._fonts = {path: font_file(is_bold).read_bytes() for is_bold, path in FONT_PATHS.items()}
        super().__init__(self._answer, port)

    def _answer(self, path: str) -> Served:
        if path in self._fonts:
            return Served(self._fonts[path], "font/ttf", headers=_HEADERS)
        return Served(render_html(self._pages.scene(path)).encode(), headers=_HEADERS)
