"""The frozen vision-language model: Qwen3-VL at its published sizes, or the same architecture at toy size.

This file is the only one of the room that knows the transformers library. It builds the language model's input
itself (token embeddings, screenshots scattered in, three-axis positions, DeepStack features) instead of leaving
that to the library's `forward`, which finds image positions in token ids and so cannot take a latent prefix.
"""

import copy
import hashlib
import json
import re
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from PIL import Image
from safetensors import SafetensorError
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor, nn
from transformers import AutoTokenizer, DynamicCache, PreTrainedTokenizerFast, Qwen3VLConfig
from transformers import Qwen3VLForConditionalGeneration as Qwen3VL
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.utils.logging import set_tqdm_hook

from focusmem.errors import BackboneError, ConfigError
from focusmem.model.chat import SPECIAL_TOKENS, ChatTokenizer
from focusmem.model.checksums import check_checksums, write_checksums
from focusmem.model.images import ImageConfig, cut_patches, fitted_pixels
from focusmem.model.inputs import Batch, PackedRows, Row, TokenRow, on_device, stack_rows
from focusmem.model.lora import AttachedLora, LoraConfig, LoraSwitch, attach_lora
from focusmem.model.packed_text import run_packed
from focusmem.model.picture_memory import PictureMemory
from focusmem.model.sizes import HUB_IDS, TOY, architecture, toy_architecture
from focusmem.schemas import Prompt, Screenshot, Turn

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_PREPARATION = {
    "do_resize": True,
    "do_rescale": True,
    "do_normalize": True,
    "do_convert_rgb": True,
    "resample": Image.Resampling.BICUBIC,
    "rescale_factor": 1 / 255,
}
"""The preparation that `focusmem.model.images` applies to every picture."""


_PICTURE_MEMORY_BYTES = 4 * 2**30
"""Limit of kept picture features. The published 8B size needs 31 MB for a screenshot of 960 tokens, and an episode
shows five screenshots at a time."""


@dataclass(frozen=True)
class BackboneIdentity:
    """The identity of a backbone, as a checkpoint stores it."""

    name: str
    """The source of the backbone; for people, never compared."""
    architecture: str
    """Digest of the sizes that determine the shapes of its tensors."""
    weights: str
    """Digest of a sample of every weight, the tokenizer and the image preparation."""


@dataclass(frozen=True)
class VisionFeatures:
    """The features of one screenshot. The encoder's LoRA does not change the vision tower, so encoder and policy share
    them.
    """

    main_VD: Tensor
    deep_LVD: Tensor
    grid: tuple[int, int]
    """Rows and columns of tokens."""

    @property
    def num_bytes(self) -> int:
        return self.main_VD.nbytes + self.deep_LVD.nbytes


