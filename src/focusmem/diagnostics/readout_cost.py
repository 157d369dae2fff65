"""Measures the time to read six evidence items in four ways.

naive      keys and values are projected again at every refinement, as the equations are written
once       they are projected once per call: nothing of them depends on the query
cached     they are kept per item, so a call only attends
absorbed   only the features before them are kept, and the projections are folded into queries and results
"""

import statistics
import time
from collections.abc import Callable
from typing import Any, Literal

import torch
from pydantic import PositiveInt
from torch import Tensor

from focusmem.model.compressor import Compressor, CompressorConfig, Evidence, Features
from focusmem.model.devices import fast_dtype, usable_device
from focusmem.progress import Progress
from focusmem.settings import checked_dataclass, to_plain

WAYS = ("naive", "once", "cached", "absorbed")


@checked_dataclass(frozen=True, kw_only=True)
class ReadoutCostConfig:
    width: PositiveInt = 384
    device: str = "cpu"
    dtype: Literal["float32", "bfloat16"] | None = None
    """None uses bfloat16 on a GPU and float32 elsewhere."""
    num_heads: PositiveInt = 16
    num_items_each: PositiveInt = 3
    """Number of episodic items, and of working items."""
    episodic_tokens: PositiveInt = 11_040
    """Tokens of an episodic item; the default is 11.5 events of 960 tokens."""
    working_tokens: PositiveInt = 3_840
    """Tokens of a working item; the default is a chunk of four events."""
    num_repeats: PositiveInt = 10
    seed: int = 0


@torch.no_grad()
def measure_readout(config: ReadoutCostConfig) -> dict[str, Any]:
    """Median times of the four ways. They are timed in turn, so that noise affects all of them equally."""
    device = usable_device(config.device)
    torch.manual_seed(config.seed)
    dtype: torch.dtype = fast_dtype(device) if config.dtype is None else getattr(torch, config.dtype)
    with torch.device(config.device):
        sizes = CompressorConfig(width=config.width, num_heads=config.num_heads)
        compressor = Compressor(sizes, evidence_width=config.width, policy_width=config.width).to(dtype)
        lengths = [config.episodic_tokens] * config.num_items_each + [config.working_tokens] * config.num_items_each
        hidden = [torch.randn(1, length, config.width, dtype=dtype) for length in lengths]
        roles_N = torch.tensor([0] * config.num_items_each + [1] * config.num_items_each)
    calls = _ways(compressor, hidden, roles_N)
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    blocks = {way: calls[way]() for way in WAYS}  # also warms up
    with Progress("readout", total=config.num_repeats * len(WAYS)) as line:
        for _ in range(config.num_repeats):
            for way in WAYS:
                times[way].append(_seconds(calls[way], config.device))
                line.step(note=f"{way} {times[way][-1] * 1000:.2f} ms")
    median_s = {way: statistics.median(values) for way, values in times.items()}
    num_bytes = _bytes_to_read(compressor, lengths, dtype.itemsize)
    bytes_per_s = read_bandwidth(config.device)
    floor_s = num_bytes / bytes_per_s
    return {
        "config": to_plain(config) | {"dtype": str(dtype).removeprefix("torch.")},
        "torch": torch.__version__,
        "device_name": torch.cuda.get_device_name(config.device) if config.device.startswith("cuda") else "cpu",
        "num_threads": torch.get_num_threads(),
        "median_s": median_s,
        "fastest_s": {way: min(values) for way, values in times.items()},
        "speedup_over_naive": {way: median_s["naive"] / median_s[way] for way in WAYS},
        "cosine_to_naive": {way: _cosine(blocks["naive"], blocks[way]) for way in WAYS},
        "num_bytes_cached_must_read": num_bytes,
        "num_bytes_per_second_measured": round(bytes_per_s),
        "cached_floor_s": floor_s,
        "cached_over_floor": median_s["cached"] / floor_s,
    }


def _ways(compressor: Compressor, hidden: list[Tensor], roles_N: Tensor) -> dict[str, Callable[[], Tensor]]:
    queries_NKH = compressor.queries(roles_N)
    kept_features = [compressor.features(one) for one in hidden]
    kept_keys_values: list[Evidence] = [compressor.keys_values(one, None) for one in kept_features]

    def read(evidence: list[Evidence]) -> Tensor:
        blocks: Tensor = compressor(queries_NKH, evidence, roles_N)
        return blocks

    return {
        "naive": lambda: read([Features(compressor.features(one), None, is_absorbed=False) for one in hidden]),
        "once": lambda: read([compressor.keys_values(compressor.features(one), None) for one in hidden]),
        "cached": lambda: read(kept_keys_values),
        "absorbed": lambda: read([Features(one, None) for one in kept_features]),
    }


def _seconds(call: Callable[[], Tensor], device: str) -> float:
    if not device.startswith("cuda"):
        start = time.perf_counter()
        call()
        return time.perf_counter() - start
    torch.cuda.set_device(torch.device(device).index or 0)  # "cuda" has no device number
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()
    begin.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) / 1000


def _bytes_to_read(compressor: Compressor, lengths: list[int], item_bytes: int) -> int:
    """Keys and values of all tokens and the block's weights for each refinement, and the output layer once."""
    keys_values = 2 * sum(lengths) * compressor.width
    per_step = (compressor.w_query, compressor.w_result, compressor.ffn_up, compressor.ffn_down)
    weights = sum(layer.weight.numel() for layer in per_step)
    steps = compressor.config.num_refinements
    return item_bytes * (steps * (keys_values + weights) + compressor.w_out.weight.numel())


def read_bandwidth(device: str) -> float:
    """Bytes per second of a plain sum over more memory than the caches hold."""
    numbers = torch.ones(2**28 if device.startswith("cuda") else 2**26, device=device)
    passes = [_seconds(numbers.sum, device) for _ in range(6)]
    return numbers.nbytes / min(passes[1:])


def _cosine(one: Tensor, other: Tensor) -> float:
    return float(torch.nn.functional.cosine_similarity(one.float().flatten(), other.float().flatten(), dim=0))
