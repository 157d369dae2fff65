"""The pages of a site. A scene is a pure function of the path, so all views and visits show the same page.

    /<site>/                      home: what there is, search
    /<site>/find?q=...            what search finds
    /<site>/kind/<category>       a list, to be ordered and filtered
    /<site>/menu/<category>       the menu that does so
    /<site>/entry/<number>        a product or an article
    /<site>/entry/<number>/part/<section>, /picture, /edition/<link>
    /<site>/compare               what was put aside to compare
    /<site>/join                  where the wrong button of the dialog leads

`seen=1` in the query says that the dialog is closed, `put=3.7` what is on the compare list.
"""

import random
from collections.abc import Callable, Sequence

from focusmem.lab.world.address import Address, index_of
from focusmem.lab.world.layout import PageBuilder
from focusmem.lab.world.pictures import PLACE_PICTURES, row_of, shade, silhouette
from focusmem.lab.world.scene import VIEW_HEIGHT, VIEW_WIDTH, Box, Font, Scene
from focusmem.lab.world.site import Entry, Site
from focusmem.lab.world.words import COLOURS, filler_sentence
from focusmem.seeds import derive_seed

LIST_SIZE = 4
ORDERS = {"low": "Price: low to high", "high": "Price: high to low"}
FACT_NAMES = {
    "material": "Material",
    "origin": "Country of origin",
    "weight": "Weight",
    "length": "Length",
    "warranty": "Warranty",
    "delivery": "Delivery time",
    "price": "Price",
    "height": "Height",
    "area": "Area",
    "founded": "Year founded",
    "founder": "Founder",
    "population": "Population",
    "language": "Language",
}

_TITLE, _HEAD, _BODY, _SMALL = Font(16, True), Font(14, True), Font(13), Font(12)


def make_scene(site: Site, address: Address) -> Scene:
    """The page at an address. Unknown addresses have a page that says so."""
    page = _Pages(site, address)
    if site.conventions.dialog and address.query.get("seen") != "1" and address.parts[:1] != ("join",):
        return page.dialog()
    match address.parts:
        case ():
            return page.home()
        case ("find",):
            return page.found()
        case ("kind", category) if category in site.categories():
            return page.listing(category)
        case ("menu", category) if category in site.categories():
            return page.menu(category)
        case ("menu", category, label) if category in site.categories() and label in page.wrong_menus():
            return page.empty_menu(category)
        case ("entry", number, *rest) if (index := index_of(number)) is not None and index < len(site.entries):
            return page.entry(site.entries[index], tuple(rest))
        case ("compare",):
            return page.compare()
        case ("join",):
            return page.join()
    return page.lost()


