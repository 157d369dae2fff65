"""The seam: what the agent needs from a bank, independent of where its vectors are stored. D width."""

from collections.abc import Collection, Iterable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from focusmem.bank.export_folder import Block
from focusmem.bank.leakage import Query
from focusmem.bank.reports import Entry, Statistics
from focusmem.bank.retrieval import Hits
from focusmem.schemas import StoredTrajectory


class SearchableBank(Protocol):
    def check_embedder(self, identity: str) -> None:
        """Raise an error if vectors of this embedder cannot be compared with those of the bank."""

    def search(
        self,
        vector_D: npt.NDArray[np.floating[Any]],
        query: Query | None,
        top: int = 3,
        *,
        outcomes: Collection[str] | None = None,
        sources: Collection[str] | None = None,
    ) -> Hits:
        """The `top` nearest trajectories that share no key of the leakage guard with `query`; with None the guard is
        off.

        `outcomes` and `sources` restrict the search to trajectories with these outcomes and from these sources; None
        allows all.
        """

    @property
    def trusted_sources(self) -> tuple[str, ...]:
        """The sources that the bank trusts; empty if it trusts none."""

    def load(self, trajectory_id: str) -> StoredTrajectory:
        """Reads the record at once, and screenshots when they are used."""

    def sites(self) -> list[str]:
        """The sites of its trajectories, in alphabetical order."""

    def entries(self) -> list[Entry]:
        """All trajectories, ordered by id."""


class StoredBank(SearchableBank, Protocol):
    """A bank in a folder. It can be searched, and also listed and exported."""

    @property
    def name(self) -> str:
        """The bank's folder, as messages show it."""

    @property
    def embedder(self) -> str:
        """The identity of the embedder that made the vectors."""

    @property
    def width(self) -> int:
        """Numbers per vector."""

    def blocks(self) -> Iterable[Block]:
        """Yields all entries with their vectors, block by block, in the order of the store. Entries with a damaged
        vector are left out.
        """

    def damaged(self) -> list[str]:
        """Trajectories whose vector, or entry, is damaged, by id."""

    def without_vector(self) -> list[str]:
        """Trajectories that no search finds because they have no vector, by id."""

    def catalogue(self) -> list[str]:
        """Names that the leakage guard replaces by slots."""

    def stats(self) -> Statistics:
        """How much is in the bank."""
