"""The Chromium process: finds it, starts it with the right flags, shares it between episodes, and kills it if
necessary.

Sites outside the allow-list are cut off twice. The browser's own handler refuses requests and says why. The host rules
make the names and addresses of other sites unknown to the whole process. They also stop requests that the handler never
sees: later hops of a redirect, web sockets, requests of workers, WebRTC over TCP. Separate flags stop WebRTC over UDP
and QUIC.
"""

import asyncio
import logging
import os
import re
import signal
from contextlib import ExitStack, suppress
from importlib.resources import as_file, files
from types import TracebackType
from typing import Final, Self

from focusmem.browser.addresses import ANY_PUBLIC, LOCAL_ENDINGS, is_numeric
from focusmem.browser.browser_folder import BrowserFolder, remove_leftovers
from focusmem.browser.executable import find_browser
from focusmem.browser.playwright_api import Browser, BrowserContext, Playwright, PlaywrightError, async_playwright
from focusmem.errors import UserError, WorldError

log = logging.getLogger(__name__)

START_S: Final = 120.0
CLOSE_S: Final = 20.0

# The form in which Playwright passes on a browser's output before it ended.
_SAID: Final = re.compile(r"\[pid=\d+\]\[err\] (.*\S)")
_EXIT: Final = re.compile(r"<process did exit: (.*)>")
_REASON: Final = re.compile("error|fatal|sandbox", re.IGNORECASE)
_NUM_REASONS: Final = 2
_REASON_LENGTH: Final = 300

# Chromium writes every IPv4 address as four decimal numbers before the rules see it. Names without a dot cannot be
# described by a pattern; only the handler of requests refuses them.
_NOT_PUBLIC: Final = (
    *LOCAL_ENDINGS,
    *(f"*.{ending}" for ending in LOCAL_ENDINGS),
    *(f"*{digit}" for digit in range(10)),
    "[*",
    "*:*:*",
)
_WEBRTC_POLICY: Final = "disable_non_proxied_udp"
_FLAGS: Final = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # Without these flags, a page can send UDP packets with text of its choice to any address that it names as a STUN or
    # TURN server. Chromium reads the first flag, the headless shell the second.
    f"--webrtc-ip-handling-policy={_WEBRTC_POLICY}",
    f"--force-webrtc-ip-handling-policy={_WEBRTC_POLICY}",
    "--hide-scrollbars",
    "--disable-smooth-scrolling",
)


class ChromiumProcess:
    """One browser process for one allow-list. Each episode has its own context in it."""

    def __init__(self, browser: Browser, pid: int, resources: ExitStack, allowed: tuple[str, ...]) -> None:
        """`resources` are closed when the process has ended."""
        self._browser, self._pid, self._resources = browser, pid, resources
        self._is_killed = False
        self.allowed = allowed
        self.num_users = 0

    @classmethod
    async def start(cls, driver: Playwright, allowed: tuple[str, ...]) -> Self:
        path = find_browser()
        with ExitStack() as stack:
            folder = BrowserFolder.make()
            stack.callback(folder.remove)
            fonts = stack.enter_context(as_file(files("focusmem.browser") / "fonts.conf"))
            # A short TMPDIR, because Chromium refuses to start if the path of its socket is too long.
            environment = {**os.environ, "TMPDIR": str(folder.path), "FONTCONFIG_FILE": str(fonts)}
            browser = await _launch(driver, path, allowed, environment)
            try:
                pid = await _identify(browser, folder)
            except BaseException as error:  # also on cancellation, so that no process remains
                with suppress(PlaywrightError, TimeoutError):
                    async with asyncio.timeout(CLOSE_S):
                        await browser.close()
                if isinstance(error, PlaywrightError):
                    raise WorldError(f"Chromium died while it started: {error.message.splitlines()[0]}") from error
                raise
            return cls(browser, pid, stack.pop_all(), allowed)

    @property
    def is_alive(self) -> bool:
        return self._browser.is_connected() and not self._is_killed

    async def new_context(self, width: int, height: int, scale: float = 1.0) -> BrowserContext:
        context = await self._browser.new_context(
            viewport={"width": width, "height": height},
            device_scale_factor=scale,
            accept_downloads=False,
            service_workers="block",
        )
        # Callers set the time limits; a second timer would only add a second kind of error.
        context.set_default_timeout(0)
        return context

    def kill(self) -> None:
        """End the whole process group at once. Calls that wait for an answer get an error."""
        if not self.is_alive:
            return  # its id may belong to another process by now
        self._is_killed = True
        with suppress(ProcessLookupError):
            group = os.getpgid(self._pid)
            if group == os.getpgrp():  # never our own group
                os.kill(self._pid, signal.SIGKILL)
            else:
                os.killpg(group, signal.SIGKILL)

    async def close(self) -> None:
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._browser.close()
        except (TimeoutError, PlaywrightError) as error:
            log.warning("Chromium did not close (%s); it is killed.", error)
            self.kill()
        self._resources.close()


