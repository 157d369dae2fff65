"""Drills: decisions that ask a memory for one thing only, from easy to hard. Whole episodes ask for it rarely, among
much that is easier; in a drill it is every other token.

Numbers: a comparison whose values were told in words, seen in a view, seen in a chunk of history, or asked for as the
agent is asked. Digits told in words and digits of one view are each learnt in a few hundred steps, but neither teaches
to find them among four views. Ways of a site: a decision that follows a convention of its site, with a trajectory that
shows it to remember, or with notes in words, which are shorter and sooner learnt.
"""

import random
from collections.abc import Sequence
from dataclasses import field
from itertools import islice
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt

from focusmem.agent.prompt import NUM_RECENT
from focusmem.errors import ConfigError
from focusmem.evidence import CHUNK_EVENTS, episodic_items, working_items
from focusmem.lab.memory.decisions import LabDecisions
from focusmem.lab.memory.entry_drills import EntryDrills
from focusmem.lab.policy.drawing import placeholder
from focusmem.lab.world.address import Address
from focusmem.lab.world.answers import facts_seen, notes
from focusmem.lab.world.experts import as_trajectory
from focusmem.lab.world.pages import FACT_NAMES
from focusmem.lab.world.rollout import RolloutStep, sensible_rollout
from focusmem.lab.world.tasks import COMPARISONS, KINDS, NUM_SITES, LabTask, make_task
from focusmem.lab.world.ways import followed_ways, shown_ways
from focusmem.lab.world.world import World
from focusmem.schemas import EvidenceItem, Instruction, Prompt, Step, Turn, action_to_json, make_action
from focusmem.seeds import derive_seed
from focusmem.settings import Share, checked_dataclass
from focusmem.training.batch import Decision, ItemUse, TrainingBatch, TrainingItem

_LOOKED_ON = make_action("scroll", direction="down")
"""The action at a view. Drills do not depend on it."""
LEARNT_SOON = frozenset({"query", "edition"})
"""Conventions that memory learnt to follow long before others (docs/experiments.md)."""
_ONE_OF_A_SITE = frozenset({"dialog", "picture", "menu", "offer"})
"""Conventions of which a site has exactly one. The sections of facts are not among them: a site has several."""
_MOST_DRAWN = 100
"""Maximum number of trajectories that are drawn for each drill. About seven in ten can be used."""
_TRIES = 4
"""Comparisons of a site that are tried until an expert's episode is usable; otherwise the drill is in words."""
How = Literal["together", "apart", "the first", "seen", "in a chunk", "as it is"]
"""How the first value of a comparison is known: from words about both values, or about each (from there on the prompt
tells the second); from a view; from the chunk of history that shows it; and, prompted as the agent is, from all of the
history."""
IN_WORDS: tuple[How, ...] = ("together", "apart", "the first")
HOW: tuple[How, ...] = (
    *IN_WORDS, "seen", "seen", "in a chunk", "in a chunk", "in a chunk",
    "as it is", "as it is", "as it is", "as it is", "as it is",
)  # fmt: skip


@checked_dataclass(frozen=True, kw_only=True)
class Drills:
    """The drills of one batch."""

    num_numbers: NonNegativeInt = 0
    num_ways: NonNegativeInt = 0
    how: Annotated[tuple[How, ...], Field(min_length=1)] = HOW
    """How the first value of a comparison is known. One of these entries is drawn for each drill; repeated entries are
    drawn more often."""
    raw_share: Share = 0.5
    """Share of drills in ways that show the whole trajectory."""
    entries: EntryDrills = field(default_factory=EntryDrills)
    """Drills at offices. The others are for markets and encyclopedias."""

    def batch(self, source: LabDecisions, seed: int, number: int) -> TrainingBatch:
        """Drills on the source's sites; each batch number gives others."""
        drawn = number_drills(source, seed, number, self.num_numbers, self.how)
        ways = way_drills(source, seed, number, self.num_ways, self.raw_share)
        return TrainingBatch.merged([drawn, ways, self.entries.batch(source, seed, number)])


