"""Decisions that ask a memory for numbers and nothing else: a comparison whose values were told in words.

In a whole episode the digits of a value are a few tokens of the one decision that needs them; here they are every third
token. There is no picture to look at, so that dozens cost as much as one decision of an episode.
"""

import random
from collections.abc import Sequence

from focusmem.lab.tasks import COMPARISONS, KINDS, make_task
from focusmem.lab.world import World
from focusmem.schemas import Prompt, Turn, action_to_json, make_action
from focusmem.seeds import derive_seed
from focusmem.training.batch import Decision, ItemUse, TrainingBatch, TrainingItem


def memory_drills(world: World, split: str, num_sites: int, seed: int, number: int, num: int) -> TrainingBatch:
    """So many of them, on a split's sites; others for every number."""
    rng = random.Random(derive_seed(seed, "memory drills", split, number))
    made = (_drill(world, f"{split}-{rng.randrange(num_sites)}", rng, f"drill-{number}-{at}") for at in range(num))
    return TrainingBatch.merged(made)


def _drill(world: World, site_id: str, rng: random.Random, name: str) -> TrainingBatch:
    kinds = [kind for kind in KINDS[world.site(site_id).family] if kind in COMPARISONS]
    task = make_task(world, site_id, rng.choice(kinds), "memory", rng.randrange(10**6))
    values = [world.site(site_id).entries[index].facts[task.fact or ""] for index in task.entries]
    prompt: Prompt = (Turn("user", (f"Task: {task.task.instruction}",)),)
    remembered = rng.choice(["together", "apart", "the first"])
    if remembered == "together":
        items = [_read(values)]
    elif remembered == "apart":
        items = [_read([value]) for value in values]
    else:
        items, prompt = [_read(values[:1])], (*prompt, _read(values[1:]))
    reply = action_to_json(make_action("stop", answer=task.task.answer or ""))
    uses = tuple(ItemUse(place, place, False) for place in range(len(items)))
    told = [TrainingItem(item_id=f"{name}-{place}", role="working", prompt=(turn,)) for place, turn in enumerate(items)]
    return TrainingBatch(items=tuple(told), decisions=(Decision(prompt=prompt, reply=reply, uses=uses),))


def _read(values: Sequence[str]) -> Turn:
    """Worded as the policy was taught."""
    return Turn("user", (f"Read: {', '.join(values)}",))
