"""Requests at an office: the values that their parts ask for. They are a function of the office and the request's
ticket.
"""

import random
from dataclasses import dataclass
from functools import lru_cache

from focusmem.lab.world.offices import ListName, Office
from focusmem.seeds import derive_seed

SEEN_BEFORE = ("notice", "relay")
"""Kinds whose values were on notices at the beginning of the same episode. Other kinds need the office's lists."""
NAMED_BY_PAGE = ("round", "relay")
"""Kinds whose pages name the entry that a part asks for. In other kinds the task names all entries, and a page says
only what kind of value it asks for.
"""
NUM_NOTICES = 2
NUM_PARTS = 3
NUM_CORRIDORS = 2
"""Number of pages between the last notice and the entrance, so that notices are no longer among the recent events when
they are needed.
"""


@dataclass(frozen=True)
class Need:
    """One entry whose value a request asks for."""

    list_name: ListName
    entry: str


@dataclass(frozen=True)
class Request:
    ticket: str
    kind: str
    needs: tuple[Need, ...]
    """In the order in which they are asked for."""
    values: tuple[str, ...]
    """The right values."""
    notices: tuple[ListName, ...]
    """The lists that notices show at the beginning. Their values belong to this request only."""
    receipt: str
    """The receipt, which the last page shows."""

    @property
    def day(self) -> str | None:
        """The `day` that selects the values of this request's notices."""
        return self.ticket if self.notices else None

    @property
    def is_named_by_page(self) -> bool:
        return self.kind in NAMED_BY_PAGE


def make_ticket(kind: str, use: str, number: int) -> str:
    return f"{kind}-{use}-{number}"


@lru_cache(maxsize=8192)
def make_request(office: Office, ticket: str) -> Request:
    """The same arguments give the same request. Every ticket gives a request, so that no address is an error."""
    kind = ticket.split("-")[0]
    rng = random.Random(derive_seed(office.seed, "request", ticket))
    notices = tuple(rng.sample(office.lists, NUM_NOTICES)) if kind in SEEN_BEFORE else ()
    lists = notices or office.lists
    if kind not in NAMED_BY_PAGE:  # one of each list, so that the part tells which of the task's entries it asks for
        needs = [Need(name, rng.choice(office.entries[name])) for name in rng.sample(lists, len(lists))]
    else:
        each = [Need(name, entry) for name in lists for entry in office.entries[name]]
        needs = rng.sample(each, NUM_PARTS)
    day = ticket if notices else None
    values = tuple(office.value(need.list_name, need.entry, day) for need in needs)
    return Request(ticket, kind, tuple(needs), values, notices, f"{rng.randrange(10**5):05}")
