"""Calibrates norms so that they remove what all of their inputs have in common.

All pooled states of a policy are nearly the same vector; only a small part differs between them. A plain layer norm
keeps this part small, and the layers behind it learn the common part first. A calibrated norm has its weight and bias
set from data, so that every coordinate has mean zero and standard deviation one over these data.

Shapes: N inputs, X their width.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_LEAST_SPREAD = 0.01
"""The least standard deviation of a coordinate after the norm; smaller ones count as noise."""


def are_calibrated(norms: Sequence[nn.LayerNorm]) -> bool:
    """Whether a weight or bias of any norm differs from its initial value."""
    return any(bool((norm.weight != 1).any() or (norm.bias != 0).any()) for norm in norms)


@torch.no_grad()
def moments_of(norms: Sequence[nn.LayerNorm], inputs: Sequence[Tensor]) -> Tensor:
    """The sums over each norm's inputs (N, X) that `calibrate` needs. Sums over several groups of inputs may
    be added.
    """
    sums = [inputs[0].new_full((1,), len(inputs[0]), dtype=torch.float64)]
    for norm, seen_NX in zip(norms, inputs, strict=True):
        plain_NX = F.layer_norm(seen_NX.float(), norm.normalized_shape, eps=norm.eps).double()
        sums += [plain_NX.sum(dim=0), plain_NX.square().sum(dim=0)]
    return torch.cat(sums)


@torch.no_grad()
def calibrate(norms: Sequence[nn.LayerNorm], moments: Tensor) -> None:
    """Set weights and biases from the summed moments of all inputs. Without inputs nothing changes."""
    num, rest = moments[0], moments[1:]
    if num == 0:
        return
    for norm in norms:
        width = norm.weight.numel()
        mean_X, square_X, rest = rest[:width] / num, rest[width : 2 * width] / num, rest[2 * width :]
        spread_X = (square_X - mean_X.square()).clamp(min=0).sqrt().clamp(min=_LEAST_SPREAD)
        norm.weight.copy_(1 / spread_X)
        norm.bias.copy_(-mean_X / spread_X)
