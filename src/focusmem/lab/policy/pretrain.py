"""Teaches the laboratory's policy to read, act, describe and answer, from scratch, on sites made only for this.

Batches are drawn by worker processes while the GPU computes; nothing is stored and no example is used twice. The
learning rate follows the time spent, because GPU time is scarce. A stopped run resumes from its last save as if it had
never stopped.
"""

import copy
import io
import json
import logging
import math
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor, nn
from torch.nn import functional as F

from focusmem.errors import ConfigError, TrainingError
from focusmem.files import write_whole
from focusmem.lab.policy.characters import NUM_LETTERS, NUM_SLOTS
from focusmem.lab.policy.corpus import LEARNT, CorpusBatches
from focusmem.lab.policy.fast_vision import see_all
from focusmem.lab.policy.muon import StackedMuon
from focusmem.lab.policy.office_corpus import OfficeCorpus
from focusmem.lab.policy.packing import CorpusBatch
from focusmem.lab.policy.policy import new_policy, train_tokenizer
from focusmem.lab.world.world import World
from focusmem.model.backbone import Backbone
from focusmem.model.devices import usable_device
from focusmem.model.packed_text import Borders, read_packed
from focusmem.progress import Progress
from focusmem.schemas import dump_record
from focusmem.schemas.environment import collect_environment
from focusmem.seeds import derive_seed
from focusmem.settings import checked_dataclass, to_plain

_log = logging.getLogger(__name__)


@checked_dataclass(frozen=True, kw_only=True)
class PretrainConfig:
    minutes: PositiveFloat = 25.0
    """Time to train for, over all runs together."""
    pause_after: PositiveFloat | None = None
    """Minutes after which this run saves and stops, to be resumed later. The learning rate follows `minutes`."""
    matrix_rate: PositiveFloat = 0.015
    """Learning rate of the matrices inside blocks, which Muon trains."""
    other_rate: PositiveFloat = 1.5e-3
    """Learning rate of everything else, which AdamW trains."""
    weight_decay: NonNegativeFloat = 0.05
    warmup_steps: PositiveInt = 100
    max_tokens: PositiveInt = 65_536
    """Tokens per step, padding included."""
    num_reading_steps: NonNegativeInt = 1500
    """Number of first steps, which mostly teach reading pages. All later steps mix every kind of example."""
    letter_weight: NonNegativeFloat = 1.0
    """Weight of the loss by which the vision tower learns letters."""
    drills: bool = False
    """Improve an existing policy: only the text blocks are trained, on drills of single skills and on decisions. This
    is possible on a CPU."""
    offices: bool = False
    """Continue a policy with offices: their lists, their requests and the probes, beside what it has learnt before."""
    is_half: bool | None = None
    """Whether to compute in bfloat16; None does so only on a GPU. Some CPUs are far faster with it too."""
    num_workers: NonNegativeInt = 14
    save_every_s: NonNegativeFloat = 120.0
    score_every_s: NonNegativeFloat = 120.0
    seed: int = 0
    world_seed: int = 0
    device: str = "cuda"
    start: str | None = None
    """Weights to begin with, from an earlier run's `policy` folder; None begins from nothing."""
    sizes: tuple[tuple[str, tuple[tuple[str, Any], ...]], ...] = ()
    """Changes to the architecture, for tests."""

    def __post_init__(self) -> None:
        for name in ("drills", "offices"):
            if getattr(self, name) and self.start is None:
                raise ConfigError(f"PretrainConfig.{name} continues an existing policy; name it with start.")
        if self.drills and self.offices:
            raise ConfigError("PretrainConfig.drills and PretrainConfig.offices are two mixes; choose one of them.")


READING = {"transcription": 0.30, "line": 0.35, "answer": 0.10, "episode": 0.15, "decision": 0.10}
EVERYTHING = {
    "transcription": 0.03, "line": 0.07, "answer": 0.05, "weighing": 0.04, "comparison": 0.06, "search": 0.07,
    "episode": 0.18, "decision": 0.37, "question": 0.13,
}  # fmt: skip
DRILLS = {"weighing": 0.15, "comparison": 0.22, "search": 0.10, "decision": 0.40, "question": 0.13}
OFFICES = {
    "list": 0.12, "entry": 0.20, "request": 0.24, "office question": 0.06, "probe": 0.08,
    "line": 0.02, "answer": 0.02, "comparison": 0.02, "search": 0.02, "episode": 0.05, "decision": 0.13,
    "question": 0.04,
}  # fmt: skip
WEIGHTS = {
    "transcription": 0.3, "line": 0.5, "answer": 1.0, "weighing": 1.0, "comparison": 0.6, "search": 0.3,
    "episode": 1.0, "decision": 2.0, "question": 1.0, "list": 0.4, "entry": 1.0, "probe": 1.0, "record": 0.5,
}  # fmt: skip
"""The weight of a token of each kind. Frequent kinds have less weight; kinds that the policy exists for have more."""