class Backbone(nn.Module):
    """A frozen Qwen3-VL with its tokenizer, and the only code path that runs it."""

    def __init__(
        self,
        model: Qwen3VL,
        tokenizer: Tokenizer,
        images: ImageConfig,
        *,
        name: str,
        pictures: PictureMemory[VisionFeatures] | None = None,
    ) -> None:
        """`pictures` holds kept picture features; a backbone with the same vision tower may share its own."""
        super().__init__()
        self.model = model.requires_grad_(False).eval()
        self.chat = ChatTokenizer(tokenizer, images, name=name)
        self.images, self.name = images, name
        self.pictures = PictureMemory[VisionFeatures](_PICTURE_MEMORY_BYTES) if pictures is None else pictures
        self.packs_rows = False
        """Whether rows are laid end to end instead of padded if there is no cache: faster, with the same results."""
        self._loras: list[AttachedLora] = []
        self._recomputes_blocks = False

    # Sources of a backbone

    @classmethod
    def load(
        cls,
        source: str | Path,
        *,
        dtype: torch.dtype = torch.bfloat16,
        device: str | torch.device = "cpu",
        revision: str | None = None,
        needs_head: bool = True,
    ) -> Self:
        """A checkpoint by local folder, hub id or short name such as `qwen3-vl-8b`.

        Without `needs_head` it may lack the output head, as checkpoints of embedders do; it then scores no tokens.
        If the folder has a file SHA256SUMS, as `save` writes it, all files are compared with their digests first.
        """
        place = HUB_IDS.get(str(source), str(source))
        if not Path(place).is_dir() and not HUB_ID.fullmatch(place):
            raise BackboneError(
                f"Unknown backbone '{source}': it is not a folder, not a hub id like owner/name, and not one of "
                f"{', '.join(HUB_IDS)}."
            )
        check_checksums(Path(place))
        try:
            _check_kind(place, revision)
            with _without_bars():
                model, report = Qwen3VL.from_pretrained(
                    place, dtype=dtype, revision=revision, attn_implementation="sdpa", output_loading_info=True
                )
            tokenizer = AutoTokenizer.from_pretrained(place, revision=revision)
            images = _image_config(Qwen2VLImageProcessorPil.from_pretrained(place, revision=revision))
            if needs_head:
                _check_layout(tokenizer, images)
        except (OSError, ValueError, KeyError, RuntimeError, SafetensorError, ConfigError) as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise BackboneError(f"Could not load the backbone '{source}': {reason}") from error
        # The library fills missing weights with random numbers and only warns; such a policy must not act.
        gaps = sorted({*report["missing_keys"], *(str(key) for key in report["mismatched_keys"])})
        if gaps == ["lm_head.weight"] and not needs_head:
            # Zeros, not random numbers, so that the checkpoint's identity is always the same.
            model.lm_head.weight = nn.Parameter(torch.zeros_like(model.lm_head.weight))
        elif gaps:
            raise BackboneError(
                f"The backbone '{source}' is incomplete: {len(gaps)} weights such as {gaps[0]} are missing."
            )
        return cls(model.to(device), tokenizer.backend_tokenizer, images, name=str(source))

    @classmethod
    def from_sizes(cls, sizes: dict[str, Any], tokenizer: Tokenizer, images: ImageConfig, *, name: str) -> Self:
        """The architecture at any size, with fresh weights; `sizes` are arguments of the library's config."""
        model = Qwen3VL._from_config(Qwen3VLConfig(**sizes), attn_implementation="sdpa", dtype=torch.float32)
        return cls(model, tokenizer, images, name=name)

    @classmethod
    def toy(cls, *, seed: int = 0, width: int = 64, num_layers: int = 4, dtype: torch.dtype = torch.float32) -> Self:
        """The same architecture with random weights, for tests and experiments."""
        tokenizer = byte_tokenizer()
        vocabulary = tokenizer.get_vocab(with_added_tokens=True)
        sizes = toy_architecture(vocab_size=len(vocabulary), special_ids=vocabulary, width=width, num_layers=num_layers)
        images = ImageConfig(min_pixels=32 * 32, max_pixels=1024 * 1024)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            toy = cls.from_sizes(sizes, tokenizer, images, name=f"{TOY}-{seed}")
        return toy.to(dtype)

    @classmethod
    def outline(cls, name: str) -> Self:
        """A published size, or a local checkpoint's, without weights (meta tensors): enough to count, not to run."""
        if name not in HUB_IDS and Path(name).is_dir():
            try:
                _check_kind(name, None)
                config = Qwen3VLConfig.from_pretrained(name)
            except (OSError, ValueError) as error:
                raise BackboneError(f"{name} holds no Qwen3-VL config: {str(error).splitlines()[0]}") from error
        else:
            config = Qwen3VLConfig(**architecture(name))
        with torch.device("meta"):
            model = Qwen3VL._from_config(config, attn_implementation="sdpa", dtype=torch.bfloat16)
        return cls(model, byte_tokenizer(), ImageConfig(), name=name)

    def save(self, folder: Path, *, max_shard_size: str = "5GB") -> None:
        """Write the checkpoint in the library's own layout, so that `load` and other tools can read it, and the
        digests of its files.
        """
        with _without_bars():
            self.model.save_pretrained(folder, max_shard_size=max_shard_size)
        plain = copy.deepcopy(self.chat.tokenizer)
        plain.encode_special_tokens = False
        PreTrainedTokenizerFast(
            tokenizer_object=plain, eos_token="<|im_end|>", pad_token="<|endoftext|>"
        ).save_pretrained(folder)
        images = self.images
        Qwen2VLImageProcessorPil(
            patch_size=images.patch_size,
            merge_size=images.merge_size,
            temporal_patch_size=images.temporal_patch_size,
            size={"shortest_edge": images.min_pixels, "longest_edge": images.max_pixels},
            image_mean=list(images.mean),
            image_std=list(images.std),
        ).save_pretrained(folder)
        write_checksums(Path(folder))

    # Properties

    @property
    def language_model(self) -> nn.Module:
        return self.model.model.language_model  # type: ignore[no-any-return]

    @property
    def width(self) -> int:
        return int(self.model.config.text_config.hidden_size)

    @property
    def num_layers(self) -> int:
        return int(self.model.config.text_config.num_hidden_layers)

    @property
    def vocabulary_size(self) -> int:
        return int(self.model.lm_head.weight.shape[0])

    @property
    def device(self) -> torch.device:
        return self.model.lm_head.weight.device  # type: ignore[no-any-return]

    @property
    def dtype(self) -> torch.dtype:
        return self.model.lm_head.weight.dtype  # type: ignore[no-any-return]

    def embedding_std(self) -> float:
        """The spread of the token embeddings, to which fresh memory tokens are scaled."""
        return float(self.language_model.embed_tokens.weight.float().std())  # type: ignore[operator, union-attr]

    def identity(self) -> BackboneIdentity:
        weights = hashlib.sha256()
        for name, tensor in sorted(self.model.state_dict().items()):
            flat = tensor.reshape(-1)
            # A sample of each tensor distinguishes checkpoints. It is rounded, so that it does not depend on the loaded
            # precision.
            picked = flat[:: max(1, flat.numel() // 1024)].to(torch.bfloat16).float().cpu()
            weights.update(f"{name}{tuple(tensor.shape)}".encode() + picked.numpy().tobytes())
        vocabulary = sorted(self.chat.tokenizer.get_vocab(with_added_tokens=True).items())
        weights.update(json.dumps([vocabulary, asdict(self.images)]).encode())
        is_folder = Path(self.name).is_absolute()
        return BackboneIdentity(
            name=Path(self.name).name if is_folder else self.name,  # other machines have other paths
            architecture=hashlib.sha256(json.dumps(_sizes(self.model.config)).encode()).hexdigest(),
            weights=weights.hexdigest(),
        )

    # Input

    def tokenise(self, prompt: Prompt, *, reply: str | None = None, is_complete: bool = False) -> TokenRow:
        """A prompt in the model's chat layout; see `ChatTokenizer.tokenise`."""
        return self.chat.tokenise(prompt, reply=reply, is_complete=is_complete)

    def text_of(self, ids: Sequence[int]) -> str:
        return self.chat.text_of(ids)

    @property
    def special(self) -> dict[str, int]:
        return self.chat.special

    @property
    def stop_ids(self) -> frozenset[int]:
        return self.chat.stop_ids

    def see(
        self, pictures: Sequence[Screenshot], *, seen: Mapping[str, VisionFeatures] | None = None
    ) -> list[VisionFeatures]:
        """Features of screenshots, computed once each and remembered for the next prompt that shows them.

        `seen` holds features that the caller already has, by digest.
        """
        state = self._way_of_seeing()
        grids = {picture.digest: self.chat.token_grid(picture.width, picture.height) for picture in pictures}
        keys = {digest: (digest, grid, state) for digest, grid in grids.items()}
        found: dict[str, VisionFeatures] = {}
        missing: dict[str, Screenshot] = {}
        for picture in pictures:
            if picture.digest in found:
                continue
            known = (seen or {}).get(picture.digest) or self.pictures.get(keys[picture.digest])
            if known is None:
                missing[picture.digest] = picture
            else:
                found[picture.digest] = known
        for digest, features in zip(missing, self._look_at(list(missing.values())), strict=True):
            self.pictures.put(keys[digest], features)
            found[digest] = features
        return [found[picture.digest] for picture in pictures]

    def share_vision(self, other: "Backbone") -> bool:
        """Use another backbone's vision tower and its memory of pictures, if the weights of both towers are equal.

        The vision tower then looks at each picture once for both backbones. Returns whether they are shared.
        """
        own, theirs = self.model.model.visual.state_dict(), other.model.model.visual.state_dict()
        is_same = own.keys() == theirs.keys() and all(_is_equal(own[name], theirs[name]) for name in own)
        if is_same:
            self.model.model.visual, self.pictures = other.model.model.visual, other.pictures
        return is_same

    def _way_of_seeing(self) -> tuple[Any, ...]:
        """Everything that a picture's features depend on, except the picture and its size."""
        tower = self.model.model.visual
        versions = sum(parameter._version for parameter in tower.parameters())
        # A weak reference instead of an id, because a later tower may have the same address.
        return weakref.ref(tower), self.dtype, self.device, versions, self.images.mean, self.images.std

    @torch.no_grad()
    def embed(
        self, rows: Sequence[TokenRow] | PackedRows, *, seen: Mapping[str, VisionFeatures] | None = None
    ) -> list[Row]:
        """Rows of ids as rows of vectors: token embeddings with the screenshots' features in their places.

        `seen` is as in `see`.
        """
        packed = rows if isinstance(rows, PackedRows) else self.chat.pack(rows)
        features = self.see([picture for own in packed.pictures for picture in own], seen=seen)
        packed = packed.to(self.device)
        embeds_TD = self.language_model.embed_tokens(packed.ids_T)  # type: ignore[operator]
        num_levels = len(self.model.config.vision_config.deepstack_visual_indexes)
        deep_LVD = embeds_TD.new_zeros(num_levels, 0, self.width)
        visual_T = torch.zeros_like(packed.ids_T, dtype=torch.bool).index_fill(0, packed.visual_V, True)
        if features:
            main_VD = torch.cat([one.main_VD for one in features]).to(embeds_TD.dtype)
            embeds_TD = embeds_TD.index_copy(0, packed.visual_V, main_VD)
            deep_LVD = torch.cat([one.deep_LVD for one in features], dim=1)
        lengths = list(packed.lengths)
        columns = zip(
            torch.split(embeds_TD, lengths),
            torch.split(packed.positions_3T, lengths, dim=1),
            torch.split(visual_T, lengths),
            torch.split(deep_LVD, list(packed.num_visual), dim=1),
            packed.next_positions,
            packed.target_ids,
            [None] * packed.num_rows,
            torch.split(packed.parts_T, lengths),
            packed.part_counts,
            strict=True,
        )
        return [Row(*one) for one in columns]

    def _look_at(self, pictures: Sequence[Screenshot]) -> list[VisionFeatures]:
        if not pictures:
            return []
        fitted = [fitted_pixels(picture.image(), self.images) for picture in pictures]
        side = self.images.patch_size
        patch_grids = [(pixels.shape[0] // side, pixels.shape[1] // side) for pixels in fitted]
        grids = torch.tensor([[1, *grid] for grid in patch_grids], device=self.device)
        alike = (np.stack(list(run)) for _, run in groupby(fitted, key=lambda pixels: pixels.shape))
        parts = [cut_patches(torch.from_numpy(one).to(self.device), self.images).to(self.dtype) for one in alike]
        pixels = torch.cat(parts)
        with torch.no_grad(), torch.autocast(self.device.type, enabled=False):
            out = self.model.model.visual(pixels, grid_thw=grids)
        merge = self.images.merge_size
        token_grids = [(rows // merge, columns // merge) for rows, columns in patch_grids]
        sizes = [rows * columns for rows, columns in token_grids]
        mains = out.pooler_output.split(sizes)
        deeps = torch.split(torch.stack(list(out.deepstack_features)), sizes, dim=1)
        # Copies, because a view of one picture would keep the features of all of them in memory.
        return [
            VisionFeatures(main.clone(), deep.clone(), grid)
            for main, deep, grid in zip(mains, deeps, token_grids, strict=True)
        ]

    # Forward pass

    def run(
        self,
        batch: Batch,
        *,
        cache: DynamicCache | None = None,
        past_mask_BP: Tensor | None = None,
        num_layers: int | None = None,
    ) -> Tensor:
        """Hidden states (B, S, D). By default, these are the last hidden states, after the final norm. With
        `num_layers`, they are the states after that number of blocks.

        `cache` holds the previous positions. `past_mask_BP` is True for previous positions that count. Both grow with
        each call.
        """
        has_pictures = bool(batch.deep_LVD.shape[1])
        mask_BT = batch.mask_BS if past_mask_BP is None else torch.cat([past_mask_BP, batch.mask_BS], dim=1)
        # The library drops the cache when it recomputes blocks, so blocks are in that mode only where they may be.
        is_recomputing = self._recomputes_blocks and torch.is_grad_enabled() and cache is None
        if self.language_model.training != is_recomputing:
            self.language_model.train(is_recomputing)
        loras = [one for one in self._loras if one.switch.is_on]
        if self.packs_rows and cache is None and not is_recomputing and len(loras) < 2:
            updates = loras[0].updates if loras else None
            return run_packed(self.language_model, batch, updates, num_layers=self._checked(num_layers))
        stack = self.language_model if num_layers is None else self._first_layers(num_layers)
        # Always explicit, because the library may read images as packed sequences if the mask is missing.
        attention = mask_BT.long() if batch.attention_BS is None or cache is not None else _scores(batch)
        out = stack(
            inputs_embeds=batch.embeds_BSD,
            attention_mask=attention,
            position_ids=batch.positions_3BS,
            visual_pos_masks=batch.visual_BS if has_pictures else None,
            deepstack_visual_embeds=list(batch.deep_LVD) if has_pictures else None,
            past_key_values=cache,
            use_cache=cache is not None,
        )
        return out.last_hidden_state  # type: ignore[no-any-return]

    def target_hidden(self, rows: Sequence[Row]) -> Tensor:
        """The hidden states (M, D) from which each token of the rows' replies is predicted, row after row."""
        hidden_BSD = self.run(stack_rows(rows))
        size = hidden_BSD.shape[1]
        # A token is predicted from the state before it, so the window starts one position earlier.
        windows = [np.arange(row.num_context - 1, row.length - 1) + at * size for at, row in enumerate(rows)]
        return hidden_BSD.flatten(0, 1).index_select(0, on_device(self.device, np.concatenate(windows)))

    def logits(self, hidden: Tensor) -> Tensor:
        """Next-token scores. Pass only the positions that are needed, because the head is large."""
        return self.model.lm_head(hidden)  # type: ignore[no-any-return]

    def new_cache(self) -> DynamicCache:
        return DynamicCache()

    def _first_layers(self, num_layers: int) -> nn.Module:
        """The first blocks as a separate model that shares the weights: an early exit."""
        self._checked(num_layers)
        shallow = copy.copy(self.language_model)
        shallow._modules = dict(self.language_model._modules)
        shallow.layers = self.language_model.layers[:num_layers]  # type: ignore[index]
        shallow.norm = nn.Identity()
        return shallow

    def _checked(self, num_layers: int | None) -> int | None:
        if num_layers is not None and not 1 <= num_layers <= self.num_layers:
            raise ConfigError(f"Cannot stop after layer {num_layers}: '{self.name}' has layers 1 to {self.num_layers}.")
        return num_layers

    @property
    def max_padding(self) -> int:
        """The number of padding tokens up to which it is faster to run rows of different lengths together."""
        return 65_536 if self.packs_rows else 4096

    # LoRA and gradient checkpointing on shared weights

    def add_lora(self, config: LoraConfig) -> AttachedLora:
        """Low-rank updates on every linear of the text blocks, and the switch that turns them on."""
        layers = self.language_model.layers
        assert isinstance(layers, nn.ModuleList)
        attached = attach_lora(layers, config)
        self._loras.append(attached)
        return attached

    def remove_lora(self, attached: AttachedLora) -> None:
        for handle in attached.handles:
            handle.remove()
        self._loras = [one for one in self._loras if one is not attached]

    def checkpoint_gradients(self) -> None:
        """Recompute text blocks in the backward pass instead of keeping their activations.

        Passes without a gradient, or with a cache, are not affected.
        """
        self.language_model.gradient_checkpointing_enable(  # type: ignore[operator]
            gradient_checkpointing_kwargs={"use_reentrant": False, "context_fn": self._recompute_contexts}
        )
        self._recomputes_blocks = True

    def _recompute_contexts(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        """Called in a block's forward pass: its recomputation must use the switches as they are at this moment."""
        return nullcontext(), _SwitchesAsNow([one.switch for one in self._loras])


def _scores(batch: Batch) -> Tensor:
    """The terms added to attention's scores, (B, 1, S, S): the causal mask, padding, and the presence of
    each position.
    """
    assert batch.attention_BS is not None, "some row says how present its vectors are"
    dtype, size = batch.embeds_BSD.dtype, batch.mask_BS.shape[1]
    causal_SS = torch.ones(size, size, dtype=torch.bool, device=batch.mask_BS.device).tril()
    allowed_BSS = causal_SS & batch.mask_BS[:, None]
    scores_BSS = batch.attention_BS[:, None].expand(-1, size, -1).to(dtype)
    return scores_BSS.masked_fill(~allowed_BSS, torch.finfo(dtype).min)[:, None]


class _SwitchesAsNow:
    """Stores the states of the switches when it is made, sets them on entry and resets them on exit. It can be entered
    again.
    """

    def __init__(self, switches: Sequence[LoraSwitch]) -> None:
        self._states = [(switch, switch.is_on) for switch in switches]

    def __enter__(self) -> None:
        self._entered = ExitStack()
        for switch, was_on in self._states:
            self._entered.enter_context(switch.turned(was_on))

    def __exit__(self, *error: object) -> None:
        self._entered.close()


@contextmanager
def _without_bars() -> Iterator[None]:
    """Switches off the library's progress bars for this call only, with a hook. The library's own switch would remain
    off for other code afterwards, and would also hide the bars of downloads.
    """
    before = set_tqdm_hook(lambda bar, words, options: bar(*words, **{**options, "disable": True}))
    try:
        yield
    finally:
        set_tqdm_hook(before)


def _is_equal(one: Tensor, other: Tensor) -> bool:
    return one.dtype == other.dtype and one.device == other.device and torch.equal(one, other)


def _check_kind(place: str, revision: str | None) -> None:
    """Refuse what the library would load with a warning: a checkpoint of another architecture."""
    fields, _ = Qwen3VLConfig.get_config_dict(place, revision=revision)
    if fields.get("model_type") != "qwen3_vl":
        raise ValueError(f"its config says '{fields.get('model_type')}', not 'qwen3_vl'.")


def _check_layout(tokenizer: PreTrainedTokenizerFast, images: ImageConfig) -> None:
    """Refuse a checkpoint whose own chat template gives other tokens than ours, such as one that opens a reply with
    <think>: the policy would act on prompts that it was not trained on.
    """
    if not tokenizer.chat_template:
        return
    probe: Prompt = tuple(Turn(role, (f"  Hello\n {role} ",)) for role in ("system", "user", "assistant", "user"))
    messages = [{"role": turn.role, "content": turn.parts[0]} for turn in probe]
    try:
        theirs = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    except Exception as error:  # a template is code of the checkpoint and may raise anything
        raise ValueError(f"its chat template fails: {error}") from error
    ids = tokenizer.backend_tokenizer.encode(theirs, add_special_tokens=False).ids
    if tuple(ids) != ChatTokenizer(tokenizer.backend_tokenizer, images).tokenise(probe).ids:
        raise ValueError(f"its chat template is not that of Qwen3-VL-Instruct: it gives {theirs!r}")


def byte_tokenizer() -> Tokenizer:
    """One token per byte, and the chat layout's special tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: index for index, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    return tokenizer


def _image_config(processor: Qwen2VLImageProcessorPil) -> ImageConfig:
    """A checkpoint's image preparation. It is refused if it has a step that we lack, or lacks one of ours."""
    for name, expected in _PREPARATION.items():
        if getattr(processor, name) != expected:
            raise ValueError(f"its pictures need {name} = {getattr(processor, name)}; only {expected} is supported")
    if not (processor.size["shortest_edge"] and processor.size["longest_edge"]):
        raise ValueError("its preprocessor_config.json has no limits: size needs shortest_edge and longest_edge")
    return ImageConfig(
        patch_size=processor.patch_size,
        merge_size=processor.merge_size,
        temporal_patch_size=processor.temporal_patch_size,
        min_pixels=processor.size["shortest_edge"],
        max_pixels=processor.size["longest_edge"],
        mean=tuple(processor.image_mean),
        std=tuple(processor.image_std),
    )


def _sizes(config: Any) -> dict[str, dict[str, Any]]:
    """The numbers that determine the shapes and the meaning of the weights, independent of the library's version."""
    text = "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads head_dim"
    vision = (
        "depth hidden_size intermediate_size num_heads out_hidden_size patch_size spatial_merge_size "
        "temporal_patch_size num_position_embeddings"
    )
    rope = config.text_config.rope_parameters
    return {
        "text": {name: getattr(config.text_config, name) for name in text.split()},
        "vision": {name: getattr(config.vision_config, name) for name in vision.split()},
        "rope": {name: rope[name] for name in ("rope_theta", "mrope_section")},
        "deepstack": {"layers": list(config.vision_config.deepstack_visual_indexes)},
    }
