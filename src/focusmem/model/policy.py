"""The frozen policy with its memory pathway. It encodes items, reads blocks, lets the gate decide, injects accepted
blocks, and replies.

Shapes: B decisions, N evidence items over all decisions, K memory tokens, E encoder width, D policy width, U state
width, M targets.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from focusmem.errors import ConfigError
from focusmem.model.backbone import Backbone
from focusmem.model.compressor import ROLES, Compressor, Features, KeysValues
from focusmem.model.config import MemoryConfig
from focusmem.model.encoded import EncodedItems
from focusmem.model.encoder import EvidenceEncoder
from focusmem.model.gate import GATES, Trust
from focusmem.model.generation import GenerationConfig, generate
from focusmem.model.injection import Injection, Place
from focusmem.model.inputs import Row, stack_rows
from focusmem.model.readout import Readout
from focusmem.model.state import PooledState, mean_context
from focusmem.schemas import Prompt

EvidenceForm = Literal["keys_values", "features"]


@dataclass(frozen=True)
class Memory:
    """The blocks of a batch of decisions, and which of them were accepted."""

    blocks_NKD: Tensor
    """All blocks, the rejected ones included."""
    places: tuple[Place, ...]
    keep: tuple[bool, ...]
    trust: Trust | None = None
    """None if the gate did not take part."""
    state_NU: Tensor | None = None
    """u_t of each block's decision; None if neither readout nor gate needed it."""
    gate_state_NU: Tensor | None = None
    """The gate's view of each block's decision; None if the gate did not take part."""
    valid: tuple[bool, ...] = ()
    """Which blocks the gate may accept at all; empty if it did not take part."""
    evidence_NE: Tensor | None = None
    """The gate's view of each item's evidence; None if it did not take part."""


