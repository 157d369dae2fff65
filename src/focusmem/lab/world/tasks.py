"""Questions about a site, with their gold answers.

Each kind has separate wordings for memory training, for the bank and for evaluation. The leakage guard removes
trajectories with the wording of the query, so useful trajectories have another wording or another kind of task on the
same site.
"""

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal, cast

from focusmem.lab.world.offices import LISTS, Office
from focusmem.lab.world.pages import FACT_NAMES, listed
from focusmem.lab.world.requests import Request, make_request, make_ticket
from focusmem.lab.world.session import HOST, ORIGIN
from focusmem.lab.world.site import Entry, Family, Site, SiteId
from focusmem.lab.world.world import World
from focusmem.schemas import Annotations, Task
from focusmem.seeds import derive_seed

SUITE, ENTRIES_SUITE = "lab", "lab-entries"
"""The first part of every task id: of markets and encyclopedias, and of offices."""

Use = Literal["memory", "bank", "evaluation"]
USES: tuple[Use, ...] = ("memory", "bank", "evaluation")

KINDS: dict[Family, tuple[str, ...]] = {
    "market": ("attribute", "picture", "price", "extreme", "compare", "yesno"),
    "encyclopedia": ("fact", "emblem", "contrast", "check"),
    "office": ("errand", "round", "notice", "relay"),
}
KINDS_LEFT: dict[Family, tuple[str, ...]] = KINDS | {"office": ("errand", "round")}
"""Kinds of tasks whose episodes the experts leave behind. The values on notices are useful only in their own episode.
"""
COMPARISONS = ("compare", "contrast")
"""Kinds whose first fact is no longer among the recent events when the answer is given."""
REQUESTS = {
    **dict.fromkeys(("yesno", "check"), ("Say the value, then yes or no.",)),
    **dict.fromkeys(COMPARISONS, ("Say both values, then the name.",)),
    **dict.fromkeys(KINDS["office"], ("Say the receipt.",)),
}
"""Required contents of answers that could otherwise be guessed."""
MAX_STEPS = 15
NUMBERS: dict[Family, tuple[str, ...]] = {
    "market": ("weight", "length", "warranty", "delivery"),
    "encyclopedia": ("height", "area", "founded", "population"),
}
"""Facts with values that can be compared."""
_WORDINGS = Path(__file__).parent / "wordings"


@dataclass(frozen=True)
class LabTask:
    """A task, with the information that only the laboratory has."""

    task: Task
    kind: str
    use: Use
    entries: tuple[int, ...]
    """The entries to visit, in order; empty if the answer is in a list."""
    fact: str | None
    category: str | None = None
    material: str | None = None
    order: str | None = None
    """The order of the list in which the first entry is the answer."""
    request: Request | None = None
    """The request at an office."""

    @property
    def site_id(self) -> str:
        """The visited site. For an earlier state of a site, `task.site` is the site itself."""
        return self.name.split(".")[0]

    @property
    def name(self) -> str:
        """The task id without the suite, which is a safe file name."""
        return self.task.task_id.partition("/")[2]

    @property
    def start_path(self) -> str:
        return self.task.start_url.removeprefix(ORIGIN)


@lru_cache(maxsize=64)
def wordings(kind: str, use: Use) -> tuple[str, ...]:
    lines = (_WORDINGS / f"{kind}.txt").read_text(encoding="utf-8").splitlines()
    return tuple(line.removeprefix(f"{use}: ") for line in lines if line.startswith(f"{use}: "))


def make_task(world: World, site_id: str, kind: str, use: Use, number: int) -> LabTask:
    """Makes a task. The same arguments give the same task."""
    rng = random.Random(derive_seed(world.seed, "task", site_id, kind, use, number))
    parsed = SiteId.parse(site_id)
    assert parsed is not None, site_id
    if parsed.is_office:
        draft = _at_office(world.office(site_id), make_ticket(kind, use, number), rng)
    else:
        draft = _DRAFTS[kind](world.site(site_id), rng)
    wording = rng.choice(wordings(kind, use))
    task = Task(
        task_id=f"{ENTRIES_SUITE if parsed.is_office else SUITE}/{site_id}.{kind}.{use}.{number}",
        instruction=" ".join([wording.format(**draft.slots), *REQUESTS.get(kind, ())]),
        start_url=f"{ORIGIN}/{site_id}/{_start(world, site_id, draft.request, use)}",
        site=parsed.base if parsed.num_changes_ago else site_id,
        answer=draft.answer,
        annotations=Annotations(instance=f"{site_id} {draft.instance}", template=f"{kind}: {wording}"),
        allowed_sites=(HOST,),
        max_steps=MAX_STEPS,
    )
    return LabTask(
        task,
        kind,
        use,
        draft.entries,
        draft.fact,
        category=draft.category,
        material=draft.material,
        order=draft.order,
        request=draft.request,
    )


def _start(world: World, site_id: str, request: Request | None, use: Use) -> str:
    """The path on its site at which a task begins. At an office, episodes that are left behind are episodes of the
    staff.
    """
    if request is None:
        return ""
    staff = f"&pass={world.office(site_id).staff_pass}" if use == "bank" else ""
    return f"{'notice/1' if request.notices else ''}?ticket={request.ticket}{staff}"


def task_of(world: World, task_id: str) -> LabTask:
    """The task with this id. The id holds everything that the task is made from."""
    site_id, kind, use, number = task_id.partition("/")[2].split(".")
    return make_task(world, site_id, kind, cast(Use, use), int(number))


