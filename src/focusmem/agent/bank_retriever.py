"""Finds trajectories in a bank, with vectors of its embedder."""

import threading
from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from focusmem.agent.decision import Decision
from focusmem.agent.retrieval import FoundTrajectory, Search
from focusmem.bank.base import SearchableBank
from focusmem.bank.embedder import Embedder, Moment, Vectors
from focusmem.bank.leakage import Query
from focusmem.errors import ConfigError
from focusmem.schemas import StoredTrajectory

_NUM_VECTORS_KEPT: Final = 256
_NUM_TRAJECTORIES_KEPT: Final = 32

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")

_MomentKey = tuple[Moment, tuple[str, ...]]


class BankRetriever:
    """Embeds equal moments once and reads each trajectory once, however often it is found.

    Thread-safe: several runs may share a retriever, and an abandoned thread may still be using it.
    """

    def __init__(
        self,
        bank: SearchableBank,
        embedder: Embedder,
        *,
        outcomes: Collection[str] | None = None,
        shows_site: bool = True,
    ) -> None:
        """`outcomes` restricts the search to trajectories with these outcomes. With `shows_site` off, the embedder is
        not given the site's name and has to recognise the site by its looks.
        """
        bank.check_embedder(embedder.identity)
        self.bank, self.embedder = bank, embedder
        self._outcomes, self._shows_site = outcomes, shows_site
        self._vectors: OrderedDict[_MomentKey, Vectors] = OrderedDict()
        self._loaded: OrderedDict[str, StoredTrajectory] = OrderedDict()
        self._lock = threading.Lock()
        """Guards the kept vectors and trajectories. It is not held while something is embedded or loaded."""

    @property
    def identity(self) -> str:
        return self.embedder.identity

    def find(self, decisions: Sequence[Decision], top: int) -> list[Search]:
        if top < 1:
            raise ConfigError(f"The retriever was asked for {top} trajectories; ask for at least 1.")
        vectors = self._embed([self._moment(decision) for decision in decisions])
        return [self._search(decision, vector_D, top) for decision, vector_D in zip(decisions, vectors, strict=True)]

    def load(self, trajectory_id: str) -> StoredTrajectory:
        with self._lock:
            kept = self._loaded.get(trajectory_id)
        if kept is None:
            stored = self.bank.load(trajectory_id)
            # With its pictures: a trajectory may be deleted from the bank while an episode still uses it.
            kept = StoredTrajectory(stored.trajectory, dict(stored.screenshots))
        with self._lock:
            _keep(self._loaded, trajectory_id, kept, _NUM_TRAJECTORIES_KEPT)
        return kept

    def _search(self, decision: Decision, vector_D: Vectors, top: int) -> Search:
        query = Query.of(decision.task) if decision.is_guarded else None
        hits = self.bank.search(vector_D, query, top, outcomes=self._outcomes)
        return Search(tuple(FoundTrajectory(hit, self.load(hit.trajectory_id)) for hit in hits.hits), hits.removed)

    def _moment(self, decision: Decision) -> Moment:
        moment = Moment.of(decision.task, decision.steps, decision.screenshots, decision.seen.screenshot)
        return moment if self._shows_site else replace(moment, site="")

    def _embed(self, moments: Sequence[Moment]) -> list[Vectors]:
        """A vector (D,) for each moment."""
        keys = [_key(moment) for moment in moments]
        with self._lock:
            vectors = {key: self._vectors[key] for key in keys if key in self._vectors}
        missing = {key: moment for key, moment in zip(keys, moments, strict=True) if key not in vectors}
        if missing:
            vectors |= zip(missing, self.embedder.embed_queries(list(missing.values())), strict=True)
        with self._lock:
            for key, vector_D in vectors.items():
                _keep(self._vectors, key, vector_D, _NUM_VECTORS_KEPT)
        return [vectors[key] for key in keys]


def _keep(kept: OrderedDict[KeyT, ValueT], key: KeyT, value: ValueT, limit: int) -> None:
    """Adds an entry as the latest, and drops the oldest one beyond `limit`."""
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > limit:
        kept.popitem(last=False)


def _key(moment: Moment) -> _MomentKey:
    """Screenshots are compared by digest."""
    return replace(moment, screenshots=()), tuple(shot.digest for shot in moment.screenshots)