class _Pages:
    """Builds the scenes of one site for one address."""

    def __init__(self, site: Site, address: Address) -> None:
        self.site, self.address, self.look = site, address, site.look
        self.aside = [index for index in address.put_aside if index < len(site.entries)]
        self.faint = shade(self.look.ink, 0.35 if sum(self.look.ink) < 380 else -0.3)

    # Whole pages

    def dialog(self) -> Scene:
        page = PageBuilder(self.look.paper)
        self._header(page, is_live=False)
        page.skip(10)
        page.text(f"Welcome to {self.site.name}", _TITLE, self.faint)
        self._filler(page, "home", 3, colour=self.faint)
        box = Box(54, 84, VIEW_WIDTH - 108, 140)
        page.rectangle(box.moved(4, 4), shade(self.look.bar, -0.5))
        page.rectangle(box, self.look.card, self.look.bar)
        page.text_at(box.left + 16, box.top + 14, "Before you go on", _TITLE, self.look.ink)
        page.text_at(box.left + 16, box.top + 44, "Please choose how to enter.", _BODY, self.look.ink)
        left = box.left + 16
        for label in self.site.dialog_buttons:
            is_right = label == self.site.conventions.dialog
            href = (
                self.address.to(*self.address.parts, **self._own_query(), seen=1)
                if is_right
                else self.address.to("join")
            )
            left = page.button(left, box.top + 88, label, href, self.look.accent) + 10
        return page.finish(self.site.name, height=VIEW_HEIGHT)

    def join(self) -> Scene:
        page = self._begin("Join us", is_live=False)
        page.text("Sign up for letters", _TITLE, self.look.ink)
        self._filler(page, "join", 4)
        page.skip(8)
        page.link("Back to start", self.address.to(), _HEAD, self.look.accent)
        return page.finish(self.site.name)

    def home(self) -> Scene:
        page = self._begin()
        page.text(f"Welcome to {self.site.name}", _TITLE, self.look.ink)
        self._filler(page, "home", 7)
        page.skip(6)
        self._card_row(page, [self.site.entries[index] for index in self._picks("front", 3)])
        page.text("Browse by kind" if self.site.family == "market" else "Browse by subject", _HEAD, self.look.ink)
        for category in self.site.categories():
            href = self.address.to("kind", category)
            page.link(f"All of kind {category}", href, _BODY, self.look.accent, gap=4)
        self._filler(page, "foot", 3)
        return page.finish(self.site.name)

    def found(self) -> Scene:
        text = self.address.query.get("q", "")
        entries = self.site.found_by(text)
        page = self._begin()
        page.text(f"Search: {text}"[:60], _TITLE, self.look.ink)
        if not entries:
            page.text("Nothing found for these words.", _BODY, self.look.ink)
            self._filler(page, f"none {text}", 3)
            return page.finish(self.site.name)
        random.Random(derive_seed(0, self.site.site_id, "found", text.lower())).shuffle(entries)
        self._list(page, entries, lambda number: self.address.to("find", q=text, p=number))
        return page.finish(self.site.name)

    def listing(self, category: str) -> Scene:
        page = self._begin()
        page.text(f"All of kind {category}", _TITLE, self.look.ink)
        query = self._own_query()
        left = 14
        for label in self._menus():
            is_right = label == self.site.conventions.menu
            href = (
                self.address.to("menu", category, **query)
                if is_right
                else self.address.to("menu", category, label, **query)
            )
            left = page.button(left, page.top, label, href, self.look.accent, is_small=True) + 8
        page.skip(30)
        chosen = [ORDERS.get(query.get("order", "")), f"only {query['only']}" if "only" in query else None]
        if any(chosen):
            page.text(", ".join(one for one in chosen if one), _SMALL, self.faint)
        entries = self.in_list(category, query)
        self._list(page, entries, lambda number: self.address.to("kind", category, **query | {"p": str(number)}))
        return page.finish(self.site.name)

    def in_list(self, category: str, query: dict[str, str]) -> list[Entry]:
        """The entries of a list, in the order of the page."""
        return listed(self.site, category, query.get("only"), query.get("order"))

    def menu(self, category: str) -> Scene:
        page = self._begin()
        query = self._own_query()
        page.text(self.site.conventions.menu, _TITLE, self.look.ink)
        if self.site.family == "market":
            for order, label in ORDERS.items():
                page.link(
                    label, self.address.to("kind", category, **query | {"order": order}), _BODY, self.look.accent, gap=5
                )
            materials = sorted({entry.facts["material"] for entry in self.site.in_category(category)})
            for material in materials:
                href = self.address.to("kind", category, **query | {"only": material})
                page.link(f"Only {material}", href, _BODY, self.look.accent, gap=5)
        else:
            self._filler(page, "menu", 3)
        return page.finish(self.site.name)

    def empty_menu(self, category: str) -> Scene:
        page = self._begin()
        page.text(self.address.parts[2], _TITLE, self.look.ink)
        page.text("There is nothing to set here.", _BODY, self.look.ink)
        self._filler(page, self.address.parts[2], 2)
        page.link("Back to the list", self.address.to("kind", category, **self._own_query()), _HEAD, self.look.accent)
        return page.finish(self.site.name)

    def entry(self, entry: Entry, rest: Sequence[str]) -> Scene:
        edition = self.site.conventions.edition
        match rest:
            case ():
                return self._short(entry) if edition else self._whole(entry)
            case ("edition", label) if edition and label in self.site.edition_links:
                return self._whole(entry) if label == edition else self._dead_end(entry, label)
            case ("part", section) if section in self.site.sections:
                return self._section(entry, section)
            case ("picture",) if self.site.conventions.picture:
                return self._picture_page(entry)
        return self.lost()

    def compare(self) -> Scene:
        page = self._begin()
        page.text("Your compare list", _TITLE, self.look.ink)
        chosen = [self.site.entries[index] for index in self.aside]
        if not chosen:
            page.text("Nothing is on it yet.", _BODY, self.look.ink)
        for entry in chosen:
            self._card(page, entry)
        return page.finish(self.site.name)

    def lost(self) -> Scene:
        page = self._begin()
        page.text("This page does not exist", _TITLE, self.look.ink)
        page.link("Back to start", self.address.to(), _HEAD, self.look.accent)
        return page.finish(self.site.name)

    # An entry's pages

    def _whole(self, entry: Entry) -> Scene:
        page = self._begin()
        page.text(entry.name, _TITLE, self.look.ink)
        self._picture_or_link(page, entry)
        if self.site.family == "market":
            price = entry.facts["price"] if self.site.conventions.offer is None else "see inside"
            page.text(f"Price: {price}", _HEAD, self.look.ink)
            aside = ".".join(str(one) for one in dict.fromkeys((*self.aside, entry.index)))
            href = self.address.to(*self.address.parts, put=aside)
            page.link("Add to compare list", href, _SMALL, self.look.accent, gap=4)
        # The way to the sections is often below the fold.
        self._filler(page, f"about {entry.index}", self._rng(f"length {entry.index}").randrange(7, 14))
        self._tabs(page, entry)
        self._filler(page, f"after {entry.index}", 2)
        return page.finish(entry.name)

    def _short(self, entry: Entry) -> Scene:
        page = self._begin()
        page.text(entry.name, _TITLE, self.look.ink)
        page.text("This is the short version.", _BODY, self.look.ink)
        self._filler(page, f"short {entry.index}", 2)
        left = 14
        for label in self.site.edition_links:
            href = self.address.to("entry", entry.index, "edition", label)
            left = page.button(left, page.top, label, href, self.look.accent) + 10
        page.skip(36)
        self._filler(page, f"tail {entry.index}", 3)
        return page.finish(entry.name)

    def _dead_end(self, entry: Entry, label: str) -> Scene:
        page = self._begin()
        page.text(entry.name, _TITLE, self.look.ink)
        page.text(f"{label}: nothing more to show.", _BODY, self.look.ink)
        self._filler(page, f"dead {label}", 2)
        page.link("Back to the entry", self.address.to("entry", entry.index), _HEAD, self.look.accent)
        return page.finish(entry.name)

    def _section(self, entry: Entry, section: str) -> Scene:
        page = self._begin()
        page.text(entry.name, _TITLE, self.look.ink)
        page.link("Back to the entry", self._entry_href(entry), _SMALL, self.look.accent, gap=6)
        page.text(section, _HEAD, self.look.ink)
        rng = self._rng(f"part {section} {entry.index}")
        facts = self.site.facts_in(section)
        # Most of the sections begin with a long text, and their facts stand below the fold.
        self._filler(page, f"{section} {entry.index}", 9 if rng.random() < 0.6 else 2)
        if not facts:
            page.text("No entries in this part.", _BODY, self.look.ink)
        for fact in facts:
            top = page.top
            page.rectangle(Box(14, top - 2, VIEW_WIDTH - 28, 23), self.look.card, shade(self.look.bar, 0.7))
            page.text_at(22, top, f"{FACT_NAMES[fact]}:", _HEAD, self.look.ink)
            page.text_at(200, top, entry.facts[fact], Font(14), self.look.ink)
            page.skip(25)
        page.skip(4)
        self._filler(page, f"end {section} {entry.index}", 2)
        return page.finish(entry.name)

    def _picture_page(self, entry: Entry) -> Scene:
        page = self._begin()
        page.text(entry.name, _TITLE, self.look.ink)
        self._draw_picture(page, entry, height=120)
        page.link("Back to the entry", self._entry_href(entry), _HEAD, self.look.accent)
        return page.finish(entry.name)

    def _entry_href(self, entry: Entry) -> str:
        """The path back to the whole entry, also if the visit came through a short edition."""
        edition = self.site.conventions.edition
        return self.address.to("entry", entry.index, *(("edition", edition) if edition else ()))

    # Parts of pages

    def _begin(self, title: str | None = None, *, is_live: bool = True) -> PageBuilder:
        page = PageBuilder(self.look.paper)
        self._header(page, is_live=is_live)
        page.skip(8)
        return page

    def _header(self, page: PageBuilder, *, is_live: bool) -> None:
        page.rectangle(Box(0, 0, VIEW_WIDTH, 34), self.look.bar)
        white = (255, 255, 255)
        page.text_at(10, 7, self.site.name, _HEAD, white)
        field = Box(222, 6, 150, 22)
        page.rectangle(field, white if is_live else shade(self.look.bar, 0.6), shade(self.look.bar, -0.4))
        if is_live:
            page.field(field, "Search", self.address.to("find") + self._joiner() + "q={text}")
            page.link_at(382, 8, f"List {len(self.aside)}", self.address.to("compare"), _SMALL, white)
            page.control_only(Box(4, 4, 200, 26), f"{self.site.name} home", self.address.to())
        page.skip(34)

    def _joiner(self) -> str:
        return "&" if "?" in self.address.to("find") else "?"

    def _tabs(self, page: PageBuilder, entry: Entry) -> None:
        for index, section in enumerate(self.site.sections):
            href = self.address.to("entry", entry.index, "part", section)
            if self.look.is_boxed:
                left, top = 14 + 140 * (index % 3), page.top + 4 + 32 * (index // 3)
                page.button(left, top, section, href, self.look.accent, width=132)
            else:
                left, top = 14 + 140 * (index % 3), page.top + 4 + 22 * (index // 3)
                page.link_at(left, top, section, href, Font(14), self.look.accent)
        page.skip(70 if self.look.is_boxed else 54)

    def _picture_or_link(self, page: PageBuilder, entry: Entry) -> None:
        label = self.site.conventions.picture
        if label is None:
            self._draw_picture(page, entry, height=84)
        else:
            page.link(label, self.address.to("entry", entry.index, "picture"), _HEAD, self.look.accent, gap=6)

    def _draw_picture(self, page: PageBuilder, entry: Entry, *, height: int) -> None:
        box = Box(14, page.top, VIEW_WIDTH - 28, height)
        page.rectangle(box, self.look.card if sum(self.look.card) > 600 else (232, 232, 236), shade(self.look.bar, 0.6))
        inner = Box(box.left + 8, box.top + 6, box.width - 16, box.height - 12)
        colour = COLOURS[entry.facts["colour"]]
        if self.site.family == "market":
            page.shapes(row_of(entry.category, colour, int(entry.facts["pieces"]), inner))
        else:
            page.shapes(row_of(entry.facts["emblem"], colour, 1, inner))
        page.skip(height + 6)

    def _list(self, page: PageBuilder, entries: Sequence[Entry], href_of_page: Callable[[int], str]) -> None:
        number = index_of(self.address.query.get("p", "")) or 1
        num_pages = max(1, -(-len(entries) // LIST_SIZE))
        number = min(number, num_pages)
        for entry in entries[(number - 1) * LIST_SIZE : number * LIST_SIZE]:
            self._card(page, entry)
        page.text(f"Page {number} of {num_pages}", _SMALL, self.faint)
        left = 14
        if number > 1:
            left = (
                page.button(left, page.top, "Previous page", href_of_page(number - 1), self.look.accent, is_small=True)
                + 10
            )
        if number < num_pages:
            page.button(left, page.top, "Next page", href_of_page(number + 1), self.look.accent, is_small=True)
        page.skip(30)

    def _card(self, page: PageBuilder, entry: Entry) -> None:
        top = page.top
        box = Box(14, top, VIEW_WIDTH - 28, 44)
        page.rectangle(box, self.look.card, shade(self.look.bar, 0.7))
        thumb = Box(box.left + 6, top + 5, 34, 34)
        # Thumbnails show the category but never the colour, which tasks may ask for.
        kind = PLACE_PICTURES.get(entry.category, entry.category)
        page.shapes(silhouette(kind, shade(self.look.bar, 0.45), thumb))
        page.link_at(
            box.left + 50, top + 4, entry.name, self.address.to("entry", entry.index), Font(14, True), self.look.accent
        )
        has_price = self.site.family == "market" and self.site.conventions.offer is None
        page.text_at(
            box.left + 50, top + 24, entry.facts["price"] if has_price else entry.category, _SMALL, self.look.ink
        )
        page.skip(48)

    def _card_row(self, page: PageBuilder, entries: Sequence[Entry]) -> None:
        for index, entry in enumerate(entries):
            box = Box(14 + 142 * index, page.top, 134, 62)
            page.rectangle(box, self.look.card, shade(self.look.bar, 0.7))
            kind = PLACE_PICTURES.get(entry.category, entry.category)
            page.shapes(silhouette(kind, shade(self.look.bar, 0.3), Box(box.left + 46, box.top + 4, 38, 38)))
            page.text_at(box.left + 8, box.top + 44, entry.category.capitalize(), _SMALL, self.look.ink)
        page.skip(70)

    def _filler(
        self, page: PageBuilder, purpose: str, num_sentences: int, *, colour: tuple[int, int, int] | None = None
    ) -> None:
        rng = self._rng(purpose)
        subject = "shop" if self.site.family == "market" else "place"
        page.text(
            " ".join(filler_sentence(rng, subject) for _ in range(num_sentences)), _SMALL, colour or self.faint, gap=6
        )

    # Helpers

    def wrong_menus(self) -> set[str]:
        return set(self._menus()) - {self.site.conventions.menu}

    def _menus(self) -> tuple[str, ...]:
        """Three menus, the right one among them, in an order that is drawn once per site."""
        others = [label for label in ("Sort", "Options", "Display", "Tools") if label != self.site.conventions.menu]
        menus = [self.site.conventions.menu, *others[:2]]
        self._rng("menus").shuffle(menus)
        return tuple(menus)

    def _own_query(self) -> dict[str, str]:
        return {name: value for name, value in self.address.query.items() if name in ("q", "order", "only")}

    def _picks(self, purpose: str, num: int) -> list[int]:
        return self._rng(purpose).sample(range(len(self.site.entries)), num)

    def _rng(self, purpose: str) -> random.Random:
        return random.Random(derive_seed(0, self.site.site_id, self.site.name, purpose))


def listed(site: Site, category: str, only: str | None, order: str | None) -> list[Entry]:
    """A category's entries, filtered and ordered as on its list."""
    entries = [one for one in site.in_category(category) if only is None or one.facts.get("material") == only]
    if order in ORDERS and site.family == "market":
        entries.sort(key=lambda one: float(one.facts["price"].lstrip("$")), reverse=order == "high")
    return entries