class ChromiumPool:
    """Processes that serve many episodes. Each allow-list has its own processes, started when they are needed.

    Episodes with the same list share a process; `max_users` limits how many. With a limit of one, a process that dies
    ends only one episode. A dead process is replaced when the next one is needed. A pool belongs to the event loop in
    which it is first used.
    """

    def __init__(self, *, max_users: int | None = None) -> None:
        self._max_users = max_users
        self._driver: Playwright | None = None
        self._processes: list[ChromiumProcess] = []
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def process(self, allowed: tuple[str, ...]) -> ChromiumProcess:
        """A living process for this allow-list. Unused processes of other lists are closed."""
        async with self._lock:
            await self._clear_out(allowed)
            for process in self._processes:
                if process.allowed == allowed and (self._max_users is None or process.num_users < self._max_users):
                    return process
            self._driver = self._driver or await _start_driver()
            self._processes.append(await ChromiumProcess.start(self._driver, allowed))
            return self._processes[-1]

    async def close(self) -> None:
        async with self._lock:
            processes, self._processes = self._processes, []
            await asyncio.gather(*(process.close() for process in processes))
            await self._stop_driver()

    async def _clear_out(self, wanted: tuple[str, ...]) -> None:
        has_died = any(not process.is_alive for process in self._processes)
        for process in list(self._processes):
            if not process.is_alive or (process.allowed != wanted and process.num_users == 0):
                self._processes.remove(process)
                await process.close()
        if has_died and not self._processes:
            await self._stop_driver()  # the driver may have died and ended the browser

    async def _stop_driver(self) -> None:
        driver, self._driver = self._driver, None
        if driver is not None:
            with suppress(PlaywrightError, TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await driver.stop()


async def _start_driver() -> Playwright:
    await asyncio.to_thread(remove_leftovers)
    try:
        return await async_playwright().start()
    except Exception as error:  # Playwright has no exception type for a driver that ends at once
        raise UserError(
            f"Playwright's driver did not start ({error}). `playwright --version` tells why; on a bare Debian it "
            "misses a library: apt-get install libatomic1"
        ) from error


def host_rules(allowed: tuple[str, ...]) -> str:
    """Chromium's host rules: only allowed hosts resolve. The first rule that matches a host decides.

    Where every public site is allowed, only local names and IP addresses do not resolve.
    """
    rules = []
    for entry in allowed:
        if entry == ANY_PUBLIC:
            continue
        host = entry.rpartition(":")[0] if ":" in entry.rpartition("]")[2] else entry
        if is_numeric(host) or host == "localhost":
            # On this machine each port is another service, so the port is part of the rule.
            usual = (f"{host}:80", f"{host}:443")
            rules += [f"MAP {place} {place}" for place in ((entry,) if host != entry else usual)]
        else:
            rules += [f"EXCLUDE {host}", f"EXCLUDE *.{host}"]
    others = _NOT_PUBLIC if ANY_PUBLIC in allowed else ("*",)
    return ", ".join([*rules, *(f"MAP {pattern} ~NOTFOUND" for pattern in others)])


async def _launch(
    driver: Playwright, path: str | None, allowed: tuple[str, ...], environment: dict[str, str]
) -> Browser:
    try:
        return await driver.chromium.launch(
            executable_path=path,
            args=[*_FLAGS, f"--host-resolver-rules={host_rules(allowed)}"],
            env=dict(environment),
            chromium_sandbox=os.geteuid() != 0,  # the sandbox refuses to work for root
            artifacts_dir=environment["TMPDIR"],
            timeout=START_S * 1000,
        )
    except PlaywrightError as error:
        raise UserError(_why_not_started(error)) from error


async def _identify(browser: Browser, folder: BrowserFolder) -> int:
    """The process id, as the browser reports it. Playwright does not report it, and may have started a wrapper."""
    session = await browser.new_browser_cdp_session()
    folder.keep_profile((await session.send("SystemInfo.getInfo"))["commandLine"])
    info = await session.send("SystemInfo.getProcessInfo")
    await session.detach()
    return next(int(process["id"]) for process in info["processInfo"] if process["type"] == "browser")


def _why_not_started(error: PlaywrightError) -> str:
    if "Executable doesn't exist" in error.message:
        return (
            "There is no Chromium on this machine. Install one with: apt-get install chromium-headless-shell "
            "(or chromium), or: playwright install chromium-headless-shell"
        )
    # The message also holds the launch command with all flags; only the browser's own output gives a reason.
    said = list(dict.fromkeys(_SAID.findall(error.message)))
    reasons = [line for line in said if _REASON.search(line)] or said[-_NUM_REASONS:]
    if not reasons:
        first = (error.message.splitlines() or ["no reason given"])[0].removeprefix("BrowserType.launch: ")
        ending = _EXIT.search(error.message)
        reasons = [first if ending is None else f"{first} ({ending[1]})"]
    return f"Chromium did not start: {'; '.join(line[:_REASON_LENGTH] for line in reasons[:_NUM_REASONS])}"