def number_drills(source: LabDecisions, seed: int, number: int, num: int, how: Sequence[How] = HOW) -> TrainingBatch:
    """`num` comparisons on the source's sites; some are asked for twice. Each batch number gives others."""
    own = source.config
    rng = random.Random(derive_seed(seed, "memory drills", own.split, own.seed, number))
    sites = [f"{own.split}-{rng.randrange(own.num_sites or NUM_SITES[own.split])}" for _ in range(num)]
    return TrainingBatch.merged(_drill(source, site_id, rng.choice(how), rng) for site_id in sites)


def _drill(source: LabDecisions, site_id: str, how: How, rng: random.Random) -> TrainingBatch:
    task = _comparison(source, site_id, rng)
    if how in ("in a chunk", "as it is"):
        for _ in range(_TRIES):
            drill = from_history(source, task, is_whole=how == "as it is")
            if drill is not None:
                return drill
            task = _comparison(source, site_id, rng)
    world, values = source.world, _values(source.world, task)
    asked = Turn("user", ("Task: ", Instruction(task.task.instruction)))
    view = value_view(world, task) if how == "seen" else None
    items: list[Prompt]
    prompt: Prompt = (asked, _read(values[1:]))
    if how == "together":
        items, prompt = [(_read(values),)], (asked,)
    elif how == "apart":
        items, prompt = [(_read([value]),) for value in values], (asked,)
    elif view is None:
        items = [(_read(values[:1]),)]
    else:
        items = [_seen(source, task, view)]
    told = [
        TrainingItem(item_id=f"{task.task.task_id}-{place}", role="working", prompt=one)
        for place, one in enumerate(items)
    ]
    return TrainingBatch(items=tuple(told), decisions=(_asked_for(task, prompt, range(len(told))),))


def _comparison(source: LabDecisions, site_id: str, rng: random.Random) -> LabTask:
    kinds = [kind for kind in KINDS[source.world.family(site_id)] if kind in COMPARISONS]
    return make_task(source.world, site_id, rng.choice(kinds), source.config.use, rng.randrange(10**6))


def _values(world: World, task: LabTask) -> list[str]:
    """The two values that are compared."""
    return [world.site(task.site_id).entries[index].facts[task.fact or ""] for index in task.entries]


def _asked_for(task: LabTask, prompt: Prompt, items: Sequence[int]) -> Decision:
    """A decision that asks for the answer of a comparison, with these items of the batch to remember."""
    uses = tuple(ItemUse(item, rank, False) for rank, item in enumerate(items))
    return Decision(prompt=prompt, reply=action_to_json(make_action("stop", answer=task.task.answer or "")), uses=uses)


def from_history(source: LabDecisions, task: LabTask, *, is_whole: bool) -> TrainingBatch | None:
    """The answer of an expert's episode. It is asked for with only the chunk that shows the first value, and the second
    value in words; with `is_whole`, first also as the agent is asked, with the whole history. None if no episode of the
    task is usable, or if no chunk shows the value and the whole history is not wanted.
    """
    world = source.world
    rollout = sensible_rollout(world, task)
    if rollout is None:
        return None
    steps, last = rollout.steps, len(rollout.steps) - 1
    own = as_trajectory(rollout, placeholder).trajectory
    chunks = working_items(own.steps[:last], instruction=own.instruction, num_recent=NUM_RECENT)
    starts = [CHUNK_EVENTS * chunk.rank for chunk in chunks]
    parts = [steps[start : start + len(chunk.steps)] for start, chunk in zip(starts, chunks, strict=True)]
    telling = [at for at, part in enumerate(parts) if any(_shows_first(world, task, step) for step in part)][-1:]
    chosen = list(range(len(chunks))) if is_whole else telling
    if not is_whole and not telling:
        return None
    decisions = []
    if is_whole:
        decisions.append(_asked_for(task, source.corpus.prompt_at(task, steps, last), chosen))
        source.note_views(steps[max(0, last - NUM_RECENT) :])
    if telling:  # costs almost nothing if the whole history is asked for too, because both share the item
        short: Prompt = (Turn("user", ("Task: ", Instruction(task.task.instruction))), _read(_values(world, task)[1:]))
        decisions.append(_asked_for(task, short, [chosen.index(at) for at in telling]))
    for at in chosen:
        source.note_views(parts[at])
    items = tuple(source.training_item(chunks[at], rollout) for at in chosen)
    return TrainingBatch(items=items, decisions=tuple(decisions))


