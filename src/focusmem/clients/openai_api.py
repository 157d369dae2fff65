"""Sends requests with the `openai` package, within limits on time and size. No other file uses the HTTP packages.

The package limits only the time of each read of a socket, so a server that sends a byte now and then could keep a
request open for ever. It also reads replies of any length. Here one deadline applies to the whole request, from the
connection to the last byte, and a reply that is too long is cut off. Redirections are not followed, so that neither
prompts nor the key go to another host. Values that the package itself reads from the environment (OPENAI_API_KEY,
OPENAI_ORG_ID, OPENAI_CUSTOM_HEADERS and others) are not sent.

The proxies of the environment are used (HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY), except for servers on this
machine.
"""

import logging
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from focusmem.clients.keys import Key
from focusmem.errors import ConfigError, MissingPackageError

try:
    import httpcore2
    import httpx2
    from openai import APIConnectionError, APIStatusError, OpenAI
except ImportError as error:
    raise MissingPackageError("openai") from error

# At these levels the packages log the headers of requests and replies, where a server might repeat the key.
for _name in ("openai", "httpx2", "httpcore2"):
    logging.getLogger(_name).setLevel(logging.WARNING)

_SENT: Final = frozenset(
    {b"host", b"connection", b"user-agent", b"accept", b"accept-encoding", b"authorization", b"content-type",
     b"content-length"}
)  # fmt: skip
_PIECE: Final = 2**16


class TooSlowError(Exception):
    pass


class TooLongError(Exception):
    pass


class UnreachableError(Exception):
    """The connection failed or broke; the message says how."""


@dataclass(frozen=True)
class Answer:
    status: int
    headers: "httpx2.Headers"
    body: bytes


class Connection:
    """Sends requests to one endpoint. Several threads may use it at once."""

    def __init__(self, url: str, key: Key, *, timeout_s: float, max_bytes: int) -> None:
        headers = {
            "Accept-Encoding": "identity",  # a small compressed reply may be a large one
            "Authorization": f"Bearer {key.value}",
        }
        sent = _SENT if key.value else _SENT - {b"authorization"}
        transport = _BoundedTransport(url, sent, timeout_s, max_bytes)
        self._client = OpenAI(
            base_url=url,
            api_key=key.value or "none",
            max_retries=0,
            timeout=timeout_s,
            default_headers=headers,
            http_client=httpx2.Client(transport=transport, follow_redirects=False, timeout=timeout_s),
        )

    def post(self, body: dict[str, Any]) -> Answer:
        """Returns every answer, whatever its status."""
        try:
            response = self._client.post("/chat/completions", cast_to=httpx2.Response, body=body)
        except APIStatusError as refused:
            response = refused.response
        except APIConnectionError as failed:
            cause = failed.__cause__
            if isinstance(cause, TooSlowError | TooLongError | UnreachableError):
                raise cause from None
            raise
        return Answer(response.status_code, response.headers, response.content)


class _BoundedTransport(httpx2.BaseTransport):
    def __init__(self, url: str, sent: frozenset[bytes], timeout_s: float, max_bytes: int) -> None:
        """`sent` names the headers that are sent, in lower case."""
        self._sent = sent
        self._timeout_s, self._max_bytes = timeout_s, max_bytes
        self._backend = _DeadlineBackend()
        self._pool = _pool(url, self._backend)

    def handle_request(self, request: "httpx2.Request") -> "httpx2.Response":
        url = request.url
        target = httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
        headers = [(name, value) for name, value in request.headers.raw if name.lower() in self._sent]
        self._backend.begin(self._timeout_s)
        try:
            with self._pool.stream(request.method, target, headers=headers, content=request.read()) as response:
                body = self._read(response)
        except (httpcore2.TimeoutException, TimeoutError):
            raise TooSlowError from None
        except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.ProxyError, OSError) as failed:
            raise UnreachableError(str(failed) or type(failed).__name__) from None
        return httpx2.Response(response.status, headers=response.headers, content=body, request=request)

    def _read(self, response: "httpcore2.Response") -> bytes:
        names = {name.lower(): value for name, value in response.headers}
        encoding = names.get(b"content-encoding", b"identity").decode("latin-1")
        if encoding != "identity":
            raise UnreachableError(f"the answer is compressed ({encoding[:40]}), although none was asked for")
        body = bytearray()
        for piece in response.iter_stream():
            body += piece
            if len(body) > self._max_bytes:
                raise TooLongError
        return bytes(body)

    def close(self) -> None:
        self._pool.close()


class _DeadlineBackend(httpcore2.SyncBackend):
    """Opens connections on which every wait ends at the deadline of the waiting thread."""

    def __init__(self) -> None:
        self._here = threading.local()

    def begin(self, timeout_s: float) -> None:
        self._here.deadline = time.monotonic() + timeout_s

    def left(self, timeout: float | None) -> float:
        left_s: float = self._here.deadline - time.monotonic()
        if left_s <= 0:
            raise httpcore2.ReadTimeout
        return left_s if timeout is None else min(left_s, timeout)

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> "httpcore2.NetworkStream":
        stream = super().connect_tcp(host, port, self.left(timeout), local_address, socket_options)
        return _DeadlineStream(stream, self)


class _DeadlineStream(httpcore2.NetworkStream):
    def __init__(self, stream: "httpcore2.NetworkStream", backend: _DeadlineBackend) -> None:
        self._stream, self._backend = stream, backend

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._backend.left(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for at in range(0, len(buffer), _PIECE):  # a server that reads slowly must not stretch the deadline
            self._stream.write(buffer[at : at + _PIECE], self._backend.left(timeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None
    ) -> "httpcore2.NetworkStream":
        secured = self._stream.start_tls(ssl_context, server_hostname, self._backend.left(timeout))
        return _DeadlineStream(secured, self._backend)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def _pool(url: str, backend: _DeadlineBackend) -> "httpcore2.ConnectionPool":
    proxy = proxy_for(url)
    has_tls = url.startswith("https") or (proxy or "").startswith("https")
    options: dict[str, Any] = {
        "max_connections": None,
        "keepalive_expiry": 5.0,
        "network_backend": backend,
        "ssl_context": httpx2.create_ssl_context() if has_tls else None,
    }
    if proxy is None:
        return httpcore2.ConnectionPool(**options)
    parts = urlsplit(proxy)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    login = (unquote(parts.username), unquote(parts.password or "")) if parts.username else None
    return httpcore2.HTTPProxy(f"{parts.scheme}://{parts.hostname}:{port}", proxy_auth=login, **options)


def proxy_for(url: str) -> str | None:
    """The proxy that the environment names for an address. Servers on this machine are reached directly."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or _is_here(host) or proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    scheme = proxy.partition("://")[0] if "://" in proxy else "http"
    if scheme not in ("http", "https"):
        raise ConfigError(
            f"The environment names a {scheme} proxy for {parts.scheme} addresses; only http and https proxies are "
            "used. Set another one, or list the endpoint's host in NO_PROXY."
        )
    return proxy if "://" in proxy else f"http://{proxy}"


def _is_here(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
