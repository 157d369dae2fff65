"""Measures an acting step of the laboratory's agent part by part, without and with memory, in turns.

A mind without memory and a mind with the full memory answer the same decisions of the experts' episodes, one after the
other. Each mind keeps its own picture features. The bank is encoded beforehand. A part's lower bound is the larger of
two times: its operations at the speed of a matrix product, and its bytes at the speed of reading memory. Both speeds
are measured on this machine.
"""

import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from pydantic import PositiveInt
from torch import nn

from focusmem.agent.decision import Decision
from focusmem.agent.fronts.latent import LatentFront
from focusmem.agent.local_policy import LocalPolicy
from focusmem.agent.policy_mind import PolicyMind
from focusmem.bank.embedder import QwenEmbedder
from focusmem.bank.opening import open_bank
from focusmem.diagnostics.readout_cost import read_bandwidth
from focusmem.files import cache_folder
from focusmem.lab.shipped import Weights
from focusmem.lab.suite import LabSuite, LabSuiteConfig
from focusmem.lab.world.experts import as_trajectory
from focusmem.lab.world.rollout import roll_out, screenshot_of
from focusmem.lab.world.solvers import Solver
from focusmem.model.backbone import Backbone
from focusmem.model.evidence_cache import CacheConfig
from focusmem.model.picture_memory import PictureMemory
from focusmem.progress import Progress
from focusmem.recipes.preparation import prepare
from focusmem.recipes.run_parts import Parts
from focusmem.recipes.run_settings import LAB, MemorySettings, SuiteSettings, lab
from focusmem.schemas import Observation
from focusmem.settings import checked_dataclass, to_plain

PARTS = ("look", "retrieve", "encode", "read", "prefill", "decode", "rest")
"""In this order: the vision tower; the embedder's text blocks; the encoder's text blocks; readout and gate; the policy
reading its prompt; the policy writing its reply; everything else."""

_PICTURE_BYTES = 2 * 2**30


@checked_dataclass(frozen=True, kw_only=True)
class StepCostConfig:
    num_tasks: PositiveInt = 4
    num_threads: PositiveInt = 2
    num_rounds: PositiveInt = 2
    """How many times both minds answer every episode."""
    seed: int = 0
    """The seed that draws the tasks."""


_Work = tuple[str, float, float]
"""A call's part, operations and bytes."""

_WorkOf = Callable[[tuple[Any, ...], dict[str, Any]], _Work]


@dataclass
class _Clock:
    """Seconds and lower bounds by part, added up by hooks on the modules."""

    flops_per_s: float
    bytes_per_s: float
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    floor_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def clear(self) -> None:
        self.seconds.clear()
        self.floor_s.clear()

    def watch(self, module: nn.Module, work: _WorkOf) -> None:
        """`work` is computed from a call's arguments."""
        begun: list[tuple[str, float, float, float]] = []

        def before(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            begun.append((*work(args, kwargs), time.perf_counter()))

        def after(*_: Any) -> None:
            part, flops, num_bytes, started = begun.pop()
            self.seconds[part] += time.perf_counter() - started
            self.floor_s[part] += max(flops / self.flops_per_s, num_bytes / self.bytes_per_s)

        module.register_forward_pre_hook(before, with_kwargs=True)
        module.register_forward_hook(after)


def measure_step(config: StepCostConfig) -> dict[str, Any]:
    """Means over all decisions of each part and its lower bound; medians of whole steps and of their ratio."""
    torch.set_num_threads(config.num_threads)
    suite, minds, parts = _minds(config)
    clock = _Clock(_matmul_rate(), read_bandwidth("cpu"))
    policy, front, embedder = parts.policy, parts.front, parts.embedder
    assert isinstance(policy, LocalPolicy)
    assert isinstance(front, LatentFront)
    assert isinstance(embedder, QwenEmbedder)
    prepare(parts)
    _watch_all(clock, policy.backbone, front, embedder)
    backbones = (policy.backbone, embedder.backbone)
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in minds}
    with Progress("step", total=config.num_rounds * config.num_tasks) as line:
        for number in range(config.num_rounds):
            for place in range(config.num_tasks):
                for name, row in _episode(suite, place, number, minds, backbones, clock):
                    rows[name].append(row)
                line.step()
    ratios = [full["total"] / none["total"] for none, full in zip(rows["none"], rows["full"], strict=True)]
    return {
        "config": to_plain(config),
        "torch": torch.__version__,
        "num_steps": len(ratios),
        "matmul_flops_per_s": round(clock.flops_per_s),
        "read_bytes_per_s": round(clock.bytes_per_s),
        "mean_s": {name: _means(own, "seconds") for name, own in rows.items()},
        "floor_s": {name: _means(own, "floors") for name, own in rows.items()},
        "total_s": {name: statistics.median(row["total"] for row in own) for name, own in rows.items()},
        "ratio": statistics.median(ratios),
    }


def _minds(config: StepCostConfig) -> tuple[LabSuite, dict[str, PolicyMind], Parts]:
    drawn = LabSuiteConfig(num_tasks=config.num_tasks, seed=config.seed, sites=tuple(open_bank(Weights().bank).sites()))
    base = replace(lab(), suite=SuiteSettings(lab=drawn))
    cache = CacheConfig(folder=cache_folder() / "evidence")  # as in the demonstration
    memory = MemorySettings(name="full", bank=LAB, cache=cache)
    suite = LabSuite(drawn)
    full = Parts(replace(base, memory=memory), suite)
    none = full.share(base)
    return suite, {"none": none.mind(), "full": full.mind()}, full


