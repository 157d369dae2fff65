"""A browser of which a test decides what goes wrong."""

import asyncio
from collections.abc import Awaitable, Callable

from factories import make_screenshot
from focusmem.browser.base import Performed
from focusmem.errors import WorldError
from focusmem.schemas import Observation
from focusmem.schemas.action import AnyAction


class FakeBrowser:
    """Every look shows another page. The look number `hangs_at` never returns."""

    def __init__(
        self,
        *,
        hangs_at: int | None = None,
        meanwhile: Callable[[], Awaitable[None]] | None = None,
        dies_at: int | None = None,
    ) -> None:
        self.hangs_at, self.meanwhile, self.dies_at = hangs_at, meanwhile, dies_at
        self.num_looks = 0
        self.performed: list[AnyAction] = []
        self.points: list[tuple[int, int] | None] = []
        self.ended: list[str] = []

    async def open(self, url: str) -> None:
        self.url = url

    async def observe(self) -> Observation:
        if self.num_looks == self.hangs_at:
            if self.meanwhile is not None:
                await self.meanwhile()
            await asyncio.Event().wait()
        self.num_looks += 1
        return Observation(make_screenshot(self.num_looks // 2), self.url, "A page", ())

    async def perform(self, action: AnyAction, point: tuple[int, int] | None = None) -> Performed:
        if len(self.performed) == self.dies_at:
            raise WorldError("The browser has died.")
        self.performed.append(action)
        self.points.append(point)
        return Performed((3, 4) if action.name == "click" else None)

    async def close(self) -> None:
        self.ended.append("closed")

    async def abandon(self) -> None:
        self.ended.append("abandoned")
