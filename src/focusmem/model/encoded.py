"""Encoded evidence items: everything that a readout needs and that does not depend on the decision."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from focusmem.model.compressor import Evidence, Features, KeysValues, SharedKeysValues


@dataclass(frozen=True)
class EncodedItems:
    """N items of equal length, or padded with a mask. Cached items stand alone (N = 1) and carry no padding."""

    evidence: Evidence
    summary_NE: Tensor
    """Mean of each item's hidden states: the readout adapter's view of the item."""
    looks_NE: Tensor
    """Mean of each item's input embeddings, computed as the state of a decision is."""

    @property
    def num_items(self) -> int:
        return self.evidence.num_items

    @property
    def valid_N(self) -> Tensor:
        """False for padding and empty items, which never reach the policy."""
        mask_NT = self.evidence.mask_NT
        if mask_NT is None:
            return self.summary_NE.new_ones(self.num_items).bool()
        return mask_NT.any(dim=-1)

    def read_as(self, items: Sequence[int]) -> "EncodedItems":
        """The named items of the group, in this order and possibly repeated, without copying their evidence."""
        if not isinstance(self.evidence, KeysValues):
            raise TypeError(f"only keys and values can be shared, not {type(self.evidence).__name__}")
        shared = SharedKeysValues.of(self.evidence, items)
        return EncodedItems(shared, *(one[shared.item_of_reading_N] for one in (self.summary_NE, self.looks_NE)))

    def split(self, lengths: Sequence[int]) -> list["EncodedItems"]:
        """The items one by one, each cut to its length. They are copies, because a view would keep the whole group in
        memory.
        """
        return [self._one(index, length) for index, length in enumerate(lengths)]

    def _one(self, index: int, length: int) -> "EncodedItems":
        one, evidence = slice(index, index + 1), self.evidence
        if isinstance(evidence, KeysValues):
            keys, values = evidence.keys_NATX[one, :, :length], evidence.values_NATX[one, :, :length]
            alone: Evidence = KeysValues(_copied(keys), _copied(values), None)
        else:
            assert isinstance(evidence, Features), "what is shared is read where it lies"
            alone = replace(evidence, features_NTH=_copied(evidence.features_NTH[one, :length]), mask_NT=None)
        return EncodedItems(alone, self.summary_NE[one].clone(), self.looks_NE[one].clone())


def _copied(tensor: Tensor) -> Tensor:
    return tensor.clone(memory_format=torch.contiguous_format)
