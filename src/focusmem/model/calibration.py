"""Norms that take out what all of their inputs have in common.

Pooled states of a policy are nearly the same vector, whatever they are states of; what tells one from another is a
small part of each. A layer norm leaves it as small as it is, and what learns behind it learns the common part first.
With its weight and bias set by some data, every coordinate has a mean of zero and a spread of one over them.

Shapes: N inputs, X their width.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_LEAST_SPREAD = 0.01
"""Of a coordinate after its norm; less is taken for noise."""


def are_calibrated(norms: Sequence[nn.LayerNorm]) -> bool:
    """Whether one of them is no longer as it was made."""
    return any(bool((norm.weight != 1).any() or (norm.bias != 0).any()) for norm in norms)


@torch.no_grad()
def moments_of(norms: Sequence[nn.LayerNorm], inputs: Sequence[Tensor]) -> Tensor:
    """What `calibrate` goes by: sums over the inputs of each norm, (N, X) and as many of each, which may be added to
    those over others."""
    sums = [inputs[0].new_full((1,), len(inputs[0]), dtype=torch.float64)]
    for norm, seen_NX in zip(norms, inputs, strict=True):
        plain_NX = F.layer_norm(seen_NX.float(), norm.normalized_shape, eps=norm.eps).double()
        sums += [plain_NX.sum(dim=0), plain_NX.square().sum(dim=0)]
    return torch.cat(sums)


@torch.no_grad()
def calibrate(norms: Sequence[nn.LayerNorm], moments: Tensor) -> None:
    """Set weights and biases by the moments of all inputs together; without any, nothing changes."""
    num, rest = moments[0], moments[1:]
    if num == 0:
        return
    for norm in norms:
        width = norm.weight.numel()
        mean_X, square_X, rest = rest[:width] / num, rest[width : 2 * width] / num, rest[2 * width :]
        spread_X = (square_X - mean_X.square()).clamp(min=0).sqrt().clamp(min=_LEAST_SPREAD)
        norm.weight.copy_(1 / spread_X)
        norm.bias.copy_(-mean_X / spread_X)