def shares_of_step(number: int, config: PretrainConfig) -> dict[str, float]:
    """The kinds of examples in a step, with their shares of the tokens. They depend only on the step's number."""
    if config.drills:
        return DRILLS
    if config.offices:
        return OFFICES
    return READING if number < config.num_reading_steps else EVERYTHING


class LetterHead(nn.Module):
    """Predicts the letters of a visual token from its vector. Used only in pretraining; not part of the policy."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.out = nn.Linear(width, NUM_SLOTS * NUM_LETTERS)

    def loss(self, main_PVD: Tensor, letters_PVS: Tensor) -> Tensor:
        logits = self.out(main_PVD).view(-1, NUM_LETTERS).float()
        # Most slots are empty, which is easy to predict.
        weights = logits.new_ones(NUM_LETTERS)
        weights[0] = 0.05
        return F.cross_entropy(logits, letters_PVS.flatten().long(), weight=weights)


@dataclass
class _State:
    """Everything that a save holds. A resumed run equals an uninterrupted one, unless its save was lightened."""

    policy: Backbone
    head: LetterHead
    optimizers: list[torch.optim.Optimizer]
    num_steps: int = 0
    trained_s: float = 0.0
    waited_s: float = 0.0
    num_tokens: int = 0

    def save(self, path: Path) -> None:
        buffer = io.BytesIO()
        numbers = {name: getattr(self, name) for name in ("num_steps", "trained_s", "waited_s", "num_tokens")}
        optimizers = [optimizer.state_dict() for optimizer in self.optimizers]
        weights = {"model": self.policy.model.state_dict(), "head": self.head.state_dict()}
        torch.save(weights | {"optimizers": optimizers} | numbers, buffer)
        write_whole(path, buffer.getvalue())

    def load(self, path: Path) -> None:
        stored = torch.load(path, map_location=self.policy.device, weights_only=True)
        self.policy.model.load_state_dict(stored.pop("model"))
        self.head.load_state_dict(stored.pop("head"))
        moments = stored.pop("optimizers")
        for optimizer, values in zip(self.optimizers, moments or (), strict=bool(moments)):
            optimizer.load_state_dict(values)
        for name, value in stored.items():
            setattr(self, name, value)


def lightened(save: bytes) -> bytes:
    """A save for slow transport, a quarter as large: weights in bfloat16, and no moments of the optimizers, which begin
    anew with the next step. A run that goes on from it differs slightly from one that was not moved.
    """
    stored = torch.load(io.BytesIO(save), map_location="cpu", weights_only=True)
    for part in ("model", "head"):
        stored[part] = {name: one.bfloat16() if one.is_floating_point() else one for name, one in stored[part].items()}
    buffer = io.BytesIO()
    torch.save(stored | {"optimizers": None}, buffer)
    return buffer.getvalue()


@dataclass(frozen=True)
class StepLoss:
    """The losses of one batch: for each kind in `LEARNT`, the sum over its tokens, and their number."""

    sums_L: Tensor
    nums_L: Tensor
    letters: Tensor | None = None
    """The mean letter loss."""
    gradient_norm: Tensor | None = None

    @property
    def weighted(self) -> Tensor:
        weights_L = self.sums_L.new_tensor([WEIGHTS[name] for name in LEARNT])
        return (self.sums_L * weights_L).sum() / (self.nums_L * weights_L).sum()


def pretrain(config: PretrainConfig, folder: Path) -> Backbone:
    """Train for the configured time, resuming from `folder` where a run was stopped; returns the policy."""
    usable_device(config.device)
    world = World(config.world_seed)
    policy = _first_policy(world, config).to(config.device)
    policy.model.requires_grad_(True)
    policy.model.model.visual.requires_grad_(not config.drills)
    if config.device.startswith("cuda"):
        # cuDNN plans its attention anew for every shape, and the number of pictures changes with every batch.
        torch.backends.cuda.enable_cudnn_sdp(False)
        torch.set_float32_matmul_precision("high")
    head = LetterHead(policy.width).to(config.device)
    state = _State(policy, head, _optimizers(policy, head, config))
    folder.mkdir(parents=True, exist_ok=True)
    _check_same(folder, config)
    write_whole(folder / "config.json", json.dumps(_settings(config), indent=2).encode())
    if (folder / "state.pt").exists():
        state.load(folder / "state.pt")
    saved = scored = time.monotonic()
    pause_s = math.inf if config.pause_after is None else state.trained_s + config.pause_after * 60
    losses: list[StepLoss] = []
    with Progress("pretrain", total=round(config.minutes * 60)) as line:
        line.step(round(state.trained_s))
        for batch, waited_s in _batches(world, policy, config, state.num_steps):
            started = time.monotonic()
            losses.append(_step(state, batch, config))
            state.num_tokens += batch.ids_T.numel()
            if state.num_steps % 20 == 0:  # wait for the GPU regularly, so that times are true
                _check_finite(losses, state.num_steps)
            state.num_steps += 1
            state.waited_s += waited_s
            before, state.trained_s = state.trained_s, state.trained_s + waited_s + time.monotonic() - started
            line.step(int(state.trained_s) - int(before), note=f"step {state.num_steps}")
            is_over = state.trained_s >= min(pause_s, config.minutes * 60)
            if is_over or time.monotonic() - scored > config.score_every_s:
                _check_finite(losses, state.num_steps)
                _report(state, losses, folder, score(policy, world, config, num_batches=1))
                scored = time.monotonic()
            if is_over or time.monotonic() - saved > config.save_every_s:
                _check_finite(losses, state.num_steps)
                state.save(folder / "state.pt")
                saved = time.monotonic()
            if is_over:
                break
    policy.model.requires_grad_(False)
    _write_policy(policy, state, config, folder)
    return policy


def _check_finite(losses: Sequence[StepLoss], num_steps: int) -> None:
    """Stops a run with a non-finite gradient; its last save is kept."""
    norms = [loss.gradient_norm for loss in losses if loss.gradient_norm is not None]
    if norms and not torch.stack(norms[-20:]).isfinite().all():
        raise TrainingError(
            f"The gradient was not finite shortly before step {num_steps}. The last save is kept; lower the learning "
            "rate, or resume it with another seed."
        )


def _settings(config: PretrainConfig) -> dict[str, Any]:
    """All settings that decide what is learnt, including the mix of examples."""
    mix = {"reading": READING, "everything": EVERYTHING}
    if config.drills or config.offices:
        mix = {"drills": DRILLS} if config.drills else {"offices": OFFICES}
    return to_plain(config) | {"mix": mix | {"weights": WEIGHTS}}


def _check_same(folder: Path, config: PretrainConfig) -> None:
    """Refuses to resume a folder with other settings, except those that only say when to stop."""
    path = folder / "config.json"
    if not path.exists() or not (folder / "state.pt").exists():
        return
    free = {"minutes", "pause_after", "num_workers", "save_every_s", "score_every_s", "device"}
    before, now = json.loads(path.read_text()), _settings(config)
    changed = [name for name in now if name not in free and before.get(name) != now[name]]
    if changed:
        raise ConfigError(
            f"{folder} holds a run with another {', '.join(changed)}; choose another --out, or delete it."
        )


def _first_policy(world: World, config: PretrainConfig) -> Backbone:
    if config.start is not None:
        return Backbone.load(config.start, dtype=torch.float32)
    changes = {part: dict(values) for part, values in config.sizes}
    return new_policy(train_tokenizer(world), seed=config.seed, **changes)


def _write_policy(policy: Backbone, state: "_State", config: PretrainConfig, folder: Path) -> None:
    """The trained policy in bfloat16, in files small enough for a repository, with a card that says how it was made."""
    scores = score(policy, World(config.world_seed), config, num_batches=2)
    name = torch.cuda.get_device_name() if policy.device.type == "cuda" else "cpu"
    seeds = {"pretrain": config.seed, "world": config.world_seed}
    card = {
        "what": "the laboratory's policy: Qwen3-VL architecture, trained from scratch on laboratory sites only",
        "num_parameters": sum(parameter.numel() for parameter in policy.model.parameters()),
        "num_steps": state.num_steps,
        "num_tokens": state.num_tokens,
        "trained_s": round(state.trained_s, 1),
        "waiting_rate": state.waited_s / max(1e-9, state.trained_s),
        "config": _settings(config) | {"start": None if config.start is None else "the policy of `before`"},
        "before": _card_of(config.start),
        "environment": json.loads(dump_record(collect_environment(seeds, {"accelerator": name}))),
        "right_rate": {tag: rate for tag, (rate, _) in scores.items()},
        "num_scored": {tag: num for tag, (_, num) in scores.items()},
    }
    half = copy.deepcopy(policy).to(torch.bfloat16)
    half.save(folder / "policy", max_shard_size="14MB")
    write_whole(folder / "policy" / "card.json", json.dumps(card, indent=2).encode())


def _card_of(start: str | None) -> dict[str, Any] | None:
    """The card of the policy that a run began with, if it has one."""
    path = None if start is None else Path(start) / "card.json"
    return None if path is None or not path.exists() else dict(json.loads(path.read_text(encoding="utf-8")))


def _optimizers(policy: Backbone, head: LetterHead, config: PretrainConfig) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside blocks, AdamW for tables, filters, norms and biases."""
    names = ("embed_tokens", "pos_embed", "lm_head")
    matrices: list[Tensor] = []
    tables: list[Tensor] = [head.out.weight]
    plain: list[Tensor] = [head.out.bias]
    learning = ((name, one) for name, one in policy.model.named_parameters() if one.requires_grad)
    for name, parameter in learning:
        is_matrix = parameter.ndim == 2 and not any(part in name for part in names)
        (matrices if is_matrix else tables if parameter.ndim > 1 else plain).append(parameter)
    groups = [{"params": tables, "weight_decay": config.weight_decay}, {"params": plain, "weight_decay": 0.0}]
    is_on_gpu = config.device.startswith("cuda")
    return [
        StackedMuon(matrices, lr=config.matrix_rate, weight_decay=config.weight_decay),
        torch.optim.AdamW(groups, lr=config.other_rate, betas=(0.9, 0.95), fused=is_on_gpu),
    ]


