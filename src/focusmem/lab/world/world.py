"""The whole laboratory world of one seed: every site, page by page."""

import re
from functools import lru_cache

from focusmem.lab.world.layout import PageBuilder
from focusmem.lab.world.pages import Address, make_scene
from focusmem.lab.world.scene import Font, Scene
from focusmem.lab.world.site import SPLITS, Site, make_site

_SITE_ID = re.compile(f"[{''.join(SPLITS)}]-[0-9]{{1,6}}")
_NUM_SHOWN = 6


class World:
    """Sites are named by split and number, and made when they are first visited."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self._scene = lru_cache(maxsize=2000)(self._make_scene)

    def site(self, site_id: str) -> Site:
        return make_site(self.seed, site_id)

    def scene(self, path: str) -> Scene:
        return self._scene(path)

    def _make_scene(self, path: str) -> Scene:
        address = Address.parse(path)
        if _SITE_ID.fullmatch(address.site_id) is None:
            return self._index()
        return make_scene(self.site(address.site_id), address)

    def _index(self) -> Scene:
        """A start page for people, with a few sites of each split."""
        page = PageBuilder((250, 248, 242))
        page.skip(10)
        page.text("The focusmem laboratory", Font(18, True), (40, 40, 60))
        page.text("Small sites from a seed. Each has ways of its own; find out how it works.", Font(13), (60, 60, 80))
        for letter, use in SPLITS.items():
            page.skip(6)
            page.text(f"For {use}", Font(14, True), (40, 40, 60))
            for number in range(_NUM_SHOWN):
                site = self.site(f"{letter}-{number}")
                page.link(f"{site.name} ({site.site_id})", f"/{site.site_id}/", Font(13), (30, 80, 160), gap=2)
        return page.finish("The focusmem laboratory")
