"""The data of each trajectory that a search uses besides its vector: id, keys of the leakage guard, outcome, source. N
rows.
"""

import hashlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import get_args

import numpy as np
import numpy.typing as npt

from focusmem.bank.leakage import Flags, KeyColumns, Numbers
from focusmem.errors import ConfigError, RecordError
from focusmem.schemas import Outcome

Codes = npt.NDArray[np.uint8]
"""Outcomes as numbers: one byte per trajectory."""

OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
_CODE_OF: dict[str, int] = {outcome: code for code, outcome in enumerate(OUTCOMES)}


@dataclass(frozen=True)
class Candidates:
    ids_N: npt.NDArray[np.object_]
    keys: KeyColumns
    outcomes_N: Codes
    sources_N: Numbers

    def wanted(self, outcomes: Collection[str] | None, sources: Collection[str] | None) -> Flags | None:
        """A mask (N,): True for each trajectory with one of these outcomes and from one of these sources; None as an
        argument allows all. Returns None if both arguments are None.
        """
        masks = [] if outcomes is None else [self.ended_so(outcomes)]
        masks += [] if sources is None else [np.isin(self.sources_N, source_numbers(sources))]
        return np.logical_and.reduce(masks) if masks else None

    def ended_so(self, outcomes: Collection[str]) -> Flags:
        """A mask (N,): True for each trajectory with one of these outcomes."""
        is_wanted = np.zeros(len(OUTCOMES), dtype=np.bool_)
        for outcome in outcomes:
            if outcome not in _CODE_OF:
                raise ConfigError(f"outcomes names '{outcome}'; choose among {', '.join(OUTCOMES)}.")
            is_wanted[_CODE_OF[outcome]] = True
        flags_N: Flags = is_wanted[self.outcomes_N]
        return flags_N


def outcome_codes(outcomes: Iterable[str]) -> Codes:
    try:
        return np.array([_CODE_OF[outcome] for outcome in outcomes], dtype=np.uint8)
    except KeyError as unknown:
        raise RecordError(f"The bank lists a trajectory with the outcome {unknown}, which does not exist.") from None


def source_numbers(sources: Iterable[str]) -> Numbers:
    """A 64-bit number for each source, taken from its digest. With these numbers, filtering a large bank compares no
    texts.
    """
    listed = list(sources)
    numbers = {source: _number(source) for source in set(listed)}
    return np.array([numbers[source] for source in listed], dtype=np.int64)


def _number(source: str) -> int:
    digest = hashlib.blake2b(source.encode(errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
