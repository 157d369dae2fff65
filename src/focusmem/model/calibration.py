"""Calibrates norms so that they remove what all of their inputs have in common.

All pooled states of a policy are nearly the same vector; only a small part differs between them. A plain layer norm
keeps this part small, and the layers after it learn the common part first. A calibrated norm has its weight and bias
set from data, so that every coordinate has mean zero and standard deviation one over these data.

Shapes: N inputs, X their width.
"""

from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class FixedNorm(nn.Module):
    """A layer norm that training does not change. Its weight and bias are not parameters, but they are stored with the
    parameters.
    """

    def __init__(self, width: int, *, eps: float = 1e-5) -> None:
        super().__init__()
        self.normalized_shape, self.eps = (width,), eps
        self.weight: Tensor
        self.bias: Tensor
        self.register_buffer("weight", torch.ones(width))
        self.register_buffer("bias", torch.zeros(width))

    def forward(self, inputs_NX: Tensor) -> Tensor:
        weight, bias = self.weight.float(), self.bias.float()
        return F.layer_norm(inputs_NX.float(), self.normalized_shape, weight, bias, self.eps)


Norm: TypeAlias = nn.LayerNorm | FixedNorm

_LEAST_SPREAD = 0.01
"""The least standard deviation of a coordinate after the norm; smaller ones count as noise."""


def are_calibrated(norms: Sequence[Norm]) -> bool:
    """Whether a weight or bias of any norm differs from its initial value."""
    return any(bool((norm.weight != 1).any() or (norm.bias != 0).any()) for norm in norms)


@torch.no_grad()
def moments_of(norms: Sequence[Norm], inputs: Sequence[Tensor]) -> Tensor:
    """The number of each norm's inputs (N, X), and the sums over them that `calibrate` needs. The moments of several
    groups of inputs may be added. Norms may have different numbers of inputs.
    """
    sums = []
    for norm, seen_NX in zip(norms, inputs, strict=True):
        plain_NX = F.layer_norm(seen_NX.float(), norm.normalized_shape, eps=norm.eps).double()
        sums += [plain_NX.new_full((1,), len(seen_NX)), plain_NX.sum(dim=0), plain_NX.square().sum(dim=0)]
    return torch.cat(sums)


@torch.no_grad()
def calibrate(norms: Sequence[Norm], moments: Tensor) -> bool:
    """Set weights and biases from the summed moments of all inputs. A norm without inputs stays as it is. Returns
    whether any norm had inputs.
    """
    had_inputs, rest = False, moments
    for norm in norms:
        width = norm.weight.numel()
        (num, *_), mean_X, square_X = rest[:1].tolist(), rest[1 : width + 1], rest[width + 1 : 2 * width + 1]
        rest = rest[2 * width + 1 :]
        if not num:
            continue
        had_inputs = True
        mean_X, square_X = mean_X / num, square_X / num
        spread_X = (square_X - mean_X.square()).clamp(min=0).sqrt().clamp(min=_LEAST_SPREAD)
        norm.weight.copy_(1 / spread_X)
        norm.bias.copy_(-mean_X / spread_X)
    return had_inputs
