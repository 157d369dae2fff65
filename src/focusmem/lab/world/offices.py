"""Offices: sites whose lists show far more values than any task needs. The current decision needs one of them.

An office has three lists of ten to sixteen entries: codes, departments, prices or departures. Its staff pass the lists
on their way to their requests; visitors cannot reach the lists. A request has several parts, and each part asks for the
value of one entry.

A chain has several branches, which look alike and have different values. A branch's values change from time to time.
"""

import random
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from focusmem.lab.world.site import Look, SiteId, make_look
from focusmem.lab.world.words import CATEGORIES, COUNTRIES, MATERIALS, MATTERS, invented_name
from focusmem.seeds import derive_seed

ListName = Literal["codes", "departments", "prices", "times"]


@dataclass(frozen=True)
class ListRules:
    """The common properties of the lists of one kind."""

    title: str
    noun: str
    """The noun for a value, such as code."""
    joint: str
    """The word between the noun and an entry: the code of the lamp, the department for taxes."""
    entries: tuple[str, ...]
    """The names that entries are drawn from."""
    num_values: int | None
    """Number of values that an entry can have. None for departments, because a request offers only the departments of
    the office.
    """

    def phrase(self, entry: str) -> str:
        return f"{self.noun} {self.joint} {entry}"


LISTS: dict[ListName, ListRules] = {
    "codes": ListRules(
        "Index of codes", "code", "of", tuple(noun for nouns in CATEGORIES.values() for noun in nouns.split()), 10_000
    ),
    "departments": ListRules("Directory of departments", "department", "for", MATTERS, None),
    "prices": ListRules("Price list", "price", "of", tuple(MATERIALS), 9_000),
    "times": ListRules("Timetable", "departure", "to", tuple(COUNTRIES), 24 * 60),
}
NUM_LISTS = 3
"""Number of lists of an office."""
NUM_ENTRIES = (10, 16)
"""Minimum and maximum number of entries of a list."""
NUM_HALLS = 13
"""Number of halls between the entrance and a list that is open but far away. A visit has too few steps to pass them."""
_LETTERS = "ABCDEFGHJKLMNPRSTUVWXY"
"""The letters of departments, without letters that look like digits."""


@dataclass(frozen=True)
class Office:
    site_id: str
    chain: str
    branch: str
    """The place of the office. All branches of a chain have the same name and look."""
    look: Look
    is_far: bool
    """Whether a visitor's way to the lists is long; otherwise the lists are closed to visitors."""
    lists: tuple[ListName, ...]
    """In the order in which the staff pass them."""
    entries: dict[ListName, tuple[str, ...]] = field(hash=False)
    staff_pass: str
    """The pass that opens the lists. It is part of the addresses that the staff visit."""
    seed: int
    """The seed of everything that differs between branches."""
    base: "Office | None" = None
    """The id of the office of which this office is a branch or an earlier state."""

    @property
    def name(self) -> str:
        return f"{self.chain} in {self.branch}"

    def values(self, name: ListName, day: str | None = None) -> tuple[str, ...]:
        """The values of a list, in the order of its entries; `day` names a notice, which has its own values."""
        others = () if self.base is None or day is not None else self.base.values(name)
        return _values(self.seed, name, len(self.entries[name]), day, self._departments, others)

    def value(self, name: ListName, entry: str, day: str | None = None) -> str:
        return self.values(name, day)[self.entries[name].index(entry)]

    @property
    def _departments(self) -> tuple[str, ...]:
        """The departments of the chain. All branches have the same departments."""
        return _department_names(self.chain, len(self.entries.get("departments", ())))


@lru_cache(maxsize=4096)
def make_office(world_seed: int, site_id: str) -> Office:
    """`site_id` is a split's letters and a number, such as `eo-12`; a further letter names another branch of the chain,
    and `was1` the office before its last change.
    """
    parsed = SiteId.parse(site_id)
    assert parsed is not None, site_id
    assert parsed.is_office, site_id
    rng = random.Random(derive_seed(world_seed, "chain", parsed.base))
    chain = f"{invented_name(rng)} {rng.choice(('Office', 'Bureau', 'Agency', 'Centre'))}"
    look, is_far = make_look(rng), rng.random() < 0.5
    lists = tuple(rng.sample(list(LISTS), NUM_LISTS))
    entries = {name: tuple(rng.sample(LISTS[name].entries, rng.randint(*NUM_ENTRIES))) for name in lists}
    branches = random.Random(derive_seed(world_seed, "branch", parsed.base, parsed.branch))
    seed = derive_seed(world_seed, "office", site_id)
    return Office(
        site_id=site_id,
        chain=chain,
        branch=invented_name(branches),
        look=look,
        is_far=is_far,
        lists=lists,
        entries=entries,
        staff_pass=f"{random.Random(seed).randrange(10**8):08}",
        seed=seed,
        base=None if parsed.is_base else make_office(world_seed, parsed.base),
    )


@lru_cache(maxsize=8192)
def _values(
    seed: int, name: ListName, num: int, day: str | None, departments: tuple[str, ...], others: tuple[str, ...]
) -> tuple[str, ...]:
    """No entry gets the department that it has in `others`. Values of other lists are very likely to differ anyway."""
    rng = random.Random(derive_seed(seed, "values", name, day or ""))
    if name == "departments":
        values = rng.sample(departments, num)
        while any(own == other for own, other in zip(values, others, strict=False)):
            rng.shuffle(values)
        return tuple(values)
    drawn = rng.sample(range(LISTS[name].num_values or 0), num)
    if name == "codes":
        return tuple(f"{value:04}" for value in drawn)
    if name == "prices":
        return tuple(f"{10 + value / 100:.2f}" for value in drawn)
    return tuple(f"{value // 60:02}:{value % 60:02}" for value in drawn)


@lru_cache(maxsize=4096)
def _department_names(chain: str, num: int) -> tuple[str, ...]:
    rng = random.Random(derive_seed(0, "departments", chain))
    names: list[str] = []
    while len(names) < num:
        name = f"{rng.choice(_LETTERS)}{rng.choice(_LETTERS)}{rng.randrange(10)}"
        if name not in names:
            names.append(name)
    return tuple(names)
