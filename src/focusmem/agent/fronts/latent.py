"""Latent memory: found trajectories and the episode's expired history, each as a block of memory tokens."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from focusmem.agent.decision import Decision
from focusmem.agent.fronts.base import Fronted
from focusmem.agent.prompt import NUM_RECENT
from focusmem.agent.retrieval import Search
from focusmem.evidence import CHUNK_EVENTS, Serialiser, episodic_items, working_items
from focusmem.files import sha256_hex
from focusmem.model.compressor import ROLES
from focusmem.model.devices import wait_for
from focusmem.model.encoded import EncodedItems
from focusmem.model.evidence_cache import EvidenceCache
from focusmem.model.growing_chunk import Chunk
from focusmem.model.injection import Place
from focusmem.model.inputs import Row
from focusmem.model.policy import Memory, MemoryPolicy
from focusmem.schemas import AttentionMap, EvidenceItem, OfferedItem, Prompt
from focusmem.settings import checked_dataclass

_Count = Annotated[int, Field(ge=0)]


@checked_dataclass(frozen=True, kw_only=True)
class MemoryUse:
    """How much is remembered, and which parts of the memory act. The defaults are the paper's."""

    num_episodic: _Count = 3
    """M in the paper: the maximum number of trajectories."""
    chunk_events: Annotated[int, Field(ge=1)] = CHUNK_EVENTS
    """W in the paper: events per working chunk."""
    num_recent: _Count = NUM_RECENT
    """The number of latest events that the prompt itself shows. The query of a search reads no earlier ones."""
    is_dynamic: bool = True
    """Whether blocks are read for the current state."""
    is_gated: bool = True
    """Whether the gate decides which blocks stand in front of the prompt."""
    tells_attention: bool = False
    """Whether to record the attention of each block over its screenshots. Reports show this; recording takes time."""


