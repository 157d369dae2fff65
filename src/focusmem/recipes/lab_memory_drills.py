"""Decisions that ask a memory for numbers and nothing else: a comparison whose values were told in words, or seen.

In a whole episode the digits of a value are a few tokens of the one decision that needs them; here they are every third
token. There is at most one picture to look at: four dozen have some 7,500 tokens, the episodes of a batch 50,000.
"""

import random
from collections.abc import Sequence

from focusmem.lab.drawing import placeholder
from focusmem.lab.rollout import RolloutStep
from focusmem.lab.tasks import COMPARISONS, KINDS, NUM_SITES, LabTask, make_task
from focusmem.lab.world import World
from focusmem.recipes.lab_decisions import LabDecisions
from focusmem.schemas import EvidenceItem, Prompt, Step, Turn, action_to_json, make_action
from focusmem.seeds import derive_seed
from focusmem.training.batch import Decision, ItemUse, TrainingBatch, TrainingItem

_LOOKED_ON = make_action("scroll", direction="down")
"""What was done at a view; it does not matter here."""


def memory_drills(source: LabDecisions, seed: int, number: int, num: int) -> TrainingBatch:
    """So many of them, on the source's sites; others for every number."""
    own = source.config
    rng = random.Random(derive_seed(seed, "memory drills", own.split, own.seed, number))
    sites = [f"{own.split}-{rng.randrange(own.num_sites or NUM_SITES[own.split])}" for _ in range(num)]
    return TrainingBatch.merged(_drill(source, site_id, rng) for site_id in sites)


def _drill(source: LabDecisions, site_id: str, rng: random.Random) -> TrainingBatch:
    world = source.world
    kinds = [kind for kind in KINDS[world.site(site_id).family] if kind in COMPARISONS]
    task = make_task(world, site_id, rng.choice(kinds), source.config.use, rng.randrange(10**6))
    values = [world.site(site_id).entries[index].facts[task.fact or ""] for index in task.entries]
    asked = Turn("user", (f"Task: {task.task.instruction}",))
    how = rng.choice(["together", "apart", "the first", "seen"])
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
    uses = tuple(ItemUse(place, place, False) for place in range(len(items)))
    reply = action_to_json(make_action("stop", answer=task.task.answer or ""))
    return TrainingBatch(items=tuple(told), decisions=(Decision(prompt=prompt, reply=reply, uses=uses),))


def value_view(world: World, task: LabTask) -> RolloutStep | None:
    """Where the first value of a comparison can be read; None where it stands on no page of its own."""
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
    """Worded as the policy was taught."""
    return Turn("user", (f"Read: {', '.join(values)}",))