Split = Literal["p", "m", "v", "e", "po", "mo", "vo", "eo"]
"""Sites for pretraining, for memory, for validation and for evaluation; with a further letter, offices."""
NUM_SITES: dict[str, int] = {"p": 4000, "m": 4000, "v": 60, "e": 60, "po": 4000, "mo": 4000, "vo": 60, "eo": 60}
"""Number of sites of each split from which tasks are drawn."""


def site_names(split: str) -> list[str]:
    return [f"{split}-{number}" for number in range(NUM_SITES[split])]


# How each kind is drawn


@dataclass(frozen=True, kw_only=True)
class _Draft:
    slots: dict[str, str]
    answer: str
    instance: str
    entries: tuple[int, ...] = ()
    fact: str | None = None
    category: str | None = None
    material: str | None = None
    order: str | None = None
    request: Request | None = None


def _plain_fact(fact: str) -> str:
    return FACT_NAMES.get(fact, fact).lower()


def _one_fact(site: Site, rng: random.Random, facts: tuple[str, ...]) -> _Draft:
    entry, fact = rng.choice(site.entries), rng.choice(facts)
    return _Draft(
        slots={"fact": _plain_fact(fact), "entry": entry.name},
        answer=entry.facts[fact],
        instance=f"{entry.name} {fact}",
        entries=(entry.index,),
        fact=fact,
    )


def _section_facts(site: Site) -> tuple[str, ...]:
    return tuple(fact for group, facts in site.rules.groups.items() if group != "offer" for fact in facts)


def _lookup(site: Site, rng: random.Random) -> _Draft:
    return _one_fact(site, rng, _section_facts(site))


def _picture(site: Site, rng: random.Random) -> _Draft:
    draft = _one_fact(site, rng, site.rules.picture_facts)
    names = {"pieces": "number of pieces"}
    assert draft.fact is not None
    slots = draft.slots | {"fact": names.get(draft.fact, draft.fact)}
    return _Draft(slots=slots, answer=draft.answer, instance=draft.instance, entries=draft.entries, fact=draft.fact)


def _price(site: Site, rng: random.Random) -> _Draft:
    return _one_fact(site, rng, ("price",))


def _yes_no(site: Site, rng: random.Random) -> _Draft:
    entry, fact = rng.choice(site.entries), rng.choice(_section_facts(site))
    is_true = rng.random() < 0.5
    others = sorted({one.facts[fact] for one in site.entries} - {entry.facts[fact]})
    value = entry.facts[fact] if is_true else rng.choice(others)
    return _Draft(
        slots={"fact": _plain_fact(fact), "entry": entry.name, "value": value},
        answer=f"{entry.facts[fact]}, {'yes' if is_true else 'no'}",
        instance=f"{entry.name} {fact} {value}",
        entries=(entry.index,),
        fact=fact,
    )


def _comparison(site: Site, rng: random.Random) -> _Draft:
    fact = rng.choice(NUMBERS[site.family])
    one, other = rng.sample(site.entries, 2)
    while number_of(one, fact) == number_of(other, fact):
        one, other = rng.sample(site.entries, 2)
    wants_more = rng.random() < 0.5
    right, more = wanted_of((one, other), fact, wants_more), more_of(fact, wants_more)
    return _Draft(
        slots={"fact": _plain_fact(fact), "entry": one.name, "other": other.name, "more": more},
        answer=f"{one.facts[fact]}, {other.facts[fact]}, {right.name}",
        instance=f"{one.name} {other.name} {fact}",
        entries=(one.index, other.index),
        fact=fact,
    )


def more_of(fact: str, wants_more: bool) -> str:
    """The word for the higher or the lower value in a comparison by this fact."""
    if fact == "founded":
        return "later" if wants_more else "earlier"
    return "larger" if wants_more else "smaller"


def wanted_of(pair: Sequence[Entry], fact: str, wants_more: bool) -> Entry:
    """The entry with the higher or the lower value of a fact. The two entries must have different values."""
    return sorted(pair, key=lambda entry: number_of(entry, fact))[wants_more]


def number_of(entry: Entry, fact: str) -> int:
    return int(re.sub(r"[^0-9]", "", entry.facts[fact].removesuffix("km2")))


def _extreme(site: Site, rng: random.Random) -> _Draft:
    category = rng.choice(site.categories())
    material = rng.choice(sorted({entry.facts["material"] for entry in site.in_category(category)}))
    order = rng.choice(("low", "high"))
    first = listed(site, category, material, order)[0]
    return _Draft(
        slots={"extreme": "cheapest" if order == "low" else "dearest", "kind": category, "material": material},
        answer=first.name,
        instance=f"{order} {category} {material}",
        category=category,
        material=material,
        order=order,
    )


def _at_office(office: Office, ticket: str, rng: random.Random) -> _Draft:
    request = make_request(office, ticket)
    phrases = [f"the {LISTS[need.list_name].phrase(need.entry)}" for need in request.needs]
    rng.shuffle(phrases)  # the part that is open tells which of them counts, not their order
    return _Draft(
        slots={"office": office.name, "needs": _enumerated(phrases)},
        answer=request.receipt,
        instance=ticket,
        request=request,
    )


def _enumerated(parts: Sequence[str]) -> str:
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


_DRAFTS: dict[str, Callable[[Site, random.Random], _Draft]] = {
    "attribute": _lookup,
    "fact": _lookup,
    "picture": _picture,
    "emblem": _picture,
    "price": _price,
    "yesno": _yes_no,
    "check": _yes_no,
    "compare": _comparison,
    "contrast": _comparison,
    "extreme": _extreme,
}
