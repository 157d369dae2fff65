"""A host that no page may reach: it listens to TCP and UDP at one port, and notes everything that arrives."""

import socket
import threading
from contextlib import suppress
from typing import Self

ADDRESS = "127.0.0.2"
NAME = "outside.test"
"""A name that resolves to this host if names are not cut off."""


class Outside:
    """`heard` holds what has arrived, as text; a connection that says nothing is there as well."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self._tcp, self._udp = _sockets()
        self.port = self._tcp.getsockname()[1]
        self._is_open = True

    def __enter__(self) -> Self:
        for work in (self._accept, self._receive):
            threading.Thread(target=work, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_open = False
        for one in (self._tcp, self._udp):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def has_heard(self, text: str) -> bool:
        return any(text in line for line in self.heard)

    def _accept(self) -> None:
        with suppress(OSError):
            while self._is_open:
                connection, _ = self._tcp.accept()
                self.heard.append("tcp connection")
                threading.Thread(target=self._read, args=(connection,), daemon=True).start()

    def _read(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            text = connection.recv(10_000).decode("latin-1")
            self.heard.append(f"tcp {text}")
            if " HTTP/" in text:
                connection.sendall(
                    b"HTTP/1.1 204 No Content\r\nAccess-Control-Allow-Origin: *\r\nConnection: close\r\n\r\n"
                )

    def _receive(self) -> None:
        with suppress(OSError):
            while self._is_open:
                self.heard.append(f"udp {self._udp.recv(10_000).decode('latin-1')}")


def _sockets() -> tuple[socket.socket, socket.socket]:
    """A TCP socket and a UDP socket at the same free port."""
    while True:
        tcp, udp = socket.socket(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        tcp.bind((ADDRESS, 0))
        try:
            udp.bind(tcp.getsockname())
        except OSError:
            tcp.close()
            udp.close()
            continue
        tcp.listen(100)
        return tcp, udp
