"""Facts about steps at an office: the state of the page, the values in view, and the values that actions use."""

from collections.abc import Iterable

from focusmem.lab.world.address import Address, index_of
from focusmem.lab.world.office_pages import given_values, open_part
from focusmem.lab.world.offices import LISTS, ListName, Office
from focusmem.lab.world.requests import Request, make_request
from focusmem.schemas.action import AnyAction

NOTICE = "notice"
"""The way of an action with a value from a notice of the same episode (`ways.py`). The way of a value from a list is
the list's name.
"""


def state_at(office: Office, address: Address) -> str:
    """The state of a page, in a few words that can be checked on its screenshot."""
    shown = shown_list(office, address)
    if shown is not None:
        name, day = shown
        return f"{'' if day is None else 'notice of '}{LISTS[name].title.lower()}"
    match address.parts:
        case ():
            return "staff entrance" if address.query.get("pass") == office.staff_pass else "entrance"
        case ("notice", _):
            return "corridor"
        case ("hall", wanted, number):
            return f"hall {number} before {LISTS[_listed(wanted)].title.lower()}"
        case ("closed" | "list", wanted):
            return f"closed {LISTS[_listed(wanted)].title.lower()}"
        case ("request",):
            return _state_of_request(_request(office, address), address)
        case ("returned",):
            return "request returned"
    return "unknown page"


def _state_of_request(request: Request, address: Address) -> str:
    at = open_part(request, address)
    if at is None:
        return "request returned"
    if at == len(request.needs):
        return "request accepted"
    is_refused = len(given_values(address)) > at
    return f"part {at + 1} of the request{' after a wrong value' if is_refused else ''}"


def values_at(office: Office, address: Address) -> dict[str, str]:
    """The values in view, by the name of their entry."""
    shown = shown_list(office, address)
    if shown is not None:
        name, day = shown
        entries = zip(office.entries[name], office.values(name, day), strict=True)
        few = index_of(address.query.get("few", "")) or len(office.entries[name])
        return {LISTS[name].phrase(entry): value for entry, value in list(entries)[:few]}
    if address.parts == ("request",):
        request = _request(office, address)
        return {"receipt": request.receipt} if open_part(request, address) == len(request.needs) else {}
    return {}


def shown_list(office: Office, address: Address) -> tuple[ListName, str | None] | None:
    """The list that a page shows, and the day of its values; None if the page shows no list."""
    match address.parts:
        case ("list", name) if name in office.lists and address.query.get("pass") == office.staff_pass:
            return _listed(name), None
        case ("notice", number) if "ticket" in address.query:
            request = _request(office, address)
            if number.isdecimal() and 0 < int(number) <= len(request.notices):
                return request.notices[int(number) - 1], request.day
    return None


def used_way(office: Office, address: Address, action: AnyAction) -> str | None:
    """The way of an action that gives the right value to a part of a request: the name of the list with the value, or
    `NOTICE`.
    """
    if address.parts != ("request",):
        return None
    request = _request(office, address)
    at = open_part(request, address)
    if at is None or at == len(request.needs):
        return None
    given = {"click": "description", "type": "text"}.get(action.name)
    if given is None or getattr(action.arguments, given) != request.values[at]:
        return None
    return NOTICE if request.notices else request.needs[at].list_name


def lists_in(office: Office, addresses: Iterable[Address]) -> list[ListName]:
    """The office's lists that these pages show. Notices are left out, because their values belong to another day."""
    shown = (shown_list(office, address) for address in addresses)
    return list(dict.fromkeys(found[0] for found in shown if found is not None and found[1] is None))


def _request(office: Office, address: Address) -> Request:
    return make_request(office, address.query.get("ticket", ""))


def _listed(name: str) -> ListName:
    return next(one for one in LISTS if one == name)
