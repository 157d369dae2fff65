"""Drives an environment of BrowserGym (`gymnasium.make`) as a browser of ours.

BrowserGym uses Playwright's blocking interface through one object for the whole process, so all environments live in
one thread of their own. It decides itself which hosts a page may reach; our lists of hosts do not apply.
"""

import asyncio
import importlib
import json
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, TypeVar

from focusmem.browser.executable import find_browser
from focusmem.browser.grounder import Grounder
from focusmem.browser.gym_page import ACTION_SETS, GymPage
from focusmem.errors import UserError, WorldError
from focusmem.files import cache_folder

PREFIX: Final = "browsergym/"
"""What the ids of BrowserGym's environments begin with."""
HELP: Final = (
    "This needs BrowserGym, in an environment of its own: pip install focusmem[browsergym], then "
    "pip install --no-deps browsergym-core browsergym-miniwob (or another of its benchmarks)."
)
_LIMIT_S: Final = 180.0
_BROWSERS_VARIABLE: Final = "PLAYWRIGHT_BROWSERS_PATH"

ValueT = TypeVar("ValueT")

_THREAD: Final = ThreadPoolExecutor(1, thread_name_prefix="browsergym")


class GymBrowser(GymPage):
    """One environment. `open` resets it; the address is part of the environment's own task."""

    def __init__(self, name: str, seed: int, *, grounder: Grounder | None = None, presses_enter: bool = False) -> None:
        """`name` is the environment's id without its prefix, such as `miniwob.click-test`."""
        super().__init__(grounder=grounder, presses_enter=presses_enter)
        self._name, self._seed = name, seed
        self._env: Any = None

    async def open(self, url: str) -> None:
        await self.close()
        self._env = await _in_thread(partial(make_env, self._name))
        self._obs, _ = await _in_thread(partial(self._env.reset, seed=self._seed))
        self._reward, self._is_over = 0.0, False

    async def _step(self, code: str) -> None:
        self._obs, reward, terminated, truncated, _ = await _in_thread(partial(self._env.step, code))
        self._reward, self._is_over = float(reward), bool(terminated or truncated)

    async def close(self) -> None:
        env, self._env = self._env, None
        if env is not None:
            await _in_thread(env.close)

    async def abandon(self) -> None:
        await self.close()


async def first_look(name: str, seed: int) -> dict[str, Any]:
    """The first observation of a task."""
    env = await _in_thread(partial(make_env, name))
    try:
        obs, _ = await _in_thread(partial(env.reset, seed=seed))
    finally:
        await _in_thread(env.close)
    return dict(obs)


def make_env(name: str) -> Any:
    """An environment that takes the actions of `GymPage`."""
    prepare(name)
    import gymnasium
    from browsergym.core.action.highlevel import HighLevelActionSet

    actions = HighLevelActionSet(subsets=list(ACTION_SETS), strict=False, multiaction=True)
    return gymnasium.make(PREFIX + name, headless=True, action_mapping=actions.to_python_code)


def prepare(name: str) -> None:
    """Imports the package that registers a task, and tells its Playwright where our Chromium is."""
    package = f"browsergym.{name.partition('.')[0]}"
    for wanted in ("browsergym", "browsergym.core", package if "." in name else "browsergym.core"):
        if find_spec(wanted) is None:
            raise UserError(f"{wanted} is not installed. {HELP}")
    _lend_chromium()
    if package == "browsergym.miniwob" and "MINIWOB_URL" not in os.environ:
        pages = find_spec("miniwob")
        if pages is None or pages.origin is None:
            raise UserError("MiniWoB++'s pages are missing: pip install miniwob, or set MINIWOB_URL.")
        os.environ["MINIWOB_URL"] = (Path(pages.origin).parent / "html" / "miniwob").as_uri() + "/"
    importlib.import_module("browsergym.core")
    if "." in name:
        importlib.import_module(package)


def _lend_chromium() -> None:
    """BrowserGym starts the Chromium that Playwright has downloaded, and its chat window takes no other. Where only
    another one is installed, links to it stand in its place, in the cache.
    """
    chosen = find_browser()
    if chosen is None or _BROWSERS_VARIABLE in os.environ or sys.platform != "linux":
        return
    import playwright

    listed = Path(playwright.__file__).parent / "driver" / "package" / "browsers.json"
    revisions = {one["name"]: one["revision"] for one in json.loads(listed.read_text())["browsers"]}
    folder = cache_folder() / "browsergym-browsers"
    for name, program in (
        ("chromium", "chrome-linux64/chrome"),
        ("chromium-headless-shell", "chrome-headless-shell-linux64/chrome-headless-shell"),
    ):
        place = folder / f"{name.replace('-', '_')}-{revisions[name]}"
        link = place / program
        link.parent.mkdir(parents=True, exist_ok=True)
        (place / "INSTALLATION_COMPLETE").touch()
        if not link.is_symlink() or str(link.readlink()) != chosen:
            link.unlink(missing_ok=True)
            link.symlink_to(chosen)
    os.environ[_BROWSERS_VARIABLE] = str(folder)


async def _in_thread(work: Callable[[], ValueT]) -> ValueT:
    """Runs in BrowserGym's thread. What breaks there is the world's error, unless it is the user's."""
    try:
        async with asyncio.timeout(_LIMIT_S):
            return await asyncio.get_running_loop().run_in_executor(_THREAD, work)
    except (UserError, WorldError):
        raise
    except Exception as error:
        raise WorldError(f"BrowserGym failed: {type(error).__name__}: {error}") from error
