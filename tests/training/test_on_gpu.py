"""Training on a GPU, in the precision that is used there, stays close to training on the CPU."""

from pathlib import Path

import pytest
import torch

from focusmem.model.backbone import Backbone
from focusmem.model.policy import MemoryPolicy
from focusmem.training.metrics import read_metrics
from focusmem.training.stage_a import train_stage_a
from focusmem.training.stage_b import train_stage_b
from toys import shake
from training.samples import make_data, make_loop, make_memory_policy, open_gate, weights_of

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]  # compilers warn of much


def make_policy(device: str, dtype: torch.dtype) -> MemoryPolicy:
    config = make_memory_policy().config
    torch.manual_seed(0)
    policy = MemoryPolicy(Backbone.toy(num_layers=2), config)
    shake(policy)
    policy.backbone.to(dtype)
    return open_gate(policy).to(device)


def losses_of(folder: Path, device: str, dtype: torch.dtype, **loop) -> list[dict]:
    config = make_loop(learning_rate=1e-4, **loop)
    start = train_stage_a(make_policy(device, dtype), make_data(3), folder / "a", loop=config).memory
    train_stage_b(make_policy(device, dtype), make_data(3), folder / "b", start=start, loop=config)
    return [line for stage in ("a", "b") for line in read_metrics(folder / stage / "metrics.jsonl")]


@pytest.mark.parametrize(
    ("dtype", "is_bfloat16", "packs_rows", "tolerance"),
    [
        (torch.float32, False, False, 2e-3),
        (torch.float32, True, False, 3e-2),
        (torch.bfloat16, True, False, 3e-2),
        (torch.bfloat16, True, True, 3e-2),
    ],
)
def test_losses_are_those_of_the_cpu(tmp_path, dtype, is_bfloat16, packs_rows, tolerance):
    expected = losses_of(tmp_path / "cpu", "cpu", torch.float32)
    settings = {"is_bfloat16": is_bfloat16, "packs_rows": packs_rows, "num_workers": 2}
    found = losses_of(tmp_path / "gpu", "cuda", dtype, **settings)
    for one, two in zip(expected, found, strict=True):
        assert two["loss"] == pytest.approx(one["loss"], rel=tolerance)
        assert two["gpu_memory_gb"] > 0


def test_goes_on_after_a_pause(tmp_path):
    losses_of(tmp_path / "whole", "cuda", torch.bfloat16)
    policy = make_policy("cuda", torch.bfloat16)
    for _ in range(3):
        result = train_stage_a(
            policy, make_data(3), tmp_path / "paused", loop=make_loop(learning_rate=1e-4, max_minutes=1e-9)
        )
    assert result.is_finished
    whole, paused = (read_metrics(tmp_path / name / "metrics.jsonl") for name in ("whole/a", "paused"))
    assert paused[-1]["loss"] == pytest.approx(whole[-1]["loss"], rel=1e-2)
    assert all(tensor.is_cuda for tensor in weights_of(policy).values())