def _shows_first(world: World, task: LabTask, step: RolloutStep) -> bool:
    """Whether the first value of a comparison can be read in a view."""
    is_there = Address.parse(step.path).parts[:2] == ("entry", str(task.entries[0]))
    return is_there and FACT_NAMES[task.fact or ""].lower() in facts_seen(world, step)


def way_drills(source: LabDecisions, seed: int, number: int, num: int, raw_share: float = 0.5) -> TrainingBatch:
    """`num` decisions that follow a convention of their site, on sites that some trajectory visited. Each batch number
    gives others."""
    own = source.config
    rng = random.Random(derive_seed(seed, "way drills", own.split, own.seed, number))
    drawn = (_way_drill(source, source.bank.any_place(rng), raw_share, rng) for _ in range(_MOST_DRAWN * num))
    made = list(islice((drill for drill in drawn if drill is not None), num))
    if len(made) < num:
        raise ConfigError(f"The experts' trajectories on the sites of split '{own.split}' show too few ways to drill.")
    return TrainingBatch.merged(made)


def _way_drill(source: LabDecisions, place: int, raw_share: float, rng: random.Random) -> TrainingBatch | None:
    """A decision that follows a convention which the trajectory at this place shows, as if the episode began with it;
    and the trajectory to remember, or notes about it. None if the drawn task has no such decision."""
    world, shown = source.world, source.bank.rollout(place)
    site_id = shown.task.site_id
    kind = rng.choice([kind for kind in KINDS[world.family(site_id)] if kind not in COMPARISONS])
    rollout = sensible_rollout(world, make_task(world, site_id, kind, source.config.use, rng.randrange(10**6)))
    if rollout is None:
        return None
    ways = shown_ways(world, shown.steps) - LEARNT_SOON
    by_way = {at: followed_ways(world, rollout.steps, at) & ways for at in range(len(rollout.steps))}
    found = [at for at, own in by_way.items() if own]
    if not found:
        return None
    step = rollout.steps[rng.choice([at for at in found if by_way[at] - _ONE_OF_A_SITE] or found)]
    if rng.random() < raw_share:
        [evidence] = episodic_items([(source.bank.trajectory(place), 1.0)])
        item = source.training_item(evidence, shown)
        source.note_views(shown.steps)
    else:
        told = (Turn("user", (notes(world, shown.steps),)),)
        group = f"notes about a {world.family(site_id)}"
        item = TrainingItem(item_id=f"notes-{place}", role="episodic", prompt=told, group=group)
    source.note_views([step])
    prompt = source.corpus.prompt_at(rollout.task, [step], 0)
    decision = Decision(prompt=prompt, reply=action_to_json(step.action), uses=(ItemUse(0, 0, False),))
    return TrainingBatch(items=(item,), decisions=(decision,))


def value_view(world: World, task: LabTask) -> RolloutStep | None:
    """A view in which the first value of a comparison can be read; None if it is on no page of its own."""
    site, index, fact = world.site(task.site_id), task.entries[0], task.fact or ""
    section = site.place_of(fact)
    if section is None:
        return None
    path = f"/{task.site_id}/entry/{index}/part/{section}?seen=1"
    wanted = set(site.entries[index].facts[fact].split())
    for scroll in (0, world.scene(path).max_scroll):
        if wanted <= {word.text for word in world.scene(path).words() if word.is_readable(scroll)}:
            return RolloutStep(path, scroll, (), _LOOKED_ON, None)
    return None


def _seen(source: LabDecisions, task: LabTask, view: RolloutStep) -> Prompt:
    """A chunk of history that consists of this view alone."""
    shot = placeholder(view)
    source.note_views([view])
    item = EvidenceItem(
        item_id="view",
        role="working",
        instruction=task.task.instruction,
        steps=(Step(screenshot=shot.ref(), action=view.action),),
        rank=0,
    )
    return source.corpus.texts.serialise(item, {shot.digest: shot})


def _read(values: Sequence[str]) -> Turn:
    """Values, in the wording that the policy has learnt."""
    return Turn("user", (f"Read: {', '.join(values)}",))
