"""Serves only a world's pages, to browsers on this machine. A request never reads a file."""

import logging
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self

from focusmem.browser.base import BrowserLimits
from focusmem.errors import UserError
from focusmem.lab.world.html import CONTENT_SECURITY_POLICY, FONT_PATHS, render_html
from focusmem.lab.world.scene import SCROLL_PIXELS, VIEW_HEIGHT, VIEW_WIDTH, font_file
from focusmem.lab.world.session import Pages

log = logging.getLogger(__name__)

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

ADDRESS: Final = "127.0.0.1"
_MAX_PATH: Final = 8_000
_HEADERS: Final = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class LabServer:
    """`with LabServer(pages) as server:` serves `server.url` until the block ends; port 0 takes any that is free."""

    def __init__(self, pages: Pages, port: int = 0) -> None:
        fonts = {path: font_file(is_bold).read_bytes() for is_bold, path in FONT_PATHS.items()}
        try:
            self._server = _Server(pages, fonts, port)
        except OSError as error:
            raise UserError(f"Port {port} cannot be used ({error.strerror}); choose another one.") from error
        # A short poll interval, so that stopping takes no time.
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def host(self) -> str:
        """Host and port, as an entry of an allow-list."""
        return f"{ADDRESS}:{self._server.server_port}"

    @property
    def url(self) -> str:
        """The address of the index page, with a slash at its end."""
        return f"http://{self.host}/"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a browser may keep its connection open

    def __init__(self, pages: Pages, fonts: dict[str, bytes], port: int) -> None:
        self.pages, self.fonts = pages, fonts
        super().__init__((ADDRESS, port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("A connection from %s ended early.", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    timeout = 60
    server_version, sys_version = "focusmem-lab", ""

    def do_GET(self) -> None:
        if not self._is_meant_for_us():
            self._send(HTTPStatus.MISDIRECTED_REQUEST, "text/plain", b"This server answers for this machine only.\n")
        elif self.path in self.server.fonts:
            self._send(HTTPStatus.OK, "font/ttf", self.server.fonts[self.path])
        elif not self.path.startswith("/") or len(self.path) > _MAX_PATH:
            self._send(HTTPStatus.BAD_REQUEST, "text/plain", b"This is not a path of the laboratory.\n")
        else:
            page = render_html(self.server.pages.scene(self.path)).encode()
            self._send(HTTPStatus.OK, "text/html; charset=utf-8", page)

    def _is_meant_for_us(self) -> bool:
        """Checks the Host header, so that a site whose name resolves to this machine cannot read our pages."""
        port = self.server.server_port
        return self.headers.get("Host") in (f"{ADDRESS}:{port}", f"localhost:{port}")

    def _send(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        for name, value in {**_HEADERS, "Content-Type": kind, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the library's
        log.debug(format, *args)
