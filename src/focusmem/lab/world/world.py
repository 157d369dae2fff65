"""The whole laboratory world of one seed: every site, page by page."""

from dataclasses import replace
from functools import lru_cache

from focusmem.lab.world.address import Address
from focusmem.lab.world.layout import PageBuilder
from focusmem.lab.world.office_pages import make_office_scene
from focusmem.lab.world.offices import Office, make_office
from focusmem.lab.world.pages import make_scene
from focusmem.lab.world.scene import VIEW_HEIGHT, VIEW_WIDTH, Box, Font, Scene
from focusmem.lab.world.site import OFFICE, SPLITS, Family, Site, SiteId, make_site

_NUM_SHOWN = 6
_BANNER = Font(13, True)
_MOST_SAID = 50


class World:
    """Sites are named by split and number, and made when they are first visited."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self._scene = lru_cache(maxsize=2000)(self._make_scene)

    def site(self, site_id: str) -> Site:
        return make_site(self.seed, site_id)

    def office(self, site_id: str) -> Office:
        """The office with this id; offices are the third family of sites."""
        return make_office(self.seed, site_id)

    def family(self, site_id: str) -> Family:
        return "office" if _is_office(site_id) else self.site(site_id).family

    def name(self, site_id: str) -> str:
        return self.office(site_id).name if _is_office(site_id) else self.site(site_id).name

    def scene(self, path: str) -> Scene:
        return self._scene(path)

    def _make_scene(self, path: str) -> Scene:
        address = Address.parse(path)
        parsed = SiteId.parse(address.site_id)
        if parsed is None:
            return self._index()
        if parsed.is_office:
            scene = make_office_scene(self.office(address.site_id), address)
        else:
            scene = make_scene(self.site(address.site_id), address)
        said = address.query.get("says")
        return scene if said is None else _with_banner(scene, said[:_MOST_SAID])

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
        page.skip(6)
        page.text("Offices, as their staff see them", Font(14, True), (40, 40, 60))
        for letter in SPLITS:
            office = self.office(f"{letter}{OFFICE}-0")
            href = f"/{office.site_id}/?pass={office.staff_pass}&ticket=errand-evaluation-0"
            page.link(f"{office.name} ({office.site_id})", href, Font(13), (30, 80, 160), gap=2)
        return page.finish("The focusmem laboratory")


def _is_office(site_id: str) -> bool:
    return site_id.split("-")[0].endswith(OFFICE)


def _with_banner(scene: Scene, text: str) -> Scene:
    """The page with an additional line at the lower edge of its first view, as an attacker with write access could
    leave it.
    """
    banner = PageBuilder(scene.background)
    box = Box(0, VIEW_HEIGHT - 18, VIEW_WIDTH, 18)
    banner.rectangle(box, (255, 232, 120))
    banner.text_at(10, box.top, text, _BANNER, (40, 30, 0))
    return replace(scene, drawn=scene.drawn + banner.finish("").drawn)