def _episode(
    suite: LabSuite,
    place: int,
    number: int,
    minds: dict[str, PolicyMind],
    backbones: tuple[Backbone, ...],
    clock: _Clock,
) -> Any:
    task = suite.lab_tasks[place]
    rollout = roll_out(suite.world, task, Solver.expert(suite.world, task))
    stored = as_trajectory(rollout, lambda step: screenshot_of(suite.world, step))
    pictures: dict[str, PictureMemory[Any]] = {name: PictureMemory(_PICTURE_BYTES) for name in minds}
    for at, step in enumerate(stored.trajectory.steps):
        seen = Observation(stored.screenshots[step.screenshot.sha256], "", "", ())
        steps = stored.trajectory.steps[:at]
        decision = Decision(task.task, f"{place} {number}", seen, steps, stored.screenshots, is_guarded=True)
        for name in minds if at % 2 else reversed(minds):
            for backbone in backbones:
                backbone.pictures = pictures[name]
            clock.clear()
            started = time.perf_counter()
            minds[name].ask([decision])
            total = time.perf_counter() - started
            seconds = dict(clock.seconds) | {"rest": total - sum(clock.seconds.values())}
            yield name, {"total": total, "seconds": seconds, "floors": dict(clock.floor_s)}
    for mind in minds.values():
        mind.forget(f"{place} {number}")


def _means(rows: list[dict[str, Any]], kind: str) -> dict[str, float]:
    return {part: statistics.fmean(row[kind].get(part, 0.0) for row in rows) for part in PARTS}


def _watch_all(clock: _Clock, policy: Backbone, front: LatentFront, embedder: QwenEmbedder) -> None:
    switch, compressor = front.policy.encoder.switch, front.policy.compressor

    def part_of_text(num_new: int) -> str:
        if switch.is_on:
            return "encode"
        return "decode" if num_new == 1 else "prefill"

    clock.watch(policy.language_model, lambda args, kwargs: _text(policy, kwargs, part_of_text))
    other = embedder.backbone
    clock.watch(other.language_model, lambda args, kwargs: _text(other, kwargs, lambda _: "retrieve"))
    clock.watch(policy.model.lm_head, lambda args, kwargs: ("decode", *_linear(policy.model.lm_head, len(args[0]))))
    tower = policy.model.model.visual
    clock.watch(tower, lambda args, kwargs: ("look", *_look(tower, len(args[0]))))
    clock.watch(front.policy.gate, lambda args, kwargs: ("read", 0.0, 0.0))

    def read(args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Work:
        queries_NKH, evidence, _ = args
        num_queries, num_kept = queries_NKH.shape[0] * queries_NKH.shape[1], sum(group.num_tokens for group in evidence)
        layers = (compressor.w_query, compressor.w_result, compressor.ffn_up, compressor.ffn_down)
        flops, num_bytes = map(sum, zip(*(_linear(layer, num_queries) for layer in layers), strict=True))
        attended = num_kept * compressor.width
        times = compressor.config.num_refinements
        return "read", times * (flops + 4 * attended * queries_NKH.shape[1]), times * (num_bytes + 2 * 4 * attended)

    clock.watch(compressor, read)


def _text(backbone: Backbone, kwargs: dict[str, Any], part_of: Callable[[int], str]) -> _Work:
    """Operations and bytes of the text blocks for new positions after kept positions."""
    config, cache = backbone.model.config.text_config, kwargs["past_key_values"]
    num_rows, num_new, _ = kwargs["inputs_embeds"].shape
    num_kept = cache.get_seq_length() if cache is not None else 0
    flops, num_bytes = _linear(backbone.language_model.layers, num_rows * num_new)
    seen = num_new * (num_kept + (num_new + 1) / 2)
    heads = config.num_attention_heads * config.head_dim * config.num_hidden_layers
    kept = 2 * config.num_key_value_heads * config.head_dim * config.num_hidden_layers * (num_kept + num_new)
    itemsize = backbone.dtype.itemsize
    return part_of(num_new), flops + 4 * num_rows * seen * heads, num_bytes + num_rows * kept * itemsize


def _look(tower: Any, num_patches: int) -> tuple[float, float]:
    """Operations and bytes of the vision tower, without its attention, whose cost depends on the number of pictures."""
    merged = num_patches // tower.spatial_merge_size**2
    parts = [_linear(tower.patch_embed, num_patches), _linear(tower.blocks, num_patches)]
    parts += [_linear(one, merged) for one in (tower.merger, tower.deepstack_merger_list)]
    return sum(flops for flops, _ in parts), sum(num_bytes for _, num_bytes in parts)


def _linear(module: Any, num_inputs: int) -> tuple[float, float]:
    """Operations and bytes of a module that uses each of its matrices once for every input."""
    matrices = [one for one in module.parameters() if one.ndim > 1]
    return 2.0 * num_inputs * sum(one.numel() for one in matrices), float(sum(one.nbytes for one in matrices))


def _matmul_rate(size: int = 1024, num_repeats: int = 8) -> float:
    """Operations per second of a matrix product, the best of several."""
    matrix = torch.randn(size, size)
    seconds = []
    for _ in range(num_repeats):
        started = time.perf_counter()
        torch.mm(matrix, matrix)
        seconds.append(time.perf_counter() - started)
    return 2 * size**3 / min(seconds)