def _step(state: _State, batch: CorpusBatch, config: PretrainConfig) -> StepLoss:
    share = min(1.0, state.trained_s / (config.minutes * 60))
    warm = min(1.0, (state.num_steps + 1) / config.warmup_steps)
    scale = warm * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * share)))
    for optimizer, rate in zip(state.optimizers, (config.matrix_rate, config.other_rate), strict=True):
        for group in optimizer.param_groups:
            group["lr"] = rate * scale
        optimizer.zero_grad(set_to_none=True)
    batch = batch.to(state.policy.device)
    logits_MW, targets_M, main_NVD = batch_logits(state.policy, batch, is_half=config.is_half)
    loss = losses_of(logits_MW, targets_M, batch)
    total, letters = loss.weighted, None
    if not config.drills:
        with torch.autocast(main_NVD.device.type, torch.bfloat16, enabled=main_NVD.dtype == torch.bfloat16):
            letters = state.head.loss(main_NVD[: len(batch.letters_PVS)], batch.letters_PVS)
        total, letters = total + config.letter_weight * letters, letters.detach()
    total.backward()  # type: ignore[no-untyped-call]
    norm = torch.nn.utils.clip_grad_norm_(state.policy.model.parameters(), 1.0)
    # Without waiting for the GPU: non-finite gradients count as zeros in this step, and stop the run soon after.
    for parameter in state.policy.model.parameters():
        if parameter.grad is not None:
            torch.nan_to_num_(parameter.grad, nan=0.0, posinf=0.0, neginf=0.0)
    for optimizer in state.optimizers:
        optimizer.step()
    return StepLoss(loss.sums_L.detach(), loss.nums_L, letters, norm.detach())


