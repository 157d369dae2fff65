"""A site made from a seed: its entries with their facts, and hidden conventions that an agent cannot know beforehand.

Every convention has a common form that about half of the sites follow, independently of other conventions. An agent
without memory can therefore have a prior, and experience from one site can mislead on another.
"""

import colorsys
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from focusmem.lab.world.pictures import EMBLEMS, shade
from focusmem.lab.world.scene import Colour
from focusmem.lab.world.words import (
    ADJECTIVES,
    CATEGORIES,
    COLOURS,
    COUNTRIES,
    LANGUAGES,
    MATERIALS,
    PLACES,
    invented_name,
)
from focusmem.seeds import derive_seed

Family = Literal["market", "encyclopedia", "office"]
"""Offices are sites of their own kind; see `offices.py`."""
QueryForm = Literal["full", "last", "first"]

COMMON_SHARE = 0.5

SPLITS = {"p": "pretraining", "m": "memory training", "v": "validation", "e": "evaluation"}
"""First letter of a site's id; sites of different splits never share a seed."""
OFFICE = "o"
"""Second letter of an office's id (`offices.py`)."""
BRANCHES = "bcd"
"""Letters of a site's other branches, at the end of an id: `e-12b` looks like `e-12`, but has other values."""
MAX_CHANGES = 9


@dataclass(frozen=True)
class SiteId:
    """The parts of a site's id: `e-12` is a site, `e-12b` a branch of it, and `e-12was1` the site before its last
    change. An office has `eo` in place of `e`.
    """

    split: str
    number: int
    branch: str = ""
    num_changes_ago: int = 0

    @classmethod
    def parse(cls, text: str) -> "SiteId | None":
        """None if no site has such an id."""
        found = _SITE_ID.fullmatch(text)
        if found is None:
            return None
        split, number, branch, changes = found.groups()
        return cls(split, int(number), branch or "", int(changes or 0))

    @property
    def base(self) -> str:
        """The id of the site of which this site is a branch or an earlier state."""
        return f"{self.split}-{self.number}"

    @property
    def is_base(self) -> bool:
        return not self.branch and not self.num_changes_ago

    @property
    def is_office(self) -> bool:
        return self.split.endswith(OFFICE)


_SITE_ID = re.compile(f"([{''.join(SPLITS)}]{OFFICE}?)-([0-9]{{1,6}})(?:([{BRANCHES}])|was([1-{MAX_CHANGES}]))?")


@dataclass(frozen=True)
class FamilyRules:
    """The common properties of all sites of a family."""

    groups: dict[str, tuple[str, ...]]
    """Facts that are always shown together: a convention gives the place of a group, not of a single fact."""
    common_sections: dict[str, str]
    """The common form: the section that holds each group."""
    other_sections: tuple[str, ...]
    """Labels of the additional sections; each site has three of them."""
    picture_facts: tuple[str, ...]
    """Facts that only the picture shows."""
    picture_labels: tuple[str, ...]
    """Labels of the link to the picture, if the picture is not on the entry's own page."""


RULES: dict[Family, FamilyRules] = {
    "market": FamilyRules(
        groups={
            "make": ("material", "origin"),
            "measure": ("weight", "length"),
            "service": ("warranty", "delivery"),
            "offer": ("price",),
        },
        common_sections={"make": "Details", "measure": "Specs", "service": "Service"},
        other_sections=tuple("Notes Guide Extras Sheet Profile Data Care About Facts Story Index Parts".split()),
        picture_facts=("colour", "pieces"),
        picture_labels=("Photo", "Gallery", "View", "Look"),
    ),
    "encyclopedia": FamilyRules(
        groups={
            "land": ("height", "area"),
            "past": ("founded", "founder"),
            "people": ("population", "language"),
        },
        common_sections={"land": "Geography", "past": "History", "people": "People"},
        other_sections=tuple(
            "Overview Nature Records Culture Notes Life Sources Data Trade Legacy Names Travel".split()
        ),
        picture_facts=("emblem", "colour"),
        picture_labels=("Media", "Image", "Arms", "Plate"),
    ),
}

DIALOG_LABELS = tuple("Continue Later Enter Skip Accept Proceed Dismiss Agree".split())
MENU_LABELS = tuple("Sort Options Display Tools".split())
EDITION_LABELS = tuple("Expand Unfold Read Open".split())
NUM_SECTIONS = 6
NUM_FOUND = 9
"""Search fills its results up to this number with entries that share a word, so the right one may be on the second
page.
"""
NUM_CHOICES = 3
"""Buttons of a dialog, and links of a short edition; one of them is right."""

MIN_CONTRAST = 4.5
"""Minimum contrast between a site's colours and their background."""


@dataclass(frozen=True)
class Conventions:
    """The hidden conventions of a site, which demonstrations show. None stands for a common form that has no value."""

    dialog: str | None
    """The button that closes the dialog in front of the site; no dialog at all on common sites."""
    query: QueryForm
    """The words that search accepts: the full name on common sites, or only its last or first word."""
    section_of: dict[str, str]
    """The section that holds each group of facts."""
    offer: str | None
    """The section that holds the price; on common sites it stands on the product's page."""
    picture: str | None
    """The link to the picture; on common sites it stands on the entry's page."""
    menu: str
    """The menu that orders and filters a list; `Sort` on common sites."""
    edition: str | None
    """The link from a short article to the whole one; common sites show the whole one."""


