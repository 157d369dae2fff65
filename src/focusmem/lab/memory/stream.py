"""Batches that never repeat: each episode is new, on one of thousands of sites, and nothing is prepared.

A memory that sees the same few hundred sites for hours learns them by heart instead of reading what was shown to it.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from pydantic import PositiveInt

from focusmem.errors import ConfigError
from focusmem.files import sha256_hex
from focusmem.lab.memory.decisions import LabDecisions
from focusmem.lab.memory.drills import IN_WORDS, LEARNT_SOON, Drills
from focusmem.lab.memory.entry_drills import EntryDrills, EntryHow
from focusmem.lab.world.office_answers import NOTICE
from focusmem.lab.world.rollout import Rollout
from focusmem.lab.world.tasks import COMPARISONS
from focusmem.lab.world.ways import followed_ways, shown_ways
from focusmem.seeds import derive_seed
from focusmem.settings import checked_dataclass
from focusmem.training.batch import TrainingBatch

_ANSWER = "answer"
"""The name under which the answer of a comparison counts as useful."""


@checked_dataclass(frozen=True, kw_only=True)
class Phase:
    """Batches with few episodes and many drills of one kind, which are short and soon learnt."""

    num_batches: PositiveInt
    drills: Drills
    num_episodes: PositiveInt = 1
    """Episodes per batch. Content is learnt only from episodes."""


_TOLD = Drills(num_numbers=96, num_ways=48, how=IN_WORDS, raw_share=0.0)
_SEEN = Drills(num_numbers=144, num_ways=32, how=("the first", "seen", "seen", "seen", "seen"), raw_share=0.3)
_FOUND = Drills(num_numbers=72, num_ways=32, how=("seen", "in a chunk", "in a chunk", "in a chunk"), raw_share=0.6)
COURSE = (
    Phase(num_batches=150, drills=_TOLD),
    Phase(num_batches=700, drills=_SEEN),
    Phase(num_batches=500, drills=_FOUND),
)
"""Before whole episodes, values are told in words, then seen in one view, then in several. Asking for an answer that
was told in words takes 80 tokens, for one that was seen in an episode 2,200, and an untrained memory learns as much
from either. Learning depends on the number of samples, so batches have as many drills as cost a GPU little more than
the fixed cost of a step."""


def _entries(num: int, how: Sequence[EntryHow], sizes: Sequence[int] = (16,), num_asked: int = 5) -> Drills:
    return Drills(entries=EntryDrills(num=num, num_asked=num_asked, how=tuple(how), sizes=tuple(sizes)))


ENTRY_COURSE = (
    Phase(num_batches=300, drills=_entries(48, ("told",), (1, 2, 4))),
    Phase(num_batches=900, drills=_entries(48, ("told",), (2, 4, 8, 12, 16))),
    Phase(num_batches=600, drills=_entries(48, ("told", "seen", "seen", "seen"), (1, 2, 4, 8))),
    Phase(num_batches=900, drills=_entries(48, ("told", "seen", "seen", "seen", "in a chunk"), (8, 12, 16))),
    Phase(num_batches=600, drills=_entries(20, ("told", "seen", "in a chunk", "in a trajectory", "in a trajectory"))),
)
"""The course of `lab-entries`: entries told in words, few before many; then in views of a few rows and of whole lists;
then in chunks and trajectories. In a trial with twelve entries, a readout began to choose after some 400 batches of
words, and on views only after words."""
ENTRY_DRILLS = _entries(12, ("seen", "in a chunk", "in a trajectory", "as it is", "as it is"))
"""What comes with whole episodes after this course."""


@checked_dataclass(frozen=True, kw_only=True)
class StreamConfig:
    num_episodes: PositiveInt = 8
    """New episodes per batch."""
    num_decisions: PositiveInt = 6
    """At most this many decisions of an episode: first those that memory can help with, and of these first the ones
    that are hard to learn."""
    num_tries: PositiveInt = 3
    """Number of candidate episodes for each place in a batch. The first episode with a decision that memory can help
    with and that is hard to learn is taken; otherwise one with a decision that memory can help with. The last place of
    a batch takes the first episode, because a memory must also do no harm."""
    drills: Drills = field(default_factory=Drills)
    """The drills of a batch, besides its episodes."""
    course: tuple[Phase, ...] = ()
    """The phases that come first."""
    num_batches: PositiveInt = 100_000
    seed: int = 0

    @property
    def num_needed(self) -> int:
        """Episodes that all batches together may look at."""
        return self.num_batches * self.num_episodes * self.num_tries

    def __post_init__(self) -> None:
        for phase in self.course:
            if phase.num_episodes > self.num_episodes:
                raise ConfigError(
                    f"A phase of {phase.num_batches} batches with {phase.num_episodes} episodes each does not fit a "
                    f"stream of {self.num_episodes} episodes per batch."
                )

    def at(self, number: int) -> tuple[int, Drills]:
        """The number of episodes and the drills of a batch, by the batch's number."""
        for phase in self.course:
            if number < phase.num_batches:
                return phase.num_episodes, phase.drills
            number -= phase.num_batches
        return self.num_episodes, self.drills


