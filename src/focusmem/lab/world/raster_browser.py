"""The laboratory as a `Browser`, without Chromium: for machines that have none, and for speed."""

from focusmem.browser.base import Performed
from focusmem.errors import WorldError
from focusmem.lab.world.session import ORIGIN, Pages, PageSession
from focusmem.schemas.action import AnyAction, make_action
from focusmem.schemas.observation import Observation
from focusmem.schemas.screenshot import Screenshot


class RasterBrowser:
    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._session: PageSession | None = None

    async def open(self, url: str) -> None:
        """An address of the world, or only its path."""
        self._session = session = PageSession(self._pages, "/")
        refusal = session.perform(make_action("goto", url=url)).error
        if refusal is not None:
            self._session = None
            raise WorldError(f"The start page {url[:200]} cannot be opened. {refusal}")

    async def observe(self) -> Observation:
        session = self._open_session()
        screenshot = Screenshot.from_image(session.image())
        return Observation(screenshot, ORIGIN + session.path, session.scene.title, session.controls())

    async def perform(self, action: AnyAction, point: tuple[int, int] | None = None) -> Performed:
        return self._open_session().perform(action, point)

    async def close(self) -> None:
        self._session = None

    async def abandon(self) -> None:
        await self.close()

    def _open_session(self) -> PageSession:
        if self._session is None:
            raise WorldError("No page is open: open one first.")
        return self._session
