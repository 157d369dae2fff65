"""Runs a prepared share through the memory pathway. Each picture is seen once and each item is encoded once. Rows of
similar length run together.

Shapes: I items, N blocks, K memory tokens, D policy width, M target positions.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from focusmem.errors import ConfigError
from focusmem.model.backbone import Backbone, VisionFeatures
from focusmem.model.encoded import EncodedItems
from focusmem.model.injection import Place
from focusmem.model.inputs import Row, alike_in_length, on_device
from focusmem.model.policy import Memory, MemoryPolicy
from focusmem.training.batch import Pixels
from focusmem.training.losses import over_positions, semantic_loss, token_loss, token_nats
from focusmem.training.prepared import Prepared

Look = Callable[[Pixels], Mapping[str, VisionFeatures]] | Mapping[str, VisionFeatures]
"""A function from the pixels of a batch to features by digest. Callers may pass their own, which sees many pictures of
one size at once."""


@dataclass(frozen=True)
class EmbeddedShare:
    items: list[Row]
    decisions: list[Row]
    questions: list[Row]
    teachers: list[Row]


@torch.no_grad()
def embed(policy: MemoryPolicy, share: Prepared, look: Look | None = None) -> EmbeddedShare:
    """All rows of a share as vectors; the vision tower sees each different screenshot once."""
    backbone, reader = policy.backbone, policy.encoder.backbone
    seen = brought_along(share.pixels, look, backbone)
    if reader is backbone:
        pictures = {picture.digest: picture for picture in share.pictures()}
        seen = dict(zip(pictures, backbone.see(list(pictures.values()), seen=seen), strict=True))
    return EmbeddedShare(
        reader.embed(share.items, seen=seen if reader is backbone else None),
        backbone.embed(share.decisions, seen=seen),
        backbone.embed(share.questions, seen=seen),
        backbone.embed(share.teachers, seen=seen),
    )


def brought_along(pixels: Pixels | None, look: Look | None, backbone: Backbone) -> Mapping[str, VisionFeatures]:
    """Features of the pictures that a batch carries, or features that were computed beforehand."""
    if isinstance(look, Mapping):
        return look
    if pixels is None or not pixels.digests:
        return {}
    if look is None:
        raise ConfigError("A batch carries pixels, but there is no function for their features; pass look=... as well.")
    return look(replace(pixels, pixels_NHWC=pixels.pixels_NHWC.to(backbone.device, non_blocking=True)))


@dataclass(frozen=True)
class EncodedShare:
    """Items in groups of similar length, and where each item is."""

    groups: list[EncodedItems]
    numbers: list[list[int]]

    @classmethod
    def of(cls, policy: MemoryPolicy, rows: Sequence[Row], *, max_tokens: int) -> "EncodedShare":
        max_padding = policy.encoder.backbone.max_padding
        numbers = alike_in_length([row.length for row in rows], max_tokens=max_tokens, max_padding=max_padding)
        groups = [policy.encode_rows([rows[number] for number in group]) for group in numbers]
        return cls(groups, numbers)

    def fixed_blocks(self, policy: MemoryPolicy, roles: Sequence[int]) -> Tensor:
        """The fixed block of each item, (I, K, D). It is the same for every decision, so it is read once per item."""
        order = [number for group in self.numbers for number in group]
        blocks_IKD = policy.read(self.groups, [Place(0, roles[number], 0) for number in order], None)
        back = sorted(range(len(order)), key=order.__getitem__)
        return blocks_IKD.index_select(0, torch.tensor(back, device=blocks_IKD.device))

    def for_uses(self, item_of_use: Sequence[int]) -> tuple[list[EncodedItems], list[int]]:
        """The items in the order in which the uses of a share read them, without copies, and this order of the uses."""
        groups, order = [], []
        for group, numbers in zip(self.groups, self.numbers, strict=True):
            place_of = {number: place for place, number in enumerate(numbers)}
            uses = [use for use, item in enumerate(item_of_use) if item in place_of]
            if uses:
                groups.append(group.read_as([place_of[item_of_use[use]] for use in uses]))
                order += uses
        return groups, order


def shared_blocks(blocks_IKD: Tensor, items: Sequence[int], places: Sequence[Place]) -> Memory | None:
    """Places fixed blocks where they are used. All of them pass, because there is no gate."""
    if not items:
        return None
    chosen_NKD = blocks_IKD.index_select(0, torch.tensor(items, device=blocks_IKD.device))
    return Memory(chosen_NKD, tuple(places), (True,) * len(items))


def target_hidden(backbone: Backbone, rows: Sequence[Row], *, max_tokens: int) -> list[Tensor]:
    """For each row, the hidden states from which the tokens of its reply are predicted."""
    found: dict[int, Tensor] = {}
    lengths = [row.length for row in rows]
    for group in alike_in_length(lengths, max_tokens=max_tokens, max_padding=backbone.max_padding):
        together = [rows[number] for number in group]
        hidden_MD = backbone.target_hidden(together)
        found |= zip(group, torch.split(hidden_MD, [len(row.target_ids) for row in together]), strict=True)
    return [found[number] for number in range(len(rows))]


@torch.no_grad()
def reply_nats(backbone: Backbone, rows: Sequence[Row], *, max_tokens: int) -> list[float]:
    """The negative log-likelihood of each row's reply."""
    if not rows:
        return []
    return row_sums(backbone, rows, target_hidden(backbone, rows, max_tokens=max_tokens)).tolist()


@torch.no_grad()
def row_sums(backbone: Backbone, rows: Sequence[Row], hidden: Sequence[Tensor]) -> Tensor:
    """Like `token_sum`, but one value for each row, and without a gradient."""
    lengths = [len(row.target_ids) for row in rows]
    device = backbone.device
    ids_M = torch.tensor([token for row in rows for token in row.target_ids], device=device)
    nats_M = token_nats(backbone.logits, torch.cat(list(hidden)), ids_M, vocabulary=backbone.vocabulary_size)
    row_of_M = on_device(device, np.repeat(np.arange(len(rows)), lengths))
    return nats_M.new_zeros(len(rows)).index_add(0, row_of_M, nats_M)


def token_sum(backbone: Backbone, rows: Sequence[Row], hidden: Sequence[Tensor]) -> Tensor:
    """Cross-entropy of the rows' replies, from the hidden states before each token."""
    ids_M = torch.tensor([token for row in rows for token in row.target_ids], device=backbone.device)
    return over_positions(
        lambda states_MD, ids_M: token_loss(backbone.logits(states_MD), ids_M),
        torch.cat(list(hidden)),
        ids_M,
        vocabulary=backbone.vocabulary_size,
    )


def semantic_sum(backbone: Backbone, hidden: Sequence[Tensor], teacher_MD: Tensor) -> Tensor:
    """KL(teacher || student). The scores of both are computed from hidden states with the frozen head."""
    return over_positions(
        lambda student_MD, taught_MD: semantic_loss(backbone.logits(student_MD), backbone.logits(taught_MD)),
        torch.cat(list(hidden)),
        teacher_MD.to(backbone.device, backbone.dtype, non_blocking=True),
        vocabulary=backbone.vocabulary_size,
    )
