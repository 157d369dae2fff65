"""A web server for browsers on this machine only. Its answer is a function of the path."""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self

from focusmem.errors import UserError

log = logging.getLogger(__name__)

ADDRESS: Final = "127.0.0.1"
_MAX_PATH: Final = 8_000
_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True)
class Served:
    """One answer."""

    body: bytes
    kind: str = "text/html; charset=utf-8"
    status: HTTPStatus = HTTPStatus.OK
    headers: Mapping[str, str] = field(default_factory=dict)


Answer = Callable[[str], Served]
"""Called with the path and query of a request, in several threads at once."""


class LoopbackServer:
    """`with LoopbackServer(answer) as server:` serves `server.url` until the block ends; port 0 takes a free one."""

    def __init__(self, answer: Answer, port: int = 0) -> None:
        try:
            self._server = _Server(answer, port)
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

    def __init__(self, answer: Answer, port: int) -> None:
        self.answer = answer
        super().__init__((ADDRESS, port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("A connection from %s ended early.", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    timeout = 60
    server_version, sys_version = "focusmem", ""

    def do_GET(self) -> None:
        if not self._is_meant_for_us():
            text = b"This server answers for this machine only.\n"
            self._send(Served(text, "text/plain", HTTPStatus.MISDIRECTED_REQUEST))
        elif not self.path.startswith("/") or len(self.path) > _MAX_PATH:
            self._send(Served(b"This is not a path of this server.\n", "text/plain", HTTPStatus.BAD_REQUEST))
        else:
            self._send(self.server.answer(self.path))

    def _is_meant_for_us(self) -> bool:
        """Checks the Host header, so that a site whose name resolves to this machine cannot read our pages."""
        port = self.server.server_port
        return self.headers.get("Host") in (f"{ADDRESS}:{port}", f"localhost:{port}")

    def _send(self, served: Served) -> None:
        self.send_response(served.status)
        own = {"Content-Type": served.kind, "Content-Length": str(len(served.body))}
        for name, value in {**_HEADERS, **served.headers, **own}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(served.body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the library's
        log.debug(format, *args)
