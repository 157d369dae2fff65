"""The pages of an office: scenes as a pure function of the path.

    /<office>/                     the entrance
    /<office>/list/<name>          a list, for the staff
    /<office>/closed/<name>        what a visitor finds instead, or
    /<office>/hall/<name>/<n>      the long way there
    /<office>/notice/<n>           notices and corridors before the entrance
    /<office>/request?v1=...       the parts of a request, with the values given so far
    /<office>/returned             where a wrong department leads

`ticket` in the query names the request, `pass` opens the lists, `done=1` says that the request was returned. `few=3`
shows only the first entries of a list. It occurs in no link and is used by drills.
"""

import random
from urllib.parse import quote, urlencode

from focusmem.lab.world.address import Address, index_of
from focusmem.lab.world.layout import PageBuilder
from focusmem.lab.world.offices import LISTS, NUM_HALLS, ListName, Office
from focusmem.lab.world.pictures import shade
from focusmem.lab.world.requests import NUM_CORRIDORS, Request, make_request
from focusmem.lab.world.scene import VIEW_HEIGHT, VIEW_WIDTH, Box, Font, Scene
from focusmem.lab.world.words import filler_sentence
from focusmem.seeds import derive_seed

GO_ON, OPEN, BACK, NEXT_HALL = "Go on", "Open request", "Back to start", "Next hall"
FIELDS: dict[ListName, str] = {"codes": "Code", "prices": "Price", "times": "Departure"}
"""The name of the field for a value. Departments are chosen with buttons instead."""
REFUSED = "That is not right."
"""The first text of a page after a wrong value."""

_TITLE, _HEAD, _BODY, _SMALL = Font(16, True), Font(14, True), Font(13), Font(12)
_NAME, _VALUE = Font(14, True), Font(14)
_WHITE = (255, 255, 255)
_ROW, _COLUMN = 23, 214
_FOOT = 252
"""The position of the links on a full page."""
_KEPT = ("ticket", "pass", "done", "says")


def make_office_scene(office: Office, address: Address) -> Scene:
    """The page at an address. An unknown address gives a page that says so."""
    page = _OfficePages(office, address)
    match address.parts:
        case ():
            return page.entrance()
        case ("list", name) if name in office.lists and address.query.get("pass") == office.staff_pass:
            return page.staff_list(name)
        case ("list" | "closed", name) if name in office.lists:
            return page.closed(name)
        case ("hall", name, number) if name in office.lists and number.isdecimal() and 0 < int(number) <= NUM_HALLS:
            return page.hall(name, int(number))
        case ("notice", number) if number.isdecimal() and page.request is not None:
            return page.notice(int(number), page.request)
        case ("request",) if page.request is not None:
            return page.part(page.request)
        case ("returned",):
            return page.returned()
    return page.lost()


def given_values(address: Address) -> list[str]:
    """The values given to a request so far, in order."""
    return [value for name, value in address.query.items() if name.startswith("v")]


def open_part(request: Request, address: Address) -> int | None:
    """The number of the part that a request's page shows, from zero. It is the number of parts if all parts are filled.
    None if a wrong department was chosen, which ends the request.
    """
    for part, (value, right) in enumerate(zip(given_values(address), request.values, strict=False)):
        if value.strip() != right:
            return None if request.needs[part].list_name == "departments" else part
    return min(len(given_values(address)), len(request.needs))


