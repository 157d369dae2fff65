"""Teaches the laboratory's policy to read, act, describe and answer, from nothing, on sites made for that alone.

Batches are drawn by worker processes while the GPU computes; nothing is stored and no example comes twice. The learning
rate follows the time spent, since time on a GPU is what there is little of; a run that is stopped goes on from its last
save as if it had never stopped.
"""

import copy
import io
import json
import logging
import math
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from focusmem.errors import ConfigError
from focusmem.files import write_whole
from focusmem.lab.corpus import Corpus, CorpusBatch, CorpusBatches
from focusmem.lab.fast_vision import see_all
from focusmem.lab.policy import new_policy, train_tokenizer
from focusmem.lab.world import World
from focusmem.model.backbone import Backbone
from focusmem.progress import Progress
from focusmem.schemas import dump_record
from focusmem.schemas.environment import collect_environment
from focusmem.seeds import derive_seed

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class PretrainConfig:
    minutes: float = 25.0
    """Time to train for, over all runs together."""
    pause_after: float | None = None
    """Minutes after which this run saves and stops, to be gone on with later; the learning rate keeps to `minutes`."""
    learning_rate: float = 1e-3
    weight_decay: float = 0.05
    warmup_steps: int = 200
    max_tokens: int = 65_536
    """Tokens per step, padding included."""
    num_reading_steps: int = 600
    """So many steps are mostly about reading pages; then everything is mixed."""
    num_workers: int = 13
    save_every_s: float = 120.0
    score_every_s: float = 120.0
    seed: int = 0
    world_seed: int = 0
    device: str = "cuda"
    start: str | None = None
    """Weights to begin with, from an earlier run's `policy` folder; None begins from nothing."""
    sizes: tuple[tuple[str, tuple[tuple[str, Any], ...]], ...] = ()
    """Changes to the architecture, for tests."""

    def __post_init__(self) -> None:
        if self.minutes <= 0:
            raise ConfigError(f"PretrainConfig.minutes is {self.minutes}; it must be positive.")
        if self.device.startswith("cuda") and not torch.cuda.is_available():
            raise ConfigError("PretrainConfig.device is cuda, but torch sees no GPU here; use --device cpu.")


def kind_of_batch(number: int, config: PretrainConfig) -> str:
    """Which examples a step learns from, by its number alone."""
    draw = derive_seed(config.seed, "kind", number) % 100
    if number < config.num_reading_steps:
        return "transcription" if draw < 75 else "episode"
    if draw < 8:
        return "transcription"
    if draw < 48:
        return "episode"
    return "decision" if draw < 84 else "question"


@dataclass
class _State:
    """All that a save holds: resuming equals never having stopped."""

    policy: Backbone
    optimizer: torch.optim.Optimizer
    num_steps: int = 0
    trained_s: float = 0.0
    waited_s: float = 0.0
    num_tokens: int = 0

    def save(self, path: Path) -> None:
        buffer = io.BytesIO()
        numbers = {name: getattr(self, name) for name in ("num_steps", "trained_s", "waited_s", "num_tokens")}
        parts = {"model": self.policy.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        torch.save(parts | numbers, buffer)
        write_whole(path, buffer.getvalue())

    def load(self, path: Path) -> None:
        stored = torch.load(path, map_location=self.policy.device, weights_only=True)
        self.policy.model.load_state_dict(stored.pop("model"))
        self.optimizer.load_state_dict(stored.pop("optimizer"))
        for name, value in stored.items():
            setattr(self, name, value)


def pretrain(config: PretrainConfig, folder: Path) -> Backbone:
    """Train for the configured time, resuming from `folder` where a run was stopped; returns the policy."""
    world = World(config.world_seed)
    policy = _first_policy(world, config).to(config.device)
    policy.model.requires_grad_(True)
    if config.device.startswith("cuda"):
        # cuDNN plans its attention anew for every shape, and shapes change with every batch.
        torch.backends.cuda.enable_cudnn_sdp(False)
        # Twice as fast, for half a minute of compiling.
        for layer in policy.language_model.layers:  # type: ignore[union-attr]
            layer.compile(dynamic=True)
    state = _State(policy, _optimizer(policy, config))
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "config.json", json.dumps(asdict(config), indent=2).encode())
    if (folder / "state.pt").exists():
        state.load(folder / "state.pt")
    saved = scored = time.monotonic()
    pause_s = math.inf if config.pause_after is None else state.trained_s + config.pause_after * 60
    losses: dict[str, list[Tensor]] = defaultdict(list)
    with Progress("pretrain", total=round(config.minutes * 60)) as line:
        line.step(round(state.trained_s))
        for batch, waited_s in _batches(world, policy, config, state.num_steps):
            started = time.monotonic()
            loss = _step(state, batch, config)
            losses[batch.tags[0].split("/")[0]].append(loss)
            state.num_tokens += batch.ids_BS.numel()
            if state.num_steps % 20 == 0:
                loss.item()  # wait for the GPU now and then, so that time spent is time passed
            state.num_steps += 1
            state.waited_s += waited_s
            before, state.trained_s = state.trained_s, state.trained_s + waited_s + time.monotonic() - started
            line.step(int(state.trained_s) - int(before), note=f"step {state.num_steps}")
            is_over = state.trained_s >= min(pause_s, config.minutes * 60)
            if is_over or time.monotonic() - scored > config.score_every_s:
                _report(state, losses, folder, score(policy, world, num_batches=1, max_tokens=config.max_tokens))
                scored = time.monotonic()
            if is_over or time.monotonic() - saved > config.save_every_s:
                state.save(folder / "state.pt")
                saved = time.monotonic()
            if is_over:
                break
    policy.model.requires_grad_(False)
    _write_policy(policy, state, config, folder)
    return policy


