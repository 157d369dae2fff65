"""How solvers act at an office: the expert knows every value, the explorer looks for them and then guesses.

The explorer remembers only what it has tried. It has forgotten the notices when a request asks for their values.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from focusmem.lab.world.address import Address
from focusmem.lab.world.office_pages import BACK, FIELDS, GO_ON, NEXT_HALL, OPEN, open_part
from focusmem.lab.world.offices import LISTS, ListName, Office
from focusmem.lab.world.requests import Request
from focusmem.schemas import make_action
from focusmem.schemas.action import AnyAction

_MOST_HALLS, _MOST_GUESSES = 3, 2
"""Maximum number of halls that the explorer passes on the way to a list, and maximum number of guesses for a value."""


@dataclass
class OfficeVisit:
    """One visit. `next_action` is called once per step."""

    office: Office
    request: Request
    rng: random.Random | None
    """The explorer's choices; None for the expert."""
    gives_up: AnyAction
    _has_tried_lists: bool = field(default=False, init=False)
    _num_guesses: int = field(default=0, init=False)

    def next_action(self, address: Address, names: Sequence[str]) -> AnyAction:
        """The action on a page, given the names of its clickable elements."""
        match address.parts:
            case ("request",):
                return self._fill_in(address, names)
            case ("notice", _):
                return _click(GO_ON, names) or self.gives_up
            case ("list", _):
                # A list has one link: to the next list, or to the request.
                return make_action("click", description=names[0]) if names else self.gives_up
            case ("hall", _, number) if self.rng is not None and int(number) <= _MOST_HALLS:
                return _click(NEXT_HALL, names) or self.gives_up
            case ("closed", _) | ("hall", _, _):
                self._has_tried_lists = True
                return _click(BACK, names) or self.gives_up
            case ():
                return self._enter(address, names)
        return self.gives_up

    def _enter(self, address: Address, names: Sequence[str]) -> AnyAction:
        first = LISTS[self.office.lists[0]].title
        looks_for_lists = self.rng is not None and not self._has_tried_lists
        if address.query.get("pass") == self.office.staff_pass or looks_for_lists:
            return _click(first, names) or self.gives_up
        return _click(OPEN, names) or self.gives_up

    def _fill_in(self, address: Address, names: Sequence[str]) -> AnyAction:
        at = open_part(self.request, address)
        if at is None or self._num_guesses > _MOST_GUESSES:
            return self.gives_up
        if at == len(self.request.needs):
            return make_action("stop", answer=self.request.receipt)
        name = self.request.needs[at].list_name
        value = self.request.values[at]
        if self.rng is not None:
            self._num_guesses += 1
            value = self.rng.choice(names) if name == "departments" else _guess(name, self.rng)
        if name == "departments":
            return make_action("click", description=value)
        return make_action("type", text=value, description=FIELDS[name])


def _click(name: str, names: Sequence[str]) -> AnyAction | None:
    return make_action("click", description=name) if name in names else None


def _guess(name: ListName, rng: random.Random) -> str:
    """A value that the list might hold."""
    if name == "codes":
        return f"{rng.randrange(10_000):04}"
    if name == "prices":
        return f"{rng.randrange(1000, 10_000) / 100:.2f}"
    return f"{rng.randrange(24):02}:{rng.randrange(60):02}"