class _OfficePages:
    """Builds the scenes of one office for one address."""

    def __init__(self, office: Office, address: Address) -> None:
        self.office, self.address, self.look = office, address, office.look
        self.faint = shade(self.look.ink, 0.35 if sum(self.look.ink) < 380 else -0.3)
        ticket = address.query.get("ticket")
        self.request = None if ticket is None else make_request(office, ticket)
        self.is_staff = address.query.get("pass") == office.staff_pass

    # Whole pages

    def entrance(self) -> Scene:
        page = self._begin("Staff entrance" if self.is_staff else f"Welcome to {self.office.chain}")
        self._filler(page, "entrance", 3)
        if self.is_staff:
            first = self.office.lists[0]
            page.link(LISTS[first].title, self._to("list", first), _HEAD, self.look.accent, gap=8)
            return page.finish(self.office.name)
        if self.address.query.get("done") == "1":
            page.text("Your request was returned. There is no other one.", _BODY, self.look.ink, gap=8)
        elif self.request is not None:
            page.button(14, page.top, OPEN, self._to("request"), self.look.accent)
            page.skip(36)
        page.text("Lists of this office", _HEAD, self.look.ink)
        for name in self.office.lists:
            href = self._to("hall", name, 1) if self.office.is_far else self._to("closed", name)
            page.link(LISTS[name].title, href, _BODY, self.look.accent, gap=5)
        return page.finish(self.office.name)

    def staff_list(self, name: ListName) -> Scene:
        place = self.office.lists.index(name)
        page = self._list(name, LISTS[name].title, self.office.values(name))
        if place + 1 < len(self.office.lists):
            following = self.office.lists[place + 1]
            page.link_at(14, _FOOT, LISTS[following].title, self._to("list", following), _HEAD, self.look.accent)
        elif self.request is not None:
            page.link_at(14, _FOOT, OPEN, self._to("request"), _HEAD, self.look.accent)
        else:
            page.link_at(14, _FOOT, BACK, self._to(), _HEAD, self.look.accent)
        return page.finish(self.office.name, height=VIEW_HEIGHT)

    def notice(self, number: int, request: Request) -> Scene:
        href = self._to("notice", number + 1)
        if 0 < number <= len(request.notices):
            name = request.notices[number - 1]
            title = f"Notice: {LISTS[name].title.lower()} of today"
            page = self._list(name, title, self.office.values(name, request.day))
            page.link_at(14, _FOOT, GO_ON, href, _HEAD, self.look.accent)
            return page.finish(self.office.name, height=VIEW_HEIGHT)
        if len(request.notices) < number <= len(request.notices) + NUM_CORRIDORS:
            is_last = number == len(request.notices) + NUM_CORRIDORS
            page = self._begin("Corridor")
            self._filler(page, f"corridor {number}", 4)
            page.link(GO_ON, self._to() if is_last else href, _HEAD, self.look.accent)
            return page.finish(self.office.name)
        return self.lost()

    def closed(self, name: ListName) -> Scene:
        page = self._begin(LISTS[name].title)
        page.text("Closed. Only the staff may see it.", _BODY, self.look.ink)
        self._filler(page, f"closed {name}", 2)
        page.link(BACK, self._to(), _HEAD, self.look.accent)
        return page.finish(self.office.name)

    def hall(self, name: ListName, number: int) -> Scene:
        page = self._begin(f"Hall {number}")
        page.text(f"{LISTS[name].title}: in hall {NUM_HALLS}.", _BODY, self.look.ink)
        self._filler(page, f"hall {name} {number}", 3)
        if number < NUM_HALLS:
            page.link(NEXT_HALL, self._to("hall", name, number + 1), _HEAD, self.look.accent, gap=8)
        else:
            href = self._to("list", name, opens=True)
            page.link(LISTS[name].title, href, _HEAD, self.look.accent, gap=8)
        page.link(BACK, self._to(), _BODY, self.look.accent)
        return page.finish(self.office.name)

    def part(self, request: Request) -> Scene:
        at = open_part(request, self.address)
        if at is None:
            return self.returned()
        if at == len(request.needs):
            return self._accepted(request)
        need = request.needs[at]
        rules = LISTS[need.list_name]
        page = self._begin(f"Request, part {at + 1} of {len(request.needs)}")
        if len(given_values(self.address)) > at:
            page.text(REFUSED, _BODY, self.look.ink)
        asked = rules.phrase(need.entry) if request.is_named_by_page else rules.noun
        verb = "Choose" if need.list_name == "departments" else "Type"
        page.text(f"{verb} the {asked}.", _HEAD, self.look.ink, gap=8)
        before = list(request.values[:at])
        if need.list_name == "departments":
            self._choices(page, request, before)
        else:
            self._field(page, FIELDS[need.list_name], before)
        self._filler(page, f"part {need.list_name}", 3)
        return page.finish(self.office.name)

    def returned(self) -> Scene:
        page = self._begin("Request returned")
        page.text("This department does not handle it. The request is closed.", _BODY, self.look.ink)
        self._filler(page, "returned", 2)
        page.link(BACK, self._to(done=1), _HEAD, self.look.accent)
        return page.finish(self.office.name)

    def lost(self) -> Scene:
        page = self._begin("This page does not exist")
        page.link(BACK, self._to(), _HEAD, self.look.accent)
        return page.finish(self.office.name)

    def _accepted(self, request: Request) -> Scene:
        page = self._begin("Request accepted")
        self._filler(page, "accepted", 2)
        page.text(f"Receipt: {request.receipt}", _HEAD, self.look.ink, gap=8)
        self._filler(page, "thanks", 2)
        return page.finish(self.office.name)

    # Parts of pages

    def _begin(self, title: str) -> PageBuilder:
        page = PageBuilder(self.look.paper)
        page.rectangle(Box(0, 0, VIEW_WIDTH, 34), self.look.bar)
        page.text_at(10, 7, self.office.chain, _HEAD, _WHITE)
        page.text_at(262, 8, f"{self.office.branch} branch", _BODY, _WHITE)
        page.skip(42)
        page.text(title, _TITLE, self.look.ink)
        return page

    def _list(self, name: ListName, title: str, values: tuple[str, ...]) -> PageBuilder:
        """Entries with their values in two columns, all in one view."""
        page = self._begin(title)
        entries = self.office.entries[name]
        num_rows = -(-len(entries) // 2)
        shown = list(zip(entries, values, strict=True))[: index_of(self.address.query.get("few", "")) or len(entries)]
        for index, (entry, value) in enumerate(shown):
            column, row = divmod(index, num_rows)
            left, top = 14 + column * _COLUMN, page.top + row * _ROW
            if self.look.is_boxed:
                page.rectangle(Box(left - 4, top - 2, _COLUMN - 8, _ROW - 2), self.look.card, shade(self.look.bar, 0.7))
            page.text_at(left, top - 1, entry, _NAME, self.look.ink)
            page.text_at(left + 136, top - 1, value, _VALUE, self.look.ink)
        return page

    def _field(self, page: PageBuilder, name: str, before: list[str]) -> None:
        page.text_at(14, page.top + 3, f"{name}:", _BODY, self.look.ink)
        box = Box(104, page.top, 150, 24)
        page.rectangle(box, _WHITE, shade(self.look.bar, -0.4))
        page.field(box, name, self._to("request", values=before) + f"&v{len(before) + 1}={{text}}")
        page.skip(34)

    def _choices(self, page: PageBuilder, request: Request, before: list[str]) -> None:
        names = list(self.office.values("departments", request.day))
        random.Random(derive_seed(0, "choices", request.ticket)).shuffle(names)
        for index, name in enumerate(names):
            left, top = 14 + 106 * (index % 4), page.top + 32 * (index // 4)
            page.button(left, top, name, self._to("request", values=[*before, name]), self.look.accent, width=98)
        page.skip(32 * -(-len(names) // 4) + 4)

    def _filler(self, page: PageBuilder, purpose: str, num_sentences: int) -> None:
        rng = random.Random(derive_seed(0, self.office.site_id, self.office.chain, purpose))
        page.text(" ".join(filler_sentence(rng, "office") for _ in range(num_sentences)), _SMALL, self.faint, gap=6)

    def _to(self, *parts: str | int, values: list[str] | None = None, opens: bool = False, **changes: str | int) -> str:
        """The path of another page of the office, with the state of the visit. `opens` opens the lists."""
        query = {name: value for name, value in self.address.query.items() if name in _KEPT}
        query |= {"pass": self.office.staff_pass} if opens else {}
        query |= {name: str(value) for name, value in changes.items()}
        query |= {f"v{place}": value for place, value in enumerate(values or (), start=1)}
        path = "/".join(quote(str(part)) for part in (self.office.site_id, *parts))
        return f"/{path}" + ("/" if not parts else "") + (f"?{urlencode(query)}" if query else "")
