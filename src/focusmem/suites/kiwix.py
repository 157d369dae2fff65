"""Serves a ZIM file with `kiwix-serve`, if this program is installed (Debian's `kiwix-tools`)."""

import os
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from focusmem.browser.loopback import ADDRESS
from focusmem.errors import UserError

PROGRAM: Final = "kiwix-serve"
ORIGIN: Final = "http://wikipedia.test"
"""The address of the encyclopedia in tasks and records; the browser opens it at a port of this machine."""

_FIRST_WITH_CONTENT: Final = (3, 4)
"""From this version on, addresses of pages begin with /content/."""
_START_S: Final = 60.0
_STOP_S: Final = 10.0


class KiwixServer:
    """`with KiwixServer(path) as server:` serves the file at `server.url` until the block ends."""

    def __init__(self, zim: Path) -> None:
        self.zim, self.port = zim, 0
        self._program = program()
        self._process: subprocess.Popen[bytes] | None = None
        if not zim.is_file():
            raise UserError(f"There is no {zim}; give a ZIM file, such as one from library.kiwix.org.")

    @property
    def host(self) -> str:
        """Host and port, in the form of an entry of an allow-list."""
        return f"{ADDRESS}:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.host}/"

    def __enter__(self) -> Self:
        self.port = _free_port()
        command = [
            *(self._program, "--address", ADDRESS, "--port", str(self.port)),
            *(
                "--attachToProcess",
                str(os.getpid()),
                str(self.zim),
            ),  # it ends with this process, even if that is killed
        ]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        try:
            self._wait()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _wait(self) -> None:
        """Waits until the server answers."""
        assert self._process is not None
        assert self._process.stderr is not None
        until = time.monotonic() + _START_S
        while time.monotonic() < until:
            if self._process.poll() is not None:
                said = self._process.stderr.read().decode(errors="replace").strip().splitlines()
                raise UserError(f"{PROGRAM} did not serve {self.zim}: {said[-1] if said else 'it gave no reason'}.")
            try:
                with urllib.request.urlopen(self.url, timeout=1):
                    return
            except urllib.error.HTTPError:
                return
            except OSError:
                time.sleep(0.05)
        raise UserError(f"{PROGRAM} did not answer within {_START_S:g} s.")

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stderr is not None:
            process.stderr.close()


def program() -> str:
    """The path of kiwix-serve."""
    path = shutil.which(PROGRAM)
    if path is None:
        raise UserError(
            f"A ZIM file is served by {PROGRAM}, which is not installed: apt-get install kiwix-tools. Or give the "
            "address of a Kiwix server that is running."
        )
    return path


def book_address(zim: Path) -> str:
    """The address before the path of a page, in the scheme of the installed kiwix-serve. The namespace `A` works with
    older and newer ZIM files.
    """
    is_new = _version() >= _FIRST_WITH_CONTENT
    return f"{ORIGIN}/{'content/' if is_new else ''}{zim.stem}/A"


def _version() -> tuple[int, ...]:
    said = subprocess.run([program(), "--version"], capture_output=True, text=True, check=False, timeout=_STOP_S).stdout
    found = re.search(r"kiwix-tools (\d+)\.(\d+)", said) or re.search(r"(\d+)\.(\d+)\.\d+", said)
    if found is None:
        raise UserError(f"{PROGRAM} does not say its version; give the address of a running server instead.")
    return int(found[1]), int(found[2])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((ADDRESS, 0))
        port: int = probe.getsockname()[1]
        return port
