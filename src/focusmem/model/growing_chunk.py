"""A working chunk that grows by one event per step. Only the new event is encoded."""

from collections.abc import Sequence

import torch
from torch import Tensor

from focusmem.model.encoded import EncodedItems
from focusmem.model.inputs import stack_rows
from focusmem.model.policy import EvidenceForm, MemoryPolicy
from focusmem.schemas import Turn


class GrowingChunk:
    """Keeps the encoder's cache of all turns so far. A causal encoder never changes it when turns are appended.

    Only turns that later turns do not change may be appended. The closing of the serialisation (the step count) is
    passed to `encoded`, which reads it and removes it from the cache again.
    """

    def __init__(self, policy: MemoryPolicy, opening: Sequence[Turn]) -> None:
        self._policy = policy
        self._fingerprint = policy.fingerprint()
        self._cache = policy.encoder.backbone.new_cache()
        self._hidden: list[Tensor] = []
        self._embeds: list[Tensor] = []
        self._num_tokens = self._next_position = 0
        self.append(opening)

    @torch.no_grad()
    def append(self, turns: Sequence[Turn]) -> None:
        hidden_1SE, embeds_1SE, self._next_position = self._read(turns)
        self._hidden.append(hidden_1SE)
        self._embeds.append(embeds_1SE)
        self._num_tokens += hidden_1SE.shape[1]

    @torch.no_grad()
    def encoded(self, closing: Sequence[Turn], *, form: EvidenceForm = "keys_values") -> EncodedItems:
        """The current chunk. The result equals encoding opening, events and closing from scratch."""
        hidden_1SE, embeds_1SE, _ = self._read(closing)
        self._cut_back()
        hidden_1TE = torch.cat([*self._hidden, hidden_1SE], dim=1)
        embeds_1TE = torch.cat([*self._embeds, embeds_1SE], dim=1)
        mask_1T = torch.ones(hidden_1TE.shape[:2], dtype=torch.bool, device=hidden_1TE.device)
        [item] = self._policy.compress_hidden(hidden_1TE, embeds_1TE, mask_1T, form=form).split([hidden_1TE.shape[1]])
        return item

    def _read(self, turns: Sequence[Turn]) -> tuple[Tensor, Tensor, int]:
        if self._policy.training:
            raise RuntimeError("a chunk grows from one step to the next; call policy.eval() first")
        if self._policy.fingerprint() != self._fingerprint:
            raise RuntimeError("the memory's weights changed while a chunk was growing; start a new GrowingChunk")
        encoder = self._policy.encoder
        [row] = encoder.backbone.embed([encoder.backbone.tokenise(tuple(turns), is_complete=True)])
        row = row.shifted(self._next_position)
        past_mask_1P = torch.ones(1, self._num_tokens, dtype=torch.bool, device=row.embeds_SD.device)
        try:
            with torch.autocast(row.embeds_SD.device.type, enabled=False):
                hidden_1SE = encoder(stack_rows([row]), cache=self._cache, past_mask_BP=past_mask_1P)
                return hidden_1SE, row.embeds_SD[None], row.next_position
        except BaseException:
            self._cut_back()
            raise

    def _cut_back(self) -> None:
        """Remove everything after the appended turns from the cache. After a failure, layers may hold different
        lengths.
        """
        for layer in self._cache.layers:
            extra = layer.get_seq_length() - self._num_tokens
            if extra > 0:
                layer.crop(-extra)
