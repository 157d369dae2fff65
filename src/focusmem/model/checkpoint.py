"""A trained memory on disk: its weights, its config, and the identity of its backbone. The backbone is not stored."""

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as read_tensors
from safetensors.torch import save as write_tensors

from focusmem.errors import CheckpointError, ConfigError, StorageError
from focusmem.files import sha256_hex, whole_folder, write_whole
from focusmem.model.backbone import Backbone, BackboneIdentity
from focusmem.model.config import MemoryConfig
from focusmem.model.policy import MemoryPolicy
from focusmem.settings import flattened, from_plain, to_plain

SCHEMA_VERSION = 2
_DTYPES = ("float32", "bfloat16", "float16")
_WEIGHTS, _CARD = "memory.safetensors", "checkpoint.json"
ACTING_NOTE = "acting"
"""The note that says which parts of a memory act, if some trained parts are switched off."""
ERRORS_NOTE = "shows_errors"
"""The note that says whether the prompts of training showed which actions had failed."""

# Fields that steer training or decisions but do not change what the weights mean.
_FREE_FIELDS = {
    "lora.dropout",
    "compressor.query_std",
    "gate.threshold_logit",
    "gate.open_at",
    "gate.temperature",
    "gate.stretch",
}


@dataclass(frozen=True)
class ActingParts:
    """Which parts of stage B act: readout and gate. Encoder and compressor always act."""

    is_dynamic: bool
    """Whether the readout acts."""
    is_gated: bool
    """Whether the gate acts."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A stored memory whose card has been read. Its weights are read later."""

    folder: Path
    config: MemoryConfig
    policy_backbone: BackboneIdentity
    encoder_backbone: BackboneIdentity
    weights_sha256: str
    dtype: str
    """The precision that the memory was trained in, and acts in."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """Notes of the trainer: stage, step, command, metrics."""

    @classmethod
    def save(
        cls,
        policy: MemoryPolicy,
        folder: Path,
        *,
        notes: Mapping[str, Any] | None = None,
        replace: bool = False,
        is_half: bool = False,
    ) -> "Checkpoint":
        """Write the trained weights and their card, whole or not at all.

        With `is_half` they are stored as bfloat16, for half the size; they still act in the precision they were trained
        in.
        """
        data = write_tensors(_stored_state(policy, is_half=is_half))
        checkpoint = cls(
            folder=folder,
            config=policy.config,
            policy_backbone=policy.backbone.identity(),
            encoder_backbone=policy.encoder.backbone.identity(),
            weights_sha256=sha256_hex(data),
            dtype=str(policy.compressor.w_in.weight.dtype).removeprefix("torch."),
            notes=dict(notes or {}),
        )
        with whole_folder(folder, replace=replace) as partial:
            write_whole(partial / _WEIGHTS, data)
            write_whole(partial / _CARD, checkpoint._card())
        return checkpoint

    @classmethod
    def open(cls, folder: Path) -> "Checkpoint":
        """Read the card of a stored memory."""
        try:
            card = json.loads((folder / _CARD).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise StorageError(f"{folder} holds no checkpoint: {_CARD} is missing.") from None
        except (OSError, ValueError) as error:
            raise StorageError(f"Could not read {folder / _CARD}: {error}") from error
        if not isinstance(card, dict) or card.get("schema_version") != SCHEMA_VERSION:
            found = card.get("schema_version") if isinstance(card, dict) else None
            raise CheckpointError(
                f"The checkpoint {folder} has schema version {found}; this focusmem reads version {SCHEMA_VERSION}. "
                "Use the focusmem that wrote it."
            )
        dtype, notes = card.get("dtype"), card.get("notes")
        if dtype not in _DTYPES or not isinstance(notes, dict):
            raise CheckpointError(
                f"The card of the checkpoint {folder} is damaged: its dtype is {dtype!r:.60} and should be one of "
                f"{', '.join(_DTYPES)}, or its notes are no dictionary."
            )
        try:
            return cls(
                folder=folder,
                config=from_plain(MemoryConfig, card["config"]),
                policy_backbone=BackboneIdentity(**card["policy_backbone"]),
                encoder_backbone=BackboneIdentity(**card["encoder_backbone"]),
                weights_sha256=card["weights_sha256"],
                dtype=dtype,
                notes=notes,
            )
        except ConfigError as error:
            raise CheckpointError(f"The config of the checkpoint {folder} cannot be used: {error}") from error
        except (KeyError, TypeError) as error:
            raise CheckpointError(f"The card of the checkpoint {folder} is incomplete: {error}.") from error

    def acting_parts(self) -> "ActingParts":
        """The parts that act: the parts that the note `acting` names, or all trained parts if there is no such note.

        The note may switch off trained parts, for example to probe a memory's fixed blocks. It cannot switch on
        untrained parts, because an untrained readout or gate would act without any error.
        """
        trained = self.trained_parts()
        if ACTING_NOTE not in self.notes:
            return trained
        told = self._switches(ACTING_NOTE)
        if (told.is_dynamic and not trained.is_dynamic) or (told.is_gated and not trained.is_gated):
            raise CheckpointError(
                f"The card of the checkpoint {self.folder} is damaged: notes.{ACTING_NOTE} switches on a part that was "
                "never trained."
            )
        return told

    def trained_with_errors(self) -> bool:
        """Whether the prompts of training showed which actions had failed. The memory acts with the same kind of
        prompts. Cards without this note are from the laboratory, whose prompts show it.
        """
        told = self.notes.get(ERRORS_NOTE, True)
        if not isinstance(told, bool):
            raise CheckpointError(
                f"The card of the checkpoint {self.folder} is damaged: notes.{ERRORS_NOTE} should be true or false, "
                f"not {told!r:.60}."
            )
        return told

    def trained_parts(self) -> "ActingParts":
        """The parts that the last stage trained, from the settings in the notes; all parts if there are none."""
        trained = self._switches("config", "stage")
        stage = self.notes.get("config", {}).get("stage", {})
        return ActingParts(False, False) if stage.get("name") == "stage_a" else trained

    def _switches(self, *rooms: str) -> "ActingParts":
        """Whether readout and gate are on, according to the notes of these rooms. A part that is not mentioned counts
        as on.
        """
        damaged, where = f"The card of the checkpoint {self.folder} is damaged", "notes"
        room: Mapping[str, Any] = self.notes
        for name in rooms:
            room, where = room.get(name, {}), f"{where}.{name}"
            if not isinstance(room, Mapping):
                raise CheckpointError(f"{damaged}: {where} should be a dictionary, not {room!r:.60}.")
        acts = {name: room.get(name, True) for name in ("is_dynamic", "is_gated")}
        for name, value in acts.items():
            if not isinstance(value, bool):
                raise CheckpointError(f"{damaged}: {where}.{name} should be true or false, not {value!r:.60}.")
        return ActingParts(**acts)

    def build(self, backbone: Backbone, *, encoder_backbone: Backbone | None = None) -> MemoryPolicy:
        """The stored memory on its backbone, ready to act."""
        self._check_backbones(backbone, encoder_backbone or backbone)
        policy = MemoryPolicy(backbone, self.config, encoder_backbone=encoder_backbone)
        policy.convert(getattr(torch, self.dtype))
        self.load_into(policy)
        return policy.eval()

    def load_into(self, policy: MemoryPolicy, *, may_differ: Collection[str] = ()) -> None:
        """Replaces a policy's memory weights by the stored weights. Raises an error if the backbone or the config
        differs.

        `may_differ` names settings that may differ from the checkpoint's. If the settings of gate, readout or state
        differ, the policy keeps its own part. If the state differs, it keeps its own readout and gate too.
        If the policy has fewer tokens per block, the first tokens are taken.
        """
        self._check_backbones(policy.backbone, policy.encoder.backbone)
        self._check_config(policy, may_differ)
        state, own = self._weights(), policy.trained_state()
        staying = self._staying_parts(policy.config)
        state, own = (
            {name: tensor for name, tensor in one.items() if name.partition(".")[0] not in staying}
            for one in (state, own)
        )
        if set(state) != set(own):
            difference = sorted(set(state) ^ set(own))
            raise CheckpointError(
                f"The checkpoint {self.folder} holds other weights than this memory: {difference[:4]}."
            )
        stored_K, own_K = self.config.compressor.num_tokens, policy.config.compressor.num_tokens
        if own_K > stored_K:
            raise CheckpointError(
                f"The checkpoint {self.folder} has blocks of {stored_K} tokens, which cannot become {own_K}."
            )
        if own_K < stored_K:
            state = _of_fewer_tokens(state, own)
        for name, tensor in own.items():
            if state[name].shape != tensor.shape:
                raise CheckpointError(
                    f"The checkpoint {self.folder} does not fit its own card: {name} is {tuple(state[name].shape)} in "
                    f"its weights and {tuple(tensor.shape)} by its config."
                )
        with torch.no_grad():
            for name, tensor in own.items():
                tensor.copy_(state[name])

    def _staying_parts(self, config: MemoryConfig) -> set[str]:
        """The parts of a memory with this config that do not use the stored weights."""
        stored, staying = self.config, set[str]()
        if (stored.state_source, stored.state_layer) != (config.state_source, config.state_layer):
            staying |= {"state", "readout", "gate"}
        if stored.readout != config.readout:
            staying.add("readout")
        if replace(stored.gate, threshold_logit=config.gate.threshold_logit) != config.gate:
            staying.add("gate")
        return staying

    def holds(self, policy: MemoryPolicy, *, is_half: bool = False) -> bool:
        """Whether the checkpoint is undamaged and holds exactly the weights that `save` would write. Threshold and
        notes may differ.
        """
        gate = replace(self.config.gate, threshold_logit=policy.config.gate.threshold_logit)
        if replace(self.config, gate=gate) != policy.config:
            return False
        try:
            self._check_backbones(policy.backbone, policy.encoder.backbone)
            stored = self._weights()
        except (CheckpointError, StorageError):
            return False
        own = _stored_state(policy, is_half=is_half)
        return stored.keys() == own.keys() and all(
            stored[name].dtype == tensor.dtype and torch.equal(stored[name], tensor) for name, tensor in own.items()
        )

    def with_threshold(self, threshold_logit: float, *, notes: Mapping[str, Any] | None = None) -> "Checkpoint":
        """Write another gate threshold into the card; the weights stay as they are."""
        config = replace(self.config, gate=replace(self.config.gate, threshold_logit=threshold_logit))
        changed = replace(self, config=config, notes={**self.notes, **(notes or {})})
        write_whole(self.folder / _CARD, changed._card())
        return changed

    def with_notes(self, notes: Mapping[str, Any]) -> "Checkpoint":
        """Write more notes into the card; the weights stay as they are."""
        changed = replace(self, notes={**self.notes, **notes})
        write_whole(self.folder / _CARD, changed._card())
        return changed

    def _weights(self) -> dict[str, torch.Tensor]:
        path = self.folder / _WEIGHTS
        try:
            data = path.read_bytes()
        except OSError as error:
            raise StorageError(f"Could not read {path}: {error.strerror}.") from error
        if sha256_hex(data) != self.weights_sha256:
            raise CheckpointError(f"{path} is damaged: its checksum is not the one on the card. Copy it again.")
        try:
            return dict(read_tensors(data))
        except SafetensorError as error:
            raise CheckpointError(f"{path} is not a safetensors file: {error}.") from error

    def _check_backbones(self, policy: Backbone, encoder: Backbone) -> None:
        for use, wanted, given in (
            ("policy", self.policy_backbone, policy.identity()),
            ("encoder", self.encoder_backbone, encoder.identity()),
        ):
            if given.architecture != wanted.architecture:
                raise CheckpointError(
                    f"The checkpoint {self.folder} was trained with the {use} backbone '{wanted.name}', but "
                    f"'{given.name}' has another architecture. Load it with '{wanted.name}'."
                )
            if given.weights != wanted.weights:
                raise CheckpointError(
                    f"The checkpoint {self.folder} was trained with the {use} backbone '{wanted.name}'; "
                    f"'{given.name}' has the same architecture but other weights, tokenizer or image preparation. "
                    "Load the very same backbone, or train the memory again."
                )

    def _check_config(self, policy: MemoryPolicy, may_differ: Collection[str]) -> None:
        stored, wanted = flattened(to_plain(self.config)), flattened(to_plain(policy.config))
        for fields in (stored, wanted):  # None means the policy's width
            fields["compressor.width"] = fields["compressor.width"] or policy.backbone.width
        for name, value in stored.items():
            if name not in {*_FREE_FIELDS, *may_differ} and wanted[name] != value:
                raise CheckpointError(
                    f"The checkpoint {self.folder} has {name} = {value}, "
                    f"but this memory was built with {wanted[name]}. "
                    f"Build it with {value}, or open the checkpoint with Checkpoint.open(...).build(backbone)."
                )

    def _card(self) -> bytes:
        card = {
            "schema_version": SCHEMA_VERSION,
            "config": to_plain(self.config),
            "policy_backbone": asdict(self.policy_backbone),
            "encoder_backbone": asdict(self.encoder_backbone),
            "weights_sha256": self.weights_sha256,
            "dtype": self.dtype,
            "notes": dict(self.notes),
        }
        return json.dumps(card, indent=2, allow_nan=False).encode()


def _stored_state(policy: MemoryPolicy, *, is_half: bool) -> dict[str, torch.Tensor]:
    """A policy's trained weights in their stored form."""
    state = {name: tensor.detach().cpu().contiguous() for name, tensor in policy.trained_state().items()}
    return {name: tensor.bfloat16() for name, tensor in state.items()} if is_half else state


def _of_fewer_tokens(state: Mapping[str, torch.Tensor], own: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The weights for the first tokens: their base queries, and the readout's residuals of these."""
    queries, residuals = "compressor.base_queries_RKH", ("readout.out.weight", "readout.out.bias")
    first = {queries: state[queries][:, : own[queries].shape[1]]}
    first |= {name: state[name][: own[name].shape[0]] for name in residuals if name in own}
    return {**state, **first}
