"""What the agent remembers at a step: trajectories that were found and its own expired history, as blocks in front of
the prompt. For one decision, or for many at once.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from focusmem.agent.prompt import NUM_RECENT
from focusmem.errors import ConfigError
from focusmem.evidence import CHUNK_EVENTS, Serialiser, episodic_items, ordered, working_items
from focusmem.files import sha256_hex
from focusmem.model.compressor import ROLES
from focusmem.model.evidence_cache import EvidenceCache
from focusmem.model.injection import Place
from focusmem.model.inputs import Row
from focusmem.model.policy import Memory, MemoryPolicy
from focusmem.schemas import AttentionMap, EvidenceItem, OfferedItem, Prompt, Screenshot, Step, StoredTrajectory


@dataclass(frozen=True, kw_only=True)
class MemoryUse:
    """How much is remembered, and which parts of the memory take part. Defaults are the paper's."""

    num_episodic: int = 3
    """M: trajectories at most."""
    chunk_events: int = CHUNK_EVENTS
    """W: events per working chunk."""
    num_recent: int = NUM_RECENT
    """Events that the prompt shows itself."""
    is_dynamic: bool = True
    """Whether blocks are read for the current state."""
    is_gated: bool = True
    """Whether the gate decides what is let in."""
    tells_attention: bool = False
    """Whether to tell where on its screenshots each block looked; for reports, since it takes time."""

    def __post_init__(self) -> None:
        for name, least in (("num_episodic", 0), ("num_recent", 0), ("chunk_events", 1)):
            if getattr(self, name) < least:
                raise ConfigError(f"MemoryUse.{name} is {getattr(self, name)}; it must be at least {least}.")


@dataclass(frozen=True)
class Situation:
    """A decision that is due: the task, what was done so far, and what was found for it."""

    instruction: str
    steps: Sequence[Step]
    screenshots: Mapping[str, Screenshot]
    """Of the steps so far, by digest."""
    found: Sequence[tuple[StoredTrajectory, float]] = ()
    """Trajectories, the best first, with how alike they are."""


@dataclass(frozen=True)
class RememberedItem:
    """An item that was offered for a decision, and what became of it."""

    item: EvidenceItem
    is_accepted: bool
    trust_logit: float | None
    """The gate's view of it; None where the gate did not take part."""
    threshold: float | None = None
    """What trust has to be above; None where the gate did not take part."""
    attention: tuple[AttentionMap, ...] = ()
    """Where its block looked, where that was to be told."""

    @property
    def trust(self) -> float | None:
        """The same between 0 and 1."""
        return None if self.trust_logit is None else 1 / (1 + math.exp(-max(-500.0, self.trust_logit)))

    def offered(self, num_tokens: int) -> OfferedItem:
        """The same as a record; `num_tokens` are those of its block."""
        return OfferedItem(
            role=self.item.role,
            rank=self.item.rank,
            trajectory_id=self.item.trajectory_id,
            num_steps=len(self.item.steps),
            score=self.item.score,
            trust=self.trust,
            trust_logit=self.trust_logit,
            threshold=self.threshold,
            is_accepted=self.is_accepted,
            num_tokens=num_tokens,
            attention=self.attention,
        )


@dataclass(frozen=True)
class Remembered:
    rows: list[Row]
    """The prompts as rows, with accepted blocks in front."""
    items: list[list[RememberedItem]]
    """For each decision, in the order in which blocks stand."""
    num_memory_tokens: list[int]
    """Of each row, how many positions are memory."""


class AgentMemory:
    """Encodes what is to be remembered, reads it for the current decision, and lets in what is trusted."""

    def __init__(
        self,
        policy: MemoryPolicy,
        serialise: Serialiser,
        use: MemoryUse | None = None,
        *,
        cache: EvidenceCache | None = None,
    ) -> None:
        self.policy, self.serialise, self.use = policy, serialise, use or MemoryUse()
        self.cache = cache or EvidenceCache(policy)

    def remember(self, prompts: Sequence[Prompt], situations: Sequence[Situation]) -> Remembered:
        """Prompts as rows, each with the memory of its situation in front."""
        items = [self.evidence(situation) for situation in situations]
        flat = [(row, item) for row, own in enumerate(items) for item in own]
        records = [self._serialised(item, situations[row]) for row, item in flat]
        encoded = self.cache.fetch(records)
        places = [Place(row, ROLES.index(item.role), item.rank) for row, item in flat]
        rows, injected, memory = self.policy.recall(
            prompts, encoded, places, is_dynamic=self.use.is_dynamic, is_gated=self.use.is_gated
        )
        maps: Sequence[tuple[AttentionMap, ...]] = [()] * len(flat)
        if self.use.tells_attention:
            shares = self.policy.looked_at(rows, encoded, places, is_dynamic=self.use.is_dynamic)
            maps = [self._maps(record, share.tolist()) for record, share in zip(records, shares, strict=True)]
        return Remembered(
            injected,
            self._by_decision(items, memory, maps),
            [after.length - before.length for before, after in zip(rows, injected, strict=True)],
        )

    def identity(self) -> str:
        """Equal for memories that remember alike: config, weights, and how they are used."""
        return sha256_hex(f"{self.use} {self.policy.identity()}".encode())

    def evidence(self, situation: Situation) -> list[EvidenceItem]:
        """What there is to remember, in the order in which it is shown."""
        found = situation.found[: self.use.num_episodic]
        episodic = episodic_items((stored.trajectory, score) for stored, score in found)
        working = working_items(
            situation.steps,
            instruction=situation.instruction,
            num_recent=self.use.num_recent,
            chunk_events=self.use.chunk_events,
        )
        return ordered([*episodic, *working])

    def _maps(self, record: Prompt, shares: Sequence[float]) -> tuple[AttentionMap, ...]:
        """The shares of a record's visual tokens, screenshot by screenshot."""
        reader = self.policy.encoder.backbone
        row = reader.tokenise(record, is_complete=True)
        visual = [
            share for share, token in zip(shares, row.ids, strict=True) if token == reader.special["<|image_pad|>"]
        ]
        maps, start = [], 0
        for picture in row.pictures:
            num_rows, num_columns = reader.chat.token_grid(picture.width, picture.height)
            weights = tuple(min(1.0, share) for share in visual[start : start + num_rows * num_columns])
            start += len(weights)
            maps.append(
                AttentionMap(screenshot=picture.ref(), num_rows=num_rows, num_columns=num_columns, weights=weights)
            )
        return tuple(maps)

    def _serialised(self, item: EvidenceItem, situation: Situation) -> Prompt:
        if item.role == "working":
            return self.serialise(item, situation.screenshots)
        stored, _ = situation.found[item.rank]
        return self.serialise(item, stored.screenshots)

    def _by_decision(
        self,
        items: Sequence[Sequence[EvidenceItem]],
        memory: Memory | None,
        maps: Sequence[tuple[AttentionMap, ...]],
    ) -> list[list[RememberedItem]]:
        if memory is None:
            return [[] for _ in items]
        threshold = None if memory.trust is None else self.policy.gate.config.threshold
        logits = [None] * len(memory.keep) if memory.trust is None else memory.trust.logits_N.tolist()
        fates = iter(zip(memory.keep, logits, maps, strict=True))
        return [
            [
                RememberedItem(item, is_accepted, trust_logit=logit, threshold=threshold, attention=own_maps)
                for item, (is_accepted, logit, own_maps) in zip(own, islice(fates, len(own)), strict=True)
            ]
            for own in items
        ]
