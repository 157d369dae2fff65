"""Reads every block of some data for its decision, before the gate keeps or drops it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import torch

from focusmem.model.policy import Memory, MemoryPolicy
from focusmem.training.batch import TrainingData
from focusmem.training.loader import prepared_batches
from focusmem.training.pathway import EmbeddedShare, EncodedShare, Look, embed
from focusmem.training.prepared import Needs, Preparer
from focusmem.training.stage_b import StageB, StageBConfig, gate_logits

MAX_TOKENS: Final = 65_536
"""Rows of similar length run together up to this many tokens."""


@dataclass(frozen=True)
class Offered:
    """A batch's decisions and the blocks that were read for them."""

    rows: EmbeddedShare
    memory: Memory
    is_negative: list[bool]
    """For each block, whether it was added to mislead."""

    def logits(self, policy: MemoryPolicy) -> list[float]:
        """The gate's logit of each block."""
        return gate_logits(policy, self.memory, list(range(len(self.is_negative)))).tolist()


@torch.no_grad()
def offered_blocks(
    policy: MemoryPolicy,
    data: TrainingData,
    *,
    is_dynamic: bool = True,
    look: Look | None = None,
    num_workers: int = 0,
) -> Iterator[Offered]:
    """Yields the blocks batch by batch. Batches without any block are left out."""
    stage, preparer = StageB(StageBConfig(is_dynamic=is_dynamic)), Preparer(policy, Needs(negatives=True))
    for [share], _ in prepared_batches(data, preparer, range(data.num_batches), num_workers=num_workers):
        rows = embed(policy, share, look)
        encoded = EncodedShare.of(policy, rows.items, max_tokens=MAX_TOKENS)
        memory, is_negative = stage.remember(policy, share, rows, encoded)
        if memory is not None:
            yield Offered(rows, memory, is_negative)