class MemoryPolicy(nn.Module):
    """One class for training and acting. Only the memory pathway has trained weights."""

    def __init__(self, backbone: Backbone, config: MemoryConfig, *, encoder_backbone: Backbone | None = None) -> None:
        super().__init__()
        reader = encoder_backbone or backbone
        if config.state_layer is not None and not 1 <= config.state_layer <= backbone.num_layers:
            raise ConfigError(
                f"MemoryConfig.state_layer is {config.state_layer}, but '{backbone.name}' has layers 1 to "
                f"{backbone.num_layers}."
            )
        self.config = config
        self.backbone = backbone
        self.encoder_backbone = encoder_backbone
        self.encoder = EvidenceEncoder(reader, config.lora)
        is_outline = backbone.device.type == "meta"
        with backbone.device:
            self.compressor = Compressor(
                config.compressor,
                evidence_width=reader.width,
                policy_width=backbone.width,
                output_std=1.0 if is_outline else backbone.embedding_std(),
            )
            self.pool = PooledState(config.state_source, backbone.width)
            self.readout = Readout(
                config.readout,
                num_tokens=config.compressor.num_tokens,
                state_width=self.pool.width,
                policy_width=backbone.width,
                evidence_width=reader.width,
                width=self.compressor.width,
            )
            self.gate = GATES[config.gate.kind](
                config.gate,
                state_width=backbone.width if config.gate.shares_projection else self.pool.width,
                policy_width=backbone.width,
                evidence_width=reader.width,
            )
        self.injection = Injection()
        self._fingerprint: tuple[Any, str] | None = None

    def train(self, mode: bool = True) -> "MemoryPolicy":
        """Sets the mode of the memory pathway; the frozen backbone keeps its mode.

        Weights are assumed to change only in training mode, because fused optimizers do not change a tensor's version.
        """
        self.training = mode
        self._fingerprint = None
        for part in self.trained_parts().values():
            part.train(mode)
        return self

    # Evidence: independent of decisions

    def encode(self, prompts: Sequence[Prompt], *, form: EvidenceForm = "keys_values") -> list[EncodedItems]:
        """Read raw serialisations; one entry per item, without padding, ready to cache."""
        if not prompts:
            return []
        reader = self.encoder.backbone
        rows = reader.embed([reader.tokenise(prompt, is_complete=True) for prompt in prompts])
        return self.encode_rows(rows, form=form).split([row.length for row in rows])

    def encode_rows(self, rows: Sequence[Row], *, form: EvidenceForm = "keys_values") -> EncodedItems:
        """As `encode`, but for embedded rows and as one padded group with its mask; training uses this form."""
        batch = stack_rows(rows)
        return self.compress_hidden(self.encoder(batch), batch.embeds_BSD, batch.mask_BS, form=form)

    def compress_hidden(
        self, hidden_NTE: Tensor, embeds_NTE: Tensor, mask_NT: Tensor, *, form: EvidenceForm
    ) -> EncodedItems:
        features_NTH = self.compressor.features(hidden_NTE)
        weights_NT1 = mask_NT[..., None].to(torch.float32)
        num_N1 = weights_NT1.sum(dim=1).clamp(min=1)
        summary_NE, looks_NE = ((one.float() * weights_NT1).sum(dim=1) / num_N1 for one in (hidden_NTE, embeds_NTE))
        if form == "features":
            return EncodedItems(Features(features_NTH, mask_NT), summary_NE, looks_NE)
        return EncodedItems(self.compressor.keys_values(features_NTH, mask_NT), summary_NE, looks_NE)

    # Decisions

    def embed(self, prompts: Sequence[Prompt], replies: Sequence[str] | None = None) -> list[Row]:
        """Decision prompts as rows, with the demonstrated reply at the end where one is given."""
        targets: Sequence[str | None] = replies or [None] * len(prompts)
        return self.backbone.embed(
            [self.backbone.tokenise(prompt, reply=reply) for prompt, reply in zip(prompts, targets, strict=True)]
        )

    @torch.no_grad()
    def state(self, rows: Sequence[Row]) -> Tensor:
        """u_t: the pooled context of each decision, (B, U). The reply is not part of it."""
        if self.config.state_source == "hidden":
            return self.hidden_state(rows, self.config.state_layer)
        pooled_BU: Tensor = self.pool(rows)
        return pooled_BU

    @torch.no_grad()
    def gate_state(self, rows: Sequence[Row], state_BU: Tensor) -> Tensor:
        """The gate's view of each decision, (B, U): u_t, or the mean of all embeddings if the gate projects that and
        the mean over an item in the same way.
        """
        if not self.config.gate.shares_projection or self.config.state_source == "embeddings":
            return state_BU
        return mean_context(stack_rows(rows).embeds_BSD, rows)

    def hidden_state(self, rows: Sequence[Row], layer: int | None) -> Tensor:
        """The state from hidden states after `num_layers` blocks; None takes all blocks and the final norm."""
        return mean_context(self.backbone.run(stack_rows(rows), num_layers=layer), rows)

    def read(self, items: Sequence[EncodedItems], places: Sequence[Place], state_BU: Tensor | None) -> Tensor:
        """Blocks (N, K, D), read for the current state, or with None the fixed blocks, which are the same for every
        state.
        """
        queries_NKH, roles_N = self._queries(items, places, state_BU)
        blocks: Tensor = self.compressor(queries_NKH, [group.evidence for group in items], roles_N)
        return blocks

    def _queries(
        self, items: Sequence[EncodedItems], places: Sequence[Place], state_BU: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        device = self.compressor.base_queries_RKH.device
        roles_N = torch.tensor([place.role for place in places], device=device)
        queries_NKH = self.compressor.queries(roles_N)
        if state_BU is not None:
            queries_NKH = queries_NKH + self.query_changes(items, places, state_BU)
        return queries_NKH, roles_N

    def query_changes(self, items: Sequence[EncodedItems], places: Sequence[Place], state_BU: Tensor) -> Tensor:
        """What the readout adds to the base queries, (N, K, H)."""
        roles_N = torch.tensor([place.role for place in places], device=state_BU.device)
        state_NU = state_BU[[place.row for place in places]]
        summary_NE = torch.cat([group.summary_NE for group in items])
        changes_NKH: Tensor = self.readout(state_NU, summary_NE, self.compressor.role_vectors_RD[roles_N])
        return changes_NKH

    @torch.no_grad()
    def looked_at(
        self, rows: Sequence[Row], items: Sequence[EncodedItems], places: Sequence[Place], *, is_dynamic: bool = True
    ) -> list[Tensor]:
        """For each item, the share of its block's attention on each of its tokens, (T,). Items must be kept as keys and
        values.
        """
        state_BU = self.state(rows) if is_dynamic else None
        shares = []
        for item, place in zip(items, places, strict=True):
            if not isinstance(item.evidence, KeysValues):
                raise TypeError("attention can be computed only for items kept as keys and values")
            queries_NKH, _ = self._queries([item], [place], state_BU)
            shares.append(self.compressor.looked_at(queries_NKH, item.evidence)[0])
        return shares

    def remember(
        self,
        rows: Sequence[Row],
        items: Sequence[EncodedItems],
        places: Sequence[Place],
        *,
        is_dynamic: bool = True,
        is_gated: bool = True,
        generator: torch.Generator | None = None,
    ) -> Memory | None:
        """Read every item for its decision and decide which blocks to accept. None if there are no items."""
        if sum(group.num_items for group in items) != len(places):
            raise ValueError(f"{sum(group.num_items for group in items)} items but {len(places)} places")
        if not places:
            return None
        for place in places:
            if not (0 <= place.row < len(rows) and 0 <= place.role < len(ROLES)):
                raise ValueError(
                    f"{place} names a decision or a role that is not there; there are {len(rows)} decisions"
                )
        state_BU = self.state(rows) if is_dynamic or is_gated else None
        blocks_NKD = self.read(items, places, state_BU if is_dynamic else None)
        valid_N = torch.cat([group.valid_N for group in items])
        of_row = [place.row for place in places]
        state_NU = None if state_BU is None else state_BU[of_row]
        if not is_gated or state_BU is None:
            return Memory(blocks_NKD, tuple(places), tuple(valid_N.tolist()), state_NU=state_NU)
        gate_state_NU, evidence_NE = self.gate_state(rows, state_BU)[of_row], self.seen_evidence(items)
        trust: Trust = self.gate(gate_state_NU, blocks_NKD, evidence_NE, valid_N, generator=generator)
        keep, valid = torch.stack([trust.keep_N, valid_N]).tolist()
        return Memory(blocks_NKD, tuple(places), tuple(keep), trust, state_NU, gate_state_NU, tuple(valid), evidence_NE)

    def seen_evidence(self, items: Sequence[EncodedItems]) -> Tensor:
        """The gate's view of the items' evidence besides their blocks, (N, E)."""
        is_hidden = self.config.gate.evidence_source == "hidden"
        return torch.cat([group.summary_NE if is_hidden else group.looks_NE for group in items])

    def inject(self, rows: Sequence[Row], memory: Memory | None) -> list[Row]:
        """Rows with their accepted blocks in front. A row without accepted blocks stays the same."""
        if memory is None:
            return list(rows)
        presence_N = memory.trust.scale_N if self.training and memory.trust is not None else None
        return self.injection(rows, memory.blocks_NKD, memory.places, memory.keep, presence_N)

    def target_logits(self, rows: Sequence[Row]) -> tuple[Tensor, Tensor]:
        """Scores (M, vocabulary) at the reply's positions, and the reply's ids (M,)."""
        target_ids = [token for row in rows for token in row.target_ids]
        logits_MV = self.backbone.logits(self.backbone.target_hidden(rows))
        return logits_MV, torch.tensor(target_ids, device=self.backbone.device)

    def forward(
        self,
        rows: Sequence[Row],
        items: Sequence[EncodedItems],
        places: Sequence[Place],
        *,
        is_dynamic: bool = True,
        is_gated: bool = True,
        generator: torch.Generator | None = None,
    ) -> tuple[Tensor, Tensor, Memory | None]:
        """For a training step: scores and ids of the replies, with memory in front."""
        memory = self.remember(rows, items, places, is_dynamic=is_dynamic, is_gated=is_gated, generator=generator)
        logits_MV, targets_M = self.target_logits(self.inject(rows, memory))
        if self.training and memory is not None:
            # The sampled gate may keep no block, but every weight must be part of the graph, because DDP waits for all
            # gradients.
            unused = memory.blocks_NKD.sum() + (0 if memory.trust is None else memory.trust.logits_N.sum())
            logits_MV = logits_MV + 0 * unused.to(logits_MV.dtype)
        return logits_MV, targets_M, memory

    @torch.no_grad()
    def recall(
        self,
        prompts: Sequence[Prompt],
        items: Sequence[EncodedItems],
        places: Sequence[Place],
        *,
        is_dynamic: bool = True,
        is_gated: bool = True,
    ) -> tuple[list[Row], list[Row], Memory | None]:
        """For an acting step: the prompts as rows, the same rows with accepted blocks in front, and the memory that was
        read.
        """
        rows = self.embed(prompts)
        memory = self.remember(rows, items, places, is_dynamic=is_dynamic, is_gated=is_gated)
        return rows, self.inject(rows, memory), memory

    @torch.no_grad()
    def reply(
        self,
        rows: Sequence[Row],
        config: GenerationConfig | None = None,
        *,
        seeds: Sequence[int] | None = None,
    ) -> list[str]:
        """The policy's text for each row."""
        if any(row.target_ids for row in rows):
            raise ValueError("these rows end with a reply already; embed the prompts without replies")
        ids = generate(self.backbone, rows, config or GenerationConfig(), seeds=seeds)
        return [self.backbone.text_of(one) for one in ids]

    # Trained weights and their identity

    def trained_parts(self) -> dict[str, nn.Module]:
        return {
            "encoder": self.encoder,
            "compressor": self.compressor,
            "readout": self.readout,
            "gate": self.gate,
        }

    def trained_state(self) -> dict[str, Tensor]:
        """All trained weights and the state's calibration, by their stored names."""
        return {
            f"{part}.{name}": tensor
            for part, module in {**self.trained_parts(), "state": self.pool}.items()
            for name, tensor in module.state_dict().items()
        }

    def convert(self, dtype: torch.dtype) -> "MemoryPolicy":
        """The memory pathway in another precision, for acting; training keeps it in float32."""
        for part in self.trained_parts().values():
            part.to(dtype)
        return self

    def fingerprint(self) -> str:
        """A digest that changes whenever a weight changes that encoded evidence depends on."""
        # Called for every decision, so only versions are compared; contents are read only after a change.
        shaping = (*self.encoder.parameters(), *self.compressor.parameters(), *self.encoder.backbone.model.parameters())
        versions = tuple((tensor.data_ptr(), tensor._version, tensor.dtype) for tensor in shaping)
        if self.training or self._fingerprint is None or self._fingerprint[0] != versions:
            state = {name: tensor for name, tensor in self.trained_state().items() if _shapes_evidence(name)}
            identity = self.encoder.backbone.identity()
            digest = hashlib.sha256(f"{identity.architecture} {identity.weights}".encode())
            digest.update(f"{self.encoder.backbone.dtype} {self.config.lora} {self.config.compressor}".encode())
            digest.update(_contents(state))
            self._fingerprint = versions, digest.hexdigest()
        return self._fingerprint[1]

    def identity(self) -> str:
        """Equal for memories with equal config and weights. It reads all weights, so it is meant for once per run."""
        return hashlib.sha256(f"{self.config} ".encode() + _contents(self.trained_state())).hexdigest()


def _contents(state: Mapping[str, Tensor]) -> bytes:
    """A digest of weights, by name."""
    digest = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data)
    return digest.digest()


def _shapes_evidence(name: str) -> bool:
    sides = (
        "encoder.",
        "compressor.norm_evidence",
        "compressor.w_in",
        "compressor.w_key",
        "compressor.w_value",
    )
    return name.startswith(sides)
