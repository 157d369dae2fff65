"""Chooses gamma, the gate's threshold, on validation data by its effect on actions; and measures how well trust
separates right from misleading blocks, which depends on no threshold.

Trust is compared as logits throughout, because different logits may have equal trusts in float32.
"""

import logging
import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import torch

from focusmem.errors import ConfigError
from focusmem.model.checkpoint import Checkpoint
from focusmem.model.gate import logit_of
from focusmem.model.policy import MemoryPolicy
from focusmem.training.batch import TrainingData
from focusmem.training.offered_blocks import MAX_TOKENS, Offered, offered_blocks
from focusmem.training.pathway import reply_nats

_log = logging.getLogger(__name__)
_LEAST: Final = float(np.finfo(np.float32).min)

PAPER_THRESHOLDS: Final = (0.1, 0.2, 0.3, 0.4, 0.5)
"""The thresholds, as trusts, among which the paper chose (Appendix F)."""


@dataclass(frozen=True)
class GateScores:
    """Logits of blocks that belong to their decision, and of blocks that were added to mislead."""

    right: tuple[float, ...]
    misleading: tuple[float, ...]


@dataclass(frozen=True)
class ActionChoice:
    """The threshold under which demonstrated actions are likeliest, and the mean nats of a whole action with it, with
    every block and with none."""

    threshold_logit: float
    """The threshold as a logit. It is exact in float32, the precision in which the gate compares."""
    mean_nats: float
    nats_with_all: float
    nats_with_none: float
    passage: float
    """Share of blocks that pass the threshold."""
    num_decisions: int


@dataclass(frozen=True)
class Sweep:
    """The effect of a rising threshold on one decision: the logits of its blocks in ascending order, and the nats of
    its action with all blocks, without the first, and so on, down to no block.
    """

    logits: tuple[float, ...]
    nats: tuple[float, ...]


@torch.no_grad()
def gate_scores(policy: MemoryPolicy, batches: Iterable[Offered]) -> GateScores:
    """The gate's logit of every block, as at inference."""
    scores: dict[bool, list[float]] = {False: [], True: []}
    for offered in batches:
        for value, is_negative in zip(offered.logits(policy), offered.is_negative, strict=True):
            scores[is_negative].append(value)
    return GateScores(tuple(scores[False]), tuple(scores[True]))


@torch.no_grad()
def action_sweeps(policy: MemoryPolicy, batches: Iterable[Offered]) -> list[Sweep]:
    """What each possible threshold does to the actions, decision by decision."""
    found: list[Sweep] = []
    for offered in batches:
        memory, logits = offered.memory, offered.logits(policy)
        of_row: dict[int, list[int]] = {}
        for block in sorted(range(len(logits)), key=logits.__getitem__):
            if memory.valid[block]:
                of_row.setdefault(memory.places[block].row, []).append(block)
        kept = [(row, blocks[num:]) for row, blocks in of_row.items() for num in range(len(blocks) + 1)]
        uses = [(at, block) for at, (_, blocks) in enumerate(kept) for block in blocks]
        injected = policy.injection(
            [offered.rows.decisions[row] for row, _ in kept],
            memory.blocks_NKD[[block for _, block in uses]],
            [replace(memory.places[block], row=at) for at, block in uses],
            [True] * len(uses),
        )
        nats = iter(reply_nats(policy.backbone, injected, max_tokens=MAX_TOKENS))
        for blocks in of_row.values():
            found.append(Sweep(tuple(logits[block] for block in blocks), tuple(next(nats) for _ in (*blocks, None))))
    return found


def choose_by_actions(sweeps: Sequence[Sweep]) -> ActionChoice:
    """The threshold that makes the actions likeliest.

    Candidates lie in the middle between neighbouring logits. Among equally good candidates, the one with the widest gap
    around it is chosen; among equally wide gaps, the lowest. A block with the logit infinity always passes; a block
    with minus infinity never passes.
    """
    events = sorted(change for one in sweeps for change in _changes(one))
    if not events:
        raise ConfigError("A threshold cannot be chosen without any blocks; the validation data has none.")
    logits = [float(np.float32(logit)) for logit, _ in events]
    if any(map(math.isnan, logits)):
        raise ConfigError("A threshold cannot be chosen: the gate's logits are not all numbers (NaN).")
    totals = np.cumsum([sum(one.nats[0] for one in sweeps), *(change for _, change in events)])
    gaps = list(pairwise([_LEAST, *logits, math.inf]))
    allowed = [index for index, (low, high) in enumerate(gaps) if low < high]
    best = min(allowed, key=lambda index: (round(float(totals[index]), 9), -_width(*gaps[index]), index))
    num = len(sweeps)
    return ActionChoice(
        threshold_logit=_between(*gaps[best]),
        mean_nats=float(totals[best]) / num,
        nats_with_all=float(totals[0]) / num,
        nats_with_none=float(totals[-1]) / num,
        passage=1 - best / len(events),
        num_decisions=num,
    )