@dataclass(frozen=True)
class Entry:
    """A product or an article."""

    index: int
    name: str
    category: str
    facts: dict[str, str]


@dataclass(frozen=True)
class Look:
    """The appearance of a site, which does not depend on its conventions."""

    bar: Colour
    accent: Colour
    paper: Colour
    card: Colour
    ink: Colour
    is_boxed: bool
    """Whether sections are boxes in rows or lines of a list."""


@dataclass(frozen=True)
class Site:
    site_id: str
    family: Family
    name: str
    look: Look
    conventions: Conventions
    entries: tuple[Entry, ...]
    sections: tuple[str, ...]
    dialog_buttons: tuple[str, ...]
    edition_links: tuple[str, ...]

    @property
    def rules(self) -> FamilyRules:
        return RULES[self.family]

    def categories(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(entry.category for entry in self.entries))

    def in_category(self, category: str) -> list[Entry]:
        return [entry for entry in self.entries if entry.category == category]

    def query_for(self, entry: Entry) -> str:
        """The words that find an entry on this site."""
        words = entry.name.split()
        return {"full": entry.name, "last": words[-1], "first": words[0]}[self.conventions.query]

    def found_by(self, query: str) -> list[Entry]:
        """The search results: entries whose required words equal the query, and some entries that share a word
        with it.
        """
        wanted = " ".join(query.lower().split())
        exact = [entry for entry in self.entries if self.query_for(entry).lower() == wanted]
        words = set(wanted.split())
        alike = [entry for entry in self.entries if entry not in exact and words & set(entry.name.lower().split())]
        return exact + alike[: max(0, NUM_FOUND - len(exact))] if exact else []

    def group_of(self, fact: str) -> str:
        return next(group for group, facts in self.rules.groups.items() if fact in facts)

    def place_of(self, fact: str) -> str | None:
        """The section that shows a fact; None if the entry's own page shows it."""
        group = self.group_of(fact)
        return self.conventions.offer if group == "offer" else self.conventions.section_of[group]

    def facts_in(self, section: str) -> tuple[str, ...]:
        return tuple(
            fact
            for group, facts in self.rules.groups.items()
            for fact in facts
            if (self.conventions.offer if group == "offer" else self.conventions.section_of[group]) == section
        )


@lru_cache(maxsize=4096)
def make_site(world_seed: int, site_id: str) -> Site:
    """`site_id` is a split's letter and a number, such as `e-12`; even numbers are markets. A branch or an earlier
    state of a site has the same look and entries, but other conventions and facts.
    """
    parsed = SiteId.parse(site_id)
    assert parsed is not None, site_id
    rng = random.Random(derive_seed(world_seed, "site", site_id))
    if not parsed.is_base:
        return _changed(make_site(world_seed, parsed.base), parsed, rng)
    family: Family = "market" if parsed.number % 2 == 0 else "encyclopedia"
    rules = RULES[family]
    extras = rng.sample(rules.other_sections, NUM_SECTIONS - len(rules.common_sections))
    sections = [*rules.common_sections.values(), *extras]
    rng.shuffle(sections)
    buttons, editions = rng.sample(DIALOG_LABELS, NUM_CHOICES), rng.sample(EDITION_LABELS, NUM_CHOICES)
    conventions = _make_conventions(rng, family, sections, buttons, editions)
    ending = rng.choice(_NAME_ENDINGS[family])
    return Site(
        site_id=site_id,
        family=family,
        name=f"{invented_name(rng)} {ending}",
        look=make_look(rng),
        conventions=conventions,
        entries=_make_products(rng) if family == "market" else _make_articles(rng),
        sections=tuple(sections),
        dialog_buttons=tuple(buttons),
        edition_links=tuple(editions),
    )


def _changed(site: Site, parsed: SiteId, rng: random.Random) -> Site:
    """Makes another branch or an earlier state of a site: within each category, facts are exchanged between entries."""
    entries = list(site.entries)
    for category in site.categories():
        own = site.in_category(category)
        ahead = rng.randrange(1, len(own))
        for place, entry in enumerate(own):
            entries[entry.index] = replace(entry, facts=own[(place + ahead) % len(own)].facts)
    args = (rng, site.family, list(site.sections), list(site.dialog_buttons), list(site.edition_links))
    while (conventions := _make_conventions(*args)) == site.conventions:
        pass
    return replace(
        site,
        site_id=parsed.base + (parsed.branch or f"was{parsed.num_changes_ago}"),
        name=f"{site.name} {invented_name(rng, 1)}" if parsed.branch else site.name,
        conventions=conventions,
        entries=tuple(entries),
    )


_NAME_ENDINGS: dict[Family, tuple[str, ...]] = {
    "market": ("Market", "Store", "Shop", "Bazaar", "Outlet", "Depot"),
    "encyclopedia": ("Pedia", "Atlas", "Lexicon", "Almanac", "Archive", "Reader"),
}