def _first_policy(world: World, config: PretrainConfig) -> Backbone:
    if config.start is not None:
        return Backbone.load(config.start, dtype=torch.float32)
    changes = {part: dict(values) for part, values in config.sizes}
    return new_policy(train_tokenizer(world), seed=config.seed, **changes)


def _write_policy(policy: Backbone, state: "_State", config: PretrainConfig, folder: Path) -> None:
    """The trained policy in bfloat16, in files small enough for a repository, with a card that says how it was made."""
    scores = score(policy, World(config.world_seed), num_batches=2, max_tokens=config.max_tokens)
    name = torch.cuda.get_device_name() if policy.device.type == "cuda" else "cpu"
    seeds = {"pretrain": config.seed, "world": config.world_seed}
    card = {
        "what": "the laboratory's policy: Qwen3-VL architecture, trained from scratch on laboratory sites only",
        "num_parameters": sum(parameter.numel() for parameter in policy.model.parameters()),
        "num_steps": state.num_steps,
        "num_tokens": state.num_tokens,
        "trained_s": round(state.trained_s, 1),
        "waiting_rate": state.waited_s / max(1e-9, state.trained_s),
        "config": asdict(config),
        "environment": json.loads(dump_record(collect_environment(seeds, {"accelerator": name}))),
        "right_rate": {tag: rate for tag, (rate, _) in scores.items()},
        "num_scored": {tag: num for tag, (_, num) in scores.items()},
    }
    half = copy.deepcopy(policy).to(torch.bfloat16)
    half.save(folder / "policy", max_shard_size="14MB")
    write_whole(folder / "policy" / "card.json", json.dumps(card, indent=2).encode())


def _optimizer(policy: Backbone, config: PretrainConfig) -> torch.optim.Optimizer:
    decayed = [parameter for parameter in policy.model.parameters() if parameter.ndim > 1]
    plain = [parameter for parameter in policy.model.parameters() if parameter.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": plain, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=(0.9, 0.95), fused=config.device.startswith("cuda"))


def _step(state: _State, batch: CorpusBatch, config: PretrainConfig) -> Tensor:
    share = min(1.0, state.trained_s / (config.minutes * 60))
    warm = min(1.0, (state.num_steps + 1) / config.warmup_steps)
    rate = config.learning_rate * warm * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * share)))
    for group in state.optimizer.param_groups:
        group["lr"] = rate
    logits, targets = batch_logits(state.policy, batch.to(state.policy.device))
    loss = F.cross_entropy(logits, targets)
    state.optimizer.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(state.policy.model.parameters(), 1.0)
    state.optimizer.step()
    return loss.detach()


