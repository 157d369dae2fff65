"""The losses of all stages, each as a sum. The divisor is known only after all processes have counted their tokens and
blocks.

Shapes: M target positions, V vocabulary, D policy width, N blocks, P pairs of blocks.
"""

from collections import Counter
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

_MAX_LOGITS = 2**28
"""Maximum number of scores in memory at once. The head of a published size has 151,936 rows."""


def token_loss(logits_MV: Tensor, targets_M: Tensor) -> Tensor:
    """Cross-entropy of the demonstrated tokens: for actions, and for functional targets."""
    return F.cross_entropy(_wide(logits_MV), targets_M, reduction="sum")


def token_nats(head: Callable[[Tensor], Tensor], hidden_MD: Tensor, targets_M: Tensor, *, vocabulary: int) -> Tensor:
    """The cross-entropy of each token, (M,), computed a piece at a time as in `over_positions`."""
    size = max(1, _MAX_LOGITS // vocabulary)
    pieces = zip(torch.split(hidden_MD, size), torch.split(targets_M, size), strict=True)
    return torch.cat([F.cross_entropy(_wide(head(some_MD)), ids_M, reduction="none") for some_MD, ids_M in pieces])


def semantic_loss(student_MV: Tensor, teacher_MV: Tensor) -> Tensor:
    """KL(teacher || student) over the whole vocabulary, at each position of the description."""
    teacher_log_MV = _wide(teacher_MV.detach()).log_softmax(dim=-1)
    student_log_MV = _wide(student_MV).log_softmax(dim=-1)
    return F.kl_div(student_log_MV, teacher_log_MV, reduction="sum", log_target=True)


def drop_loss(logits_N: Tensor) -> Tensor:
    """-log(1 - sigmoid(g)), summed over blocks that were added to mislead."""
    return F.softplus(_wide(logits_N)).sum()


def order_loss(wrong_N: Tensor, right_M: Tensor, pairs: Sequence[tuple[int, int]]) -> Tensor:
    """-log sigmoid(g right - g wrong) of each pair (wrong, right). First the mean over the pairs of each wrong block is
    taken, then the sum over wrong blocks.

    It pushes the two blocks of a pair apart, so it neither opens nor closes the gate.
    """
    counts = Counter(wrong for wrong, _ in pairs)
    wrong_P, right_P = (torch.tensor(numbers, device=wrong_N.device) for numbers in zip(*pairs, strict=True))
    shares_P = torch.tensor([1 / counts[wrong] for wrong, _ in pairs], dtype=wrong_N.dtype, device=wrong_N.device)
    return (_wide(shares_P) * F.softplus(_wide(wrong_N)[wrong_P] - _wide(right_M)[right_P])).sum()


def parting_loss(wrong_N: Tensor, right_M: Tensor) -> Tensor:
    """-log sigmoid(g right - g wrong) of all pairs: the mean over right blocks, then the sum over wrong blocks. When
    this loss falls, the area under the curve grows.
    """
    return F.softplus(_wide(wrong_N)[:, None] - _wide(right_M)[None, :]).mean(dim=1).sum()


def over_positions(
    loss: Callable[..., Tensor], *parts: Tensor, vocabulary: int, max_logits: int = _MAX_LOGITS
) -> Tensor:
    """Sums a loss over positions, one piece of positions at a time. If there are several pieces, the backward pass
    computes the scores again. `parts` have one row per position; `loss` takes a piece of each.
    """
    size = max(1, max_logits // vocabulary)
    if parts[0].shape[0] <= size:
        return loss(*parts)
    pieces = zip(*(torch.split(part, size) for part in parts), strict=True)
    return torch.stack([checkpoint(loss, *piece, use_reentrant=False) for piece in pieces]).sum()


def _wide(tensor: Tensor) -> Tensor:
    return tensor if tensor.dtype == torch.float64 else tensor.float()