def _make_conventions(
    rng: random.Random, family: Family, sections: list[str], buttons: list[str], editions: list[str]
) -> Conventions:
    rules = RULES[family]

    def is_common() -> bool:
        return rng.random() < COMMON_SHARE

    section_of = {
        group: home if is_common() else rng.choice([name for name in sections if name != home])
        for group, home in rules.common_sections.items()
    }
    query: QueryForm = "full" if is_common() else rng.choice(("last", "first"))
    is_market = family == "market"
    return Conventions(
        dialog=None if is_common() else rng.choice(buttons),
        query=query,
        section_of=section_of,
        offer=None if not is_market or is_common() else rng.choice(sections),
        picture=None if is_common() else rng.choice(rules.picture_labels),
        menu="Sort" if is_common() else rng.choice(MENU_LABELS[1:]),
        edition=None if is_market or is_common() else rng.choice(editions),
    )


def make_look(rng: random.Random) -> Look:
    hue, other = rng.random(), rng.random()
    dark = rng.random() < 0.12
    paper = _hsl(hue, 0.35, 0.96) if not dark else _hsl(hue, 0.2, 0.16)
    return Look(
        bar=_readable(_hsl(hue, 0.55, 0.33), (255, 255, 255)),
        accent=_readable(_hsl(other, 0.65, 0.38 if not dark else 0.7), paper),
        paper=paper,
        card=(255, 255, 255) if not dark else _hsl(hue, 0.2, 0.24),
        ink=(28, 30, 38) if not dark else (236, 236, 240),
        is_boxed=rng.random() < 0.5,
    )


def _readable(colour: Colour, ground: Colour) -> Colour:
    """The colour, made darker or lighter until its contrast with the background suffices."""
    amount = -0.06 if _luminance(ground) > 0.4 else 0.06
    while _contrast(colour, ground) < MIN_CONTRAST:
        colour = shade(colour, amount)
    return colour


def _contrast(one: Colour, other: Colour) -> float:
    """The contrast ratio of the W3C's accessibility guidelines, from 1 to 21."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: Colour) -> float:
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in (one / 255 for one in colour)
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _hsl(hue: float, saturation: float, lightness: float) -> Colour:
    red, green, blue = colorsys.hls_to_rgb(hue, lightness, saturation)
    return round(red * 255), round(green * 255), round(blue * 255)


def _make_products(rng: random.Random) -> tuple[Entry, ...]:
    """Five categories of eight products. There are few makers, so that a maker's name finds several products."""
    makers = [invented_name(rng) for _ in range(8)]
    entries: list[Entry] = []
    names: set[str] = set()
    for category in rng.sample(list(CATEGORIES), 5):
        nouns = rng.sample(CATEGORIES[category].split(), 2)
        materials = rng.sample(MATERIALS, 3)  # few, so that a filtered list still has several entries to order
        prices = rng.sample(range(300, 29_900), 8)  # all different, so that there is one cheapest product
        for price in prices:
            name = _new_name(rng, names, makers, lambda: rng.choice(ADJECTIVES), nouns)
            facts = {
                "material": rng.choice(materials),
                "origin": rng.choice(COUNTRIES),
                "weight": f"{rng.randrange(105, 9900, 5)} g",
                "length": f"{rng.randrange(6, 240)} cm",
                "warranty": f"{rng.randrange(3, 61)} months",
                "delivery": f"{rng.randrange(2, 31)} days",
                "price": f"${price // 100}.{price % 100:02}",
                "colour": rng.choice(list(COLOURS)),
                "pieces": str(rng.randrange(1, 6)),
            }
            entries.append(Entry(len(entries), name, category, facts))
    return tuple(entries)


def _make_articles(rng: random.Random) -> tuple[Entry, ...]:
    regions = [invented_name(rng) for _ in range(8)]
    entries: list[Entry] = []
    names: set[str] = set()
    for kind in rng.sample(list(PLACES), 5):
        nouns = rng.sample(PLACES[kind].split(), 2)
        for _ in range(8):
            name = _new_name(rng, names, regions, lambda: invented_name(rng), nouns)
            facts = {
                "height": f"{rng.randrange(12, 4800)} m",
                "area": f"{rng.randrange(2, 990)} km2",
                "founded": str(rng.randrange(812, 1998)),
                "founder": f"{invented_name(rng)} {invented_name(rng)}",
                "population": f"{rng.randrange(1, 990)},{rng.randrange(0, 1000):03}",
                "language": rng.choice(LANGUAGES),
                "emblem": rng.choice(EMBLEMS),
                "colour": rng.choice(list(COLOURS)),
            }
            entries.append(Entry(len(entries), name, kind, facts))
    return tuple(entries)


def _new_name(
    rng: random.Random, taken: set[str], firsts: list[str], middle: Callable[[], str], lasts: list[str]
) -> str:
    """A name of three words that no other entry of the site has."""
    while (name := f"{rng.choice(firsts)} {middle()} {rng.choice(lasts)}") in taken:
        pass
    taken.add(name)
    return name
