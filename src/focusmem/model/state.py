"""The state u_t: the input of readout and gate for a decision, pooled from the context without its reply.

Shapes: B decisions, S positions, P parts of a context, D policy width, U width of the state.
"""

from collections.abc import Sequence
from typing import Final, Literal

import numpy as np
import torch
from torch import Tensor, nn

from focusmem.errors import ConfigError
from focusmem.model.calibration import FixedNorm
from focusmem.model.inputs import PARTS, Row, on_device, stack_rows

StateSource = Literal["joined", "summed", "embeddings", "hidden"]
APART: Final = ("joined", "summed")
"""Sources that pool the parts of a context separately."""


class PooledState(nn.Module):
    """The mean of the input embeddings: over the whole context, or over each part of it.

    The mean over a whole context hardly depends on the instruction, because its few tokens are averaged with hundreds
    of others. Means of the parts keep the instruction separate. Each mean is nearly the same vector in all contexts, so
    each has a norm that is calibrated once (`model/calibration.py`) and never trained. `joined` concatenates the means,
    and readout and gate map the result; `summed` adds the means, which needs no parameters.
    """

    def __init__(self, source: StateSource, width: int) -> None:
        super().__init__()
        self.source = source
        self.width = len(PARTS) * width if source == "joined" else width
        self.norm_of = nn.ModuleDict({part: FixedNorm(width) for part in PARTS} if source in APART else {})

    @property
    def norms(self) -> list[FixedNorm]:
        return [norm for norm in self.norm_of.values() if isinstance(norm, FixedNorm)]

    @torch.no_grad()
    def seen(self, rows: Sequence[Row]) -> list[Tensor]:
        """The calibration input of each norm: the means of its part in the contexts that have this part, (N, D)."""
        means_BPD, is_there_BP = _means_of_parts(rows)
        return [means_BPD[is_there_BP[:, place], place] for place in range(len(PARTS))]

    @torch.no_grad()
    def forward(self, rows: Sequence[Row]) -> Tensor:
        """(B, U)."""
        if self.source not in APART:
            return mean_context(stack_rows(rows).embeds_BSD, rows)
        _check_marked(rows, self.source)
        means_BPD, is_there_BP = _means_of_parts(rows)
        normed = [norm(means_BPD[:, place]) for place, norm in enumerate(self.norms)]
        # A part that is missing is set to its mean over all contexts, which is zero.
        parts_BPD = torch.stack(normed, dim=1) * is_there_BP[..., None]
        return parts_BPD.flatten(1) if self.source == "joined" else parts_BPD.sum(dim=1)


def mean_context(vectors_BSD: Tensor, rows: Sequence[Row]) -> Tensor:
    """The mean of each row's vectors before its reply, (B, D)."""
    device = vectors_BSD.device
    ends_B1 = on_device(device, np.array([[row.num_context] for row in rows]))
    shares_BS = (torch.arange(vectors_BSD.shape[1], device=device) < ends_B1) / ends_B1
    # Not a matrix product, because training would compute that in half precision.
    return (shares_BS[..., None] * vectors_BSD.float()).sum(dim=1)


def _means_of_parts(rows: Sequence[Row]) -> tuple[Tensor, Tensor]:
    """The mean of each part, (B, P, D), and whether a context has it, (B, P)."""
    embeds_BSD = stack_rows(rows).embeds_BSD
    device, size = embeds_BSD.device, embeds_BSD.shape[1]
    parts = [_parts_of(row) for row in rows]
    # Padding belongs to no part.
    parts_BS = torch.stack([nn.functional.pad(one, (0, size - len(one)), value=len(PARTS)) for one in parts])
    counts_BP = on_device(device, np.array([row.part_counts for row in rows]))
    is_part_BPS = parts_BS[:, None] == torch.arange(len(PARTS), device=device)[:, None]
    with torch.autocast(device.type, enabled=False):
        sums_BPD = is_part_BPS.float() @ embeds_BSD.float()
    return sums_BPD / counts_BP.clamp(min=1)[..., None], counts_BP > 0


def _parts_of(row: Row) -> Tensor:
    assert row.parts_S is not None, "a state is pooled before memory stands in front"
    return row.parts_S


def _check_marked(rows: Sequence[Row], source: str) -> None:
    instruction = PARTS.index("instruction")
    for number, row in enumerate(rows):
        if not row.part_counts[instruction]:
            raise ConfigError(
                f"The prompt of decision {number + 1} of {len(rows)} marks no instruction, but this memory pools the "
                f"instruction apart (MemoryConfig.state_source is '{source}'). Mark its words as a part of the turn: "
                "Turn('user', ('Task: ', Instruction('Find the opening hours'))), with Instruction from "
                "focusmem.schemas. PromptBuilder does this for any wording."
            )