@dataclass(frozen=True)
class LabStream:
    """Training data by number; the source needs as many episodes as all batches together."""

    source: LabDecisions
    config: StreamConfig = field(default_factory=StreamConfig)

    def __post_init__(self) -> None:
        if self.source.num_trajectories < self.config.num_needed:
            raise ConfigError(f"A stream of {self.config.num_needed} episodes needs a source of as many.")

    @property
    def num_batches(self) -> int:
        return self.config.num_batches

    @cached_property
    def digest(self) -> str:
        """Equal if equal numbers give equal decisions."""
        return sha256_hex(repr((self.config, self.source.config)).encode())

    def batch(self, number: int) -> TrainingBatch:
        parts = [self.source.decisions(*self._chosen(episode)) for episode in self.episodes(number)]
        _, drills = self.config.at(number)
        # Content is learnt from whole episodes only, so drills have no lessons.
        besides = drills.batch(self.source, self.config.seed, number).without_lessons()
        drawn = self.source.drawn(TrainingBatch.merged([*parts, besides]))
        self.source.forget()
        return drawn

    def episodes(self, number: int) -> list[int]:
        """The episodes that a batch is made of."""
        first, (num_episodes, _) = number * self.config.num_episodes, self.config.at(number)
        return [self._episode(place) for place in range(first, first + num_episodes)]

    def _episode(self, place: int) -> int:
        start = place * self.config.num_tries
        tries = range(start, start + self.config.num_tries)
        if (place + 1) % self.config.num_episodes == 0:
            return tries[0]
        ranks = {}
        for episode in tries:
            ranks[episode] = min(map(_rank, useful_ways(self.source, episode)))
            if ranks[episode] == 0:
                break
        return min(ranks, key=ranks.__getitem__)

    def _chosen(self, episode: int) -> tuple[int, tuple[int, ...]]:
        """An episode, and those of its decisions that are learnt from."""
        rng = random.Random(derive_seed(self.config.seed, "stream", episode))
        ways = useful_ways(self.source, episode)
        order = sorted(range(len(ways)), key=lambda at: (_rank(ways[at]), rng.random()))
        return episode, tuple(sorted(order[: self.config.num_decisions]))


def _rank(ways: set[str]) -> int:
    """The rank of a decision: hard ones first, then those that memory soon learns to help with, then the others."""
    return 0 if ways - LEARNT_SOON else 1 if ways else 2


def useful_decisions(source: LabDecisions, episode: int) -> list[bool]:
    """For each decision, whether what a memory holds can help with it."""
    return [bool(ways) for ways in useful_ways(source, episode)]


def useful_ways(source: LabDecisions, episode: int) -> list[set[str]]:
    """For each decision, what a memory can help with. This is a convention that the action follows and that an item in
    front shows, the answer of a comparison, because its first value has left the prompt by then, or a value from a
    notice, which has left it too.
    """
    rollout, world = source.rollout(episode), source.world
    steps = rollout.steps
    known = {NOTICE}.union(*(shown_ways(world, own.steps) for own in _own_shelf(source, episode)))
    ways = [followed_ways(world, steps, at) & known for at in range(len(steps))]
    if rollout.task.kind in COMPARISONS:
        for own, step in zip(ways, steps, strict=True):
            own |= {_ANSWER} if step.action.name == "stop" else set()
    return ways


def _own_shelf(source: LabDecisions, episode: int) -> list[Rollout]:
    """The trajectories found for an episode that are of its own site."""
    rollout = source.rollout(episode)
    found = (source.bank.rollout(place) for place, _ in source.recall(rollout, 0))
    return [own for own in found if own.task.site_id == rollout.task.site_id]