def batch_logits(policy: Backbone, batch: CorpusBatch) -> tuple[Tensor, Tensor]:
    """Scores at the positions before each target, and the targets."""
    text = policy.language_model
    ids_BS = batch.ids_BS
    visual_BS = ids_BS == policy.special["<|image_pad|>"]
    with torch.autocast(policy.device.type, torch.bfloat16, enabled=policy.device.type == "cuda"):
        main_NVD, deep_LNVD = see_all(policy.model.model.visual, batch.pixels_NHWC)
        embeds_BSD = text.embed_tokens(ids_BS).to(main_NVD.dtype)  # type: ignore[operator]
        placed = main_NVD[batch.picture_of_place].flatten(0, 1)
        embeds_BSD = embeds_BSD.masked_scatter(visual_BS[..., None].expand_as(embeds_BSD), placed)
        # Rows are padded on the right and attention is causal, so padding reaches nothing and needs no mask.
        hidden_BSD = text(
            inputs_embeds=embeds_BSD,
            position_ids=batch.positions_3BS,
            visual_pos_masks=visual_BS,
            deepstack_visual_embeds=[level[batch.picture_of_place].flatten(0, 1) for level in deep_LNVD],
            use_cache=False,
        ).last_hidden_state
        is_next = batch.is_target_BS[:, 1:]
        logits = policy.logits(hidden_BSD[:, :-1][is_next])
    return logits.float(), ids_BS[:, 1:][is_next]


@torch.no_grad()
def score(policy: Backbone, world: World, *, num_batches: int, max_tokens: int) -> dict[str, tuple[float, int]]:
    """Share of replies that are right token for token on sites never trained on, by tag, with their number."""
    corpus = Corpus(world, policy.chat, split="v", num_sites=60)
    right: dict[str, list[bool]] = defaultdict(list)
    for kind in ("transcription", "decision", "question"):
        for number in range(num_batches * (3 if kind == "decision" else 1)):
            batch = corpus.batch(kind, derive_seed(7, kind, number), max_tokens=max_tokens).to(policy.device)
            logits, targets = batch_logits(policy, batch)
            hits = (logits.argmax(dim=-1) == targets).tolist()
            start = 0
            for tag, size in zip(batch.tags, batch.is_target_BS.sum(dim=1).tolist(), strict=True):
                own = hits[start : start + size]
                start += size
                parts = tag.split("/")
                name = "/".join((parts[0], parts[1], parts[3])) if parts[0] == "decision" else tag
                right[name].append(all(own))
                if parts[0] in ("transcription", "question"):
                    right[f"{name} tokens"] += own
    return {name: (sum(values) / len(values), len(values)) for name, values in sorted(right.items())}


def _batches(world: World, policy: Backbone, config: PretrainConfig, start: int) -> Iterator[tuple[CorpusBatch, float]]:
    """Batches from a number on, each with the time that was spent waiting for it."""
    # Thousands of tensors pass between processes; this way they need few file handles.
    torch.multiprocessing.set_sharing_strategy("file_system")  # type: ignore[no-untyped-call]
    data = CorpusBatches(
        Corpus(world, policy.chat),
        lambda number: kind_of_batch(number, config),
        seed=config.seed,
        max_tokens=config.max_tokens,
    )
    loader = torch.utils.data.DataLoader(
        data,
        batch_size=None,
        sampler=range(start, 2**31),
        num_workers=config.num_workers,
        prefetch_factor=4 if config.num_workers else None,
        pin_memory=config.device.startswith("cuda"),
        multiprocessing_context="fork" if config.num_workers else None,
    )
    batches = iter(loader)
    while True:
        asked = time.monotonic()
        batch = next(batches)
        yield batch, time.monotonic() - asked


def _report(state: _State, losses: dict[str, list[Tensor]], folder: Path, scores: dict[str, tuple[float, int]]) -> None:
    line = {
        "num_steps": state.num_steps,
        "num_tokens": state.num_tokens,
        "trained_s": round(state.trained_s, 1),
        "waiting_rate": round(state.waited_s / max(1e-9, state.trained_s), 4),
        "tokens_per_s": round(state.num_tokens / max(1e-9, state.trained_s)),
        "loss": {kind: round(torch.stack(values).mean().item(), 4) for kind, values in losses.items()},
        "right_rate": {name: round(rate, 4) for name, (rate, _) in scores.items()},
        "num_scored": {name: num for name, (_, num) in scores.items()},
    }
    losses.clear()
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")
    _log.info("%s", json.dumps({"num_steps": line["num_steps"], "loss": line["loss"]}))