def losses_of(logits_MW: Tensor, targets_M: Tensor, batch: CorpusBatch) -> StepLoss:
    each_M = F.cross_entropy(logits_MW, targets_M, reduction="none")
    zeros_L = each_M.new_zeros(len(LEARNT))
    return StepLoss(
        zeros_L.index_add(0, batch.learnt_M, each_M), zeros_L.index_add(0, batch.learnt_M, torch.ones_like(each_M))
    )


def batch_logits(policy: Backbone, batch: CorpusBatch, *, is_half: bool | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Scores at the positions before each token to learn, these tokens, and the visual tokens of the pictures.

    By default in bfloat16 on a GPU.
    """
    text: Any = policy.language_model
    borders = Borders(batch.starts_R, batch.longest)
    enabled = policy.device.type == "cuda" if is_half is None else is_half
    with torch.autocast(policy.device.type, torch.bfloat16, enabled=enabled):
        main_NVD, deep_LNVD = see_all(policy.model.model.visual, batch.pixels_NHWC)
        embeds_TD = text.embed_tokens(batch.ids_T).to(main_NVD.dtype)
        placed_VD = main_NVD[batch.picture_of_place].flatten(0, 1)
        embeds_TD = embeds_TD.index_copy(0, batch.visual_V, placed_VD)
        deep_LVD = deep_LNVD[:, batch.picture_of_place].flatten(1, 2)
        hidden_TD = read_packed(text, embeds_TD, batch.positions_3T, borders, batch.visual_V, deep_LVD)
        logits_MW = policy.logits(hidden_TD[batch.before_M])
    return logits_MW.float(), batch.ids_T[batch.before_M + 1], main_NVD


_SCORED: tuple[dict[str, float], ...] = (
    {"transcription": 1}, {"line": 1}, {"answer": 1}, {"weighing": 0.3, "comparison": 0.7},
    {"search": 1}, {"decision": 1}, {"question": 1},
)  # fmt: skip
_SCORED_AT_OFFICES: tuple[dict[str, float], ...] = ({"list": 1}, {"entry": 1}, {"request": 1}, {"probe": 1})


@torch.no_grad()
def score(policy: Backbone, world: World, config: PretrainConfig, *, num_batches: int) -> dict[str, tuple[float, int]]:
    """The share of replies with every token right on sites never trained on, and their number, by tag."""
    corpus = OfficeCorpus(world, policy.chat, split="v", num_sites=60)
    right: dict[str, list[bool]] = defaultdict(list)
    for mix in (*_SCORED, *(_SCORED_AT_OFFICES if config.offices else ())):
        for number in range(num_batches * (3 if "decision" in mix else 1)):
            batch = corpus.batch(mix, derive_seed(7, *mix, number), max_tokens=config.max_tokens)
            batch = batch.to(policy.device)
            logits, targets, _ = batch_logits(policy, batch, is_half=config.is_half)
            is_reply = batch.learnt_M != LEARNT.index("record")
            hits = (logits.argmax(dim=-1) == targets)[is_reply].tolist()
            by_row: dict[int, list[bool]] = defaultdict(list)
            for row, hit in zip(batch.row_M[is_reply].tolist(), hits, strict=True):
                by_row[row].append(hit)
            for row, own in by_row.items():
                parts = batch.tags[row].split("/")
                name = "/".join((parts[0], parts[1], parts[3])) if parts[0] == "decision" else batch.tags[row]
                right[name].append(all(own))
                if parts[0] in ("transcription", "line", "weighing", "question", "list", "entry", "probe"):
                    right[f"{name} tokens"] += own
    return {name: (sum(values) / len(values), len(values)) for name, values in sorted(right.items())}


def _batches(world: World, policy: Backbone, config: PretrainConfig, start: int) -> Iterator[tuple[CorpusBatch, float]]:
    """Yields the batches from a given number on, each with the time that was spent waiting for it."""
    # Thousands of tensors pass between processes; this way they need few file handles.
    torch.multiprocessing.set_sharing_strategy("file_system")  # type: ignore[no-untyped-call]
    data = CorpusBatches(
        OfficeCorpus(world, policy.chat),
        lambda number: shares_of_step(number, config),
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


def _report(state: _State, losses: list[StepLoss], folder: Path, scores: dict[str, tuple[float, int]]) -> None:
    line = {
        "num_steps": state.num_steps,
        "num_tokens": state.num_tokens,
        "trained_s": round(state.trained_s, 1),
        "waiting_rate": round(state.waited_s / max(1e-9, state.trained_s), 4),
        "tokens_per_s": round(state.num_tokens / max(1e-9, state.trained_s)),
        "loss": _mean_losses(losses),
        "right_rate": {name: round(rate, 4) for name, (rate, _) in scores.items()},
        "num_scored": {name: num for name, (_, num) in scores.items()},
    }
    losses.clear()
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")
    _log.info("%s", json.dumps({"num_steps": line["num_steps"], "loss": line["loss"]}))


def _mean_losses(losses: list[StepLoss]) -> dict[str, float]:
    """The mean loss per token, for each kind that occurred."""
    sums = torch.stack([loss.sums_L for loss in losses]).sum(dim=0).tolist()
    nums = torch.stack([loss.nums_L for loss in losses]).sum(dim=0).tolist()
    found = {name: round(total / num, 4) for name, total, num in zip(LEARNT, sums, nums, strict=True) if num}
    letters = [loss.letters for loss in losses if loss.letters is not None]
    return found | ({"letters": round(torch.stack(letters).mean().item(), 4)} if letters else {})
