"""Drills of entries: an item shows many values of an office, and each decision asks for one of them.

From easy to hard, the values are given in words, in one view, in a chunk of history, in a whole trajectory, and with
the agent's own prompt. Several decisions ask the same item for different entries, so that only the question says which
entry is needed.
"""

import random
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from focusmem.agent.prompt import NUM_RECENT
from focusmem.evidence import episodic_items, working_items
from focusmem.lab.memory.decisions import LabDecisions
from focusmem.lab.policy.drawing import placeholder
from focusmem.lab.policy.office_corpus import every_entry, giving, list_view, question_for, told_values
from focusmem.lab.world.address import Address
from focusmem.lab.world.experts import as_trajectory, site_rollouts
from focusmem.lab.world.office_answers import shown_list, used_way
from focusmem.lab.world.offices import ListName, Office
from focusmem.lab.world.rollout import Rollout, sensible_rollout
from focusmem.lab.world.tasks import KINDS, NUM_SITES, make_task
from focusmem.schemas import EvidenceItem, Prompt, Step, action_to_json
from focusmem.seeds import derive_seed
from focusmem.settings import checked_dataclass
from focusmem.training.batch import Decision, ItemUse, TrainingBatch, TrainingItem

EntryHow = Literal["told", "seen", "in a chunk", "in a trajectory", "as it is"]
"""How an item shows entries: in words, in one view, in a chunk of the history of a visit with notices, or in a whole
trajectory of the staff. `as it is` uses the agent's prompt, with a trajectory or with the whole history.
"""
_SEEN_KINDS = ("notice", "relay")


@checked_dataclass(frozen=True, kw_only=True)
class EntryDrills:
    """The settings for the entry drills of a batch. The drills need offices."""

    num: NonNegativeInt = 0
    """Items."""
    num_asked: PositiveInt = 4
    """Maximum number of entries of an item that decisions ask for."""
    how: Annotated[tuple[EntryHow, ...], Field(min_length=1)] = ("told",)
    """How items show entries. Each is drawn in proportion to how often it is listed here."""
    sizes: Annotated[tuple[PositiveInt, ...], Field(min_length=1)] = (16,)
    """Number of entries in an item of words, or in a view. A view shows at most all entries of a list."""

    def batch(self, source: LabDecisions, seed: int, number: int) -> TrainingBatch:
        """Each batch number gives different drills."""
        own = source.config
        rng = random.Random(derive_seed(seed, "entry drills", own.split, own.seed, number))
        sites = [f"{own.split}-{rng.randrange(own.num_sites or NUM_SITES[own.split])}" for _ in range(self.num)]
        return TrainingBatch.merged(self._drill(source, site_id, number, rng) for site_id in sites)

    def _drill(self, source: LabDecisions, site_id: str, number: int, rng: random.Random) -> TrainingBatch:
        how = rng.choice(self.how)
        office = source.world.office(site_id)
        if how == "as it is":
            return _as_it_is(source, office, rng)
        if how == "in a chunk":
            return self._in_a_chunk(source, office, rng)
        if how == "in a trajectory":
            rollout = rng.choice(site_rollouts(source.world, site_id))
            return self._asked(office, _trajectory_item(source, rollout), every_entry(office), rng)
        size = rng.choice(self.sizes)
        if how == "told":
            every = every_entry(office)
            told = rng.sample(every, min(size, len(every)))
            name = f"told-{number}-{site_id}-{rng.random()}"
            item = TrainingItem(
                item_id=name, role="episodic", prompt=(told_values(office, told),), group="told entries"
            )
            return self._asked(office, item, told, rng)
        name = rng.choice(office.lists)
        shown = [(name, entry) for entry in office.entries[name][:size]]
        return self._asked(office, _view_item(source, office, name, size), shown, rng)

    def _asked(
        self,
        office: Office,
        item: TrainingItem,
        shown: Sequence[tuple[ListName, str]],
        rng: random.Random,
        day: str | None = None,
    ) -> TrainingBatch:
        """Decisions that ask an item for entries that it shows."""
        decisions = [
            Decision(
                prompt=(question_for(name, entry),),
                reply=action_to_json(giving(name, office.value(name, entry, day))),
                uses=(ItemUse(0, 0, False),),
            )
            for name, entry in rng.sample(shown, min(self.num_asked, len(shown)))
        ]
        return TrainingBatch(items=(item,), decisions=tuple(decisions))

    def _in_a_chunk(self, source: LabDecisions, office: Office, rng: random.Random) -> TrainingBatch:
        """The chunk of a visit that begins with notices."""
        rollout = _visit(source, office, rng.choice(_SEEN_KINDS), rng)
        [chunk, *_] = working_items(
            as_trajectory(rollout, placeholder).trajectory.steps[: len(rollout.steps) - 1],
            instruction=rollout.task.task.instruction,
            num_recent=NUM_RECENT,
        )
        steps = rollout.steps[: len(chunk.steps)]
        source.note_views(steps)
        lists = [shown_list(office, Address.parse(step.path)) for step in steps]
        shown = [(found[0], entry) for found in lists if found is not None for entry in office.entries[found[0]]]
        assert rollout.task.request is not None
        return self._asked(office, source.training_item(chunk, rollout), shown, rng, rollout.task.request.day)