def _width(low: float, high: float) -> float:
    """The width of a gap. A gap beyond the outermost logits counts as one unit on each side of its threshold."""
    return high - low if low > _LEAST and high < math.inf else 2.0


def _between(low: float, high: float) -> float:
    """The float32 closest to the middle of a gap for which `high` passes and `low` does not. Both ends are float32. The
    gap below all logits begins at the least float32; the gap above all logits ends at infinity.
    """
    if low <= _LEAST:
        middle = 0.0 if high == math.inf else high - 1
    else:
        middle = low + 1 if high == math.inf else low / 2 + high / 2
    most = -_LEAST if high == math.inf else float(np.nextafter(np.float32(high), np.float32(-math.inf)))
    return float(np.float32(min(max(middle, low, _LEAST), most)))


def choose_among(sweeps: Sequence[Sweep], candidates: Sequence[float]) -> ActionChoice:
    """The candidate, given as a trust, that makes the actions likeliest. Among equally good candidates, the lowest is
    chosen.
    """
    blocks = [logit for one in sweeps for logit in one.logits]
    if not blocks or not candidates:
        what = "without any blocks; the validation data has none" if not blocks else "from no candidates"
        raise ConfigError(f"A threshold cannot be chosen {what}.")

    def mean_nats(threshold_logit: float) -> float:
        return sum(one.nats[bisect_right(one.logits, threshold_logit)] for one in sweeps) / len(sweeps)

    allowed = [float(np.float32(logit_of(trust))) for trust in sorted(candidates)]
    best = min(allowed, key=lambda logit: round(mean_nats(logit), 9))
    return ActionChoice(
        threshold_logit=best,
        mean_nats=mean_nats(best),
        nats_with_all=sum(one.nats[0] for one in sweeps) / len(sweeps),
        nats_with_none=sum(one.nats[-1] for one in sweeps) / len(sweeps),
        passage=sum(logit > best for logit in blocks) / len(blocks),
        num_decisions=len(sweeps),
    )


def _changes(one: Sweep) -> Iterator[tuple[float, float]]:
    """The logits at which a rising threshold drops a block of a decision, and how much each drop adds to the nats."""
    return zip(one.logits, np.diff(one.nats).tolist(), strict=True)


def area_under_curve(right: Sequence[float], misleading: Sequence[float]) -> float:
    """The chance that a right block scores above a misleading one; a tie counts half. Exact, by ranks."""
    _check(right, misleading)
    below, up_to = _counts_below(np.asarray(right), np.sort(misleading))
    return float((below + up_to).sum()) / (2 * len(right) * len(misleading))


def _counts_below(
    values: npt.NDArray[np.float64], ordered: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """For each value, how many of the ordered values are below it, and how many are not above it."""
    return np.searchsorted(ordered, values, side="left"), np.searchsorted(ordered, values, side="right")


def write_threshold(memory: Path, choice: ActionChoice, candidates: Sequence[float] | None = None) -> Checkpoint:
    """Writes the chosen threshold to a memory's card, with the figures of the choice and its candidates."""
    told = asdict(choice) | {"candidates": None if candidates is None else list(candidates)}
    return Checkpoint.open(memory).with_threshold(choice.threshold_logit, notes={"threshold": told})


def set_threshold(
    policy: MemoryPolicy,
    memory: Path,
    data: TrainingData,
    *,
    is_dynamic: bool,
    candidates: Sequence[float] | None = None,
) -> None:
    """Chooses the threshold of a stored memory on data that it did not learn from, if there is anything to remember.
    Without `candidates` it may take any value.
    """
    sweeps = action_sweeps(policy, offered_blocks(policy, data, is_dynamic=is_dynamic))
    if any(one.logits for one in sweeps):
        choice = choose_by_actions(sweeps) if candidates is None else choose_among(sweeps, candidates)
        write_threshold(memory, choice, candidates)
    else:
        _log.warning("the gate's threshold is unchanged: %d decisions have nothing to remember", len(sweeps))


def _check(right: Sequence[float], misleading: Sequence[float]) -> None:
    for name, values in (("right", right), ("misleading", misleading)):
        if not len(values):
            raise ConfigError(f"There is no area under the curve without any {name} blocks; the data has none.")
        if any(map(math.isnan, values)):
            raise ConfigError(f"The logits of {name} blocks must all be numbers, but one is not.")