class LatentFront:
    """Encodes evidence, reads it for the current decision, and puts the blocks that the gate accepts in front of the
    prompt.
    """

    def __init__(
        self,
        policy: MemoryPolicy,
        serialise: Serialiser,
        use: MemoryUse | None = None,
        *,
        name: str = "latent",
        cache: EvidenceCache | None = None,
    ) -> None:
        self.policy, self.serialise, self.use, self.name = policy, serialise, use or MemoryUse(), name
        self.num_found, self.num_recent = self.use.num_episodic, self.use.num_recent
        self.cache = cache or EvidenceCache(policy)

    @property
    def identity(self) -> str:
        kept = self.cache.config
        use = replace(self.use, tells_attention=False)  # recording attention changes no block
        return sha256_hex(f"{use} {kept.form} {kept.precision} {self.policy.identity()}".encode())

    def place(
        self, prompts: Sequence[Prompt], decisions: Sequence[Decision], searches: Sequence[Search]
    ) -> list[Fronted]:
        evidence = [self.evidence(*one) for one in zip(decisions, searches, strict=True)]
        items = [item for own in evidence for item, _ in own]
        serialised = [prompt for own in evidence for _, prompt in own]
        numbers = [number for number, own in enumerate(evidence) for _ in own]
        places = [Place(number, ROLES.index(item.role), item.rank) for number, item in zip(numbers, items, strict=True)]
        chunks = [self._chunk(decisions[number], item) for number, item in zip(numbers, items, strict=True)]
        num_encoded_before = self.cache.counts.num_encoded
        encoded = self.cache.fetch(serialised, chunks=chunks)
        num_encoded = self.cache.counts.num_encoded - num_encoded_before
        rows, injected, memory = self.policy.recall(
            prompts, encoded, places, is_dynamic=self.use.is_dynamic, is_gated=self.use.is_gated
        )
        maps = self._attention(rows, serialised, encoded, places)
        offered: list[list[OfferedItem]] = [[] for _ in decisions]
        for number, item in zip(numbers, self._offered(items, memory, maps), strict=True):
            offered[number].append(item)
        wait_for(self.policy.backbone.device)
        return [
            Fronted(
                prompt,
                decision.episode_id,
                row=after,
                num_memory_tokens=after.length - before.length,
                num_encoded=num_encoded,
                offered=tuple(own),
            )
            for prompt, decision, before, after, own in zip(prompts, decisions, rows, injected, offered, strict=True)
        ]

    def evidence(self, decision: Decision, search: Search) -> list[tuple[EvidenceItem, Prompt]]:
        """The items of a decision, in the order of their blocks, each with the prompt that the encoder reads."""
        found = search.found[: self.use.num_episodic]
        episodic = episodic_items((one.stored.trajectory, one.hit.score) for one in found)
        working = working_items(
            decision.steps,
            instruction=decision.task.instruction,
            num_recent=self.use.num_recent,
            chunk_events=self.use.chunk_events,
        )
        screenshots = [*(one.stored.screenshots for one in found), *(decision.screenshots for _ in working)]
        items = (*episodic, *working)
        return [(item, self.serialise(item, own)) for item, own in zip(items, screenshots, strict=True)]

    def forget(self, episode_id: str) -> None:
        """Frees the episode's growing chunk. Other evidence stays, because another episode may need it."""
        self.cache.forget_episode(episode_id)

    def _chunk(self, decision: Decision, item: EvidenceItem) -> Chunk | None:
        if item.role != "working":
            return None
        return Chunk(decision.episode_id, is_full=len(item.steps) == self.use.chunk_events)

    def _offered(
        self, items: Sequence[EvidenceItem], memory: Memory | None, maps: Sequence[tuple[AttentionMap, ...]]
    ) -> list[OfferedItem]:
        """A record for each item that says whether the gate accepted it."""
        if memory is None:  # there were no items
            return []
        trust = memory.trust
        logits = [None] * len(items) if trust is None else trust.finite_logits()
        return [
            OfferedItem(
                role=item.role,
                rank=item.rank,
                trajectory_id=item.trajectory_id,
                source=item.source,
                num_steps=len(item.steps),
                score=item.score,
                trust_logit=logit,
                threshold_logit=None if trust is None else self.policy.gate.config.threshold_logit,
                is_accepted=is_accepted,
                num_tokens=self.policy.config.compressor.num_tokens,
                attention=attention,
            )
            for item, is_accepted, logit, attention in zip(items, memory.keep, logits, maps, strict=True)
        ]

    def _attention(
        self,
        rows: Sequence[Row],
        serialised: Sequence[Prompt],
        encoded: Sequence[EncodedItems],
        places: Sequence[Place],
    ) -> list[tuple[AttentionMap, ...]]:
        """The attention of each item's block over its screenshots; empty if attention is not recorded."""
        if not self.use.tells_attention or not serialised:
            return [()] * len(serialised)
        shares = self.policy.looked_at(rows, encoded, places, is_dynamic=self.use.is_dynamic)
        return [self._maps(prompt, share.tolist()) for prompt, share in zip(serialised, shares, strict=True)]

    def _maps(self, serialised: Prompt, shares: Sequence[float]) -> tuple[AttentionMap, ...]:
        """The attention on an item's visual tokens, screenshot by screenshot."""
        reader = self.policy.encoder.backbone
        row = reader.tokenise(serialised, is_complete=True)
        image_pad = reader.special["<|image_pad|>"]
        visual = [share for share, token in zip(shares, row.ids, strict=True) if token == image_pad]
        maps, start = [], 0
        for picture in row.pictures:
            num_rows, num_columns = reader.chat.token_grid(picture.width, picture.height)
            weights = tuple(min(1.0, share) for share in visual[start : start + num_rows * num_columns])
            start += len(weights)
            maps.append(
                AttentionMap(screenshot=picture.ref(), num_rows=num_rows, num_columns=num_columns, weights=weights)
            )
        return tuple(maps)