def _as_it_is(source: LabDecisions, office: Office, rng: random.Random) -> TrainingBatch:
    """The decisions of a visit that need a value, with the agent's prompt and everything that shows the values."""
    rollout = _visit(source, office, rng.choice(KINDS["office"]), rng)
    steps, own = rollout.steps, as_trajectory(rollout, placeholder).trajectory
    assert rollout.task.request is not None
    items: dict[str, TrainingItem] = {}
    decisions = []
    demonstration = rng.choice(site_rollouts(source.world, office.site_id))
    for at, step in enumerate(steps):
        if used_way(office, Address.parse(step.path), step.action) is None:
            continue
        if rollout.task.request.notices:
            chunks = working_items(own.steps[:at], instruction=own.instruction, num_recent=NUM_RECENT)
            found = [(chunk.rank, source.training_item(chunk, rollout)) for chunk in chunks]
            source.note_views(steps[:at])
        else:
            found = [(0, _trajectory_item(source, demonstration))]
        uses = []
        for rank, item in found:
            items.setdefault(item.digest, item)
            uses.append(ItemUse(list(items).index(item.digest), rank, False))
        source.note_views(steps[max(0, at - NUM_RECENT) : at + 1])
        prompt = source.corpus.prompt_at(rollout.task, steps, at)
        decisions.append(Decision(prompt=prompt, reply=action_to_json(step.action), uses=tuple(uses)))
    return TrainingBatch(items=tuple(items.values()), decisions=tuple(decisions))


def _visit(source: LabDecisions, office: Office, kind: str, rng: random.Random) -> Rollout:
    assert kind in KINDS["office"], kind
    while True:
        task = make_task(source.world, office.site_id, kind, source.config.use, rng.randrange(10**6))
        rollout = sensible_rollout(source.world, task)
        if rollout is not None:
            return rollout


def _trajectory_item(source: LabDecisions, rollout: Rollout) -> TrainingItem:
    [evidence] = episodic_items([(as_trajectory(rollout, placeholder).trajectory, 1.0)])
    source.note_views(rollout.steps)
    return source.training_item(evidence, rollout)


def _view_item(source: LabDecisions, office: Office, name: ListName, size: int) -> TrainingItem:
    """A trajectory record with one step, which shows one view of a list."""
    view = list_view(office, name, few=size)
    shot = placeholder(view)
    source.note_views([view])
    item = EvidenceItem(
        item_id="view",
        role="episodic",
        instruction=f"Read a list of {office.name}.",
        steps=(Step(screenshot=shot.ref(), action=view.action),),
        rank=0,
    )
    prompt: Prompt = source.corpus.texts.serialise(item, {shot.digest: shot})
    return TrainingItem(item_id=f"view-{shot.digest}", role="episodic", prompt=prompt, group="seen entries")
