"""Finds trajectories in a bank, with vectors of its embedder."""

import threading
from collections import OrderedDict
from collections.abc import Collection, Sequence
from typing import Final, TypeAlias, TypeVar

from focusmem.agent.decision import Decision
from focusmem.agent.prompt import NUM_RECENT
from focusmem.agent.retrieval import FoundTrajectory, Search
from focusmem.bank.base import SearchableBank
from focusmem.bank.embedder import Embedder, Vectors
from focusmem.bank.forms import Moment
from focusmem.bank.leakage import Query
from focusmem.bank.trust import sources_to_search
from focusmem.errors import ConfigError
from focusmem.schemas import LeftOut, StoredTrajectory

_NUM_QUERIES_KEPT: Final = 256
_NUM_TRAJECTORIES_KEPT: Final = 32

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")

_MomentKey: TypeAlias = tuple[str, tuple[str, ...], tuple[str, ...]]
"""What an embedder reads of a moment: instruction, actions and digests of screenshots."""
_Query: TypeAlias = tuple[Vectors, LeftOut]
"""A vector (D,), and the part of the moment that was left out of the vector."""


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
        only_trusted: bool = False,
    ) -> None:
        """`outcomes` restricts the search to trajectories with these outcomes, and `only_trusted` to the sources that
        the bank trusts.
        """
        bank.check_embedder(embedder.identity)
        self.bank, self.embedder = bank, embedder
        self._outcomes, self._only_trusted = outcomes, only_trusted
        self._sources()
        self._queries: OrderedDict[_MomentKey, _Query] = OrderedDict()
        self._loaded: OrderedDict[str, StoredTrajectory] = OrderedDict()
        self._lock = threading.Lock()
        """Guards the kept queries and trajectories. It is not held while something is embedded or loaded."""

    @property
    def identity(self) -> str:
        return self.embedder.identity

    def find(self, decisions: Sequence[Decision], top: int, num_recent: int = NUM_RECENT) -> list[Search]:
        if top < 1:
            raise ConfigError(f"The retriever was asked for {top} trajectories; ask for at least 1.")
        queries = self._embed([_moment_of(decision, num_recent) for decision in decisions])
        return [self._search(decision, *query, top) for decision, query in zip(decisions, queries, strict=True)]

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

    def _search(self, decision: Decision, vector_D: Vectors, left_out: LeftOut, top: int) -> Search:
        query = Query.of(decision.task) if decision.is_guarded else None
        hits = self.bank.search(vector_D, query, top, outcomes=self._outcomes, sources=self._sources())
        found = tuple(FoundTrajectory(hit, self.load(hit.trajectory_id)) for hit in hits.hits)
        return Search(found, hits.removed, None if left_out.is_nothing else left_out)

    def _sources(self) -> tuple[str, ...] | None:
        """The trusted sources are read again for each search, because they may change."""
        return sources_to_search(self.bank, only_trusted=self._only_trusted)

    def _embed(self, moments: Sequence[Moment]) -> list[_Query]:
        keys = [_key(moment) for moment in moments]
        with self._lock:
            queries = {key: self._queries[key] for key in keys if key in self._queries}
        missing = {key: moment for key, moment in zip(keys, moments, strict=True) if key not in queries}
        if missing:
            vectors = self.embedder.embed_queries(list(missing.values()))
            left_out = map(self.embedder.left_out_of_query, missing.values())
            queries |= zip(missing, zip(vectors, left_out, strict=True), strict=True)
        with self._lock:
            for key, query in queries.items():
                _keep(self._queries, key, query, _NUM_QUERIES_KEPT)
        return [queries[key] for key in keys]


def _moment_of(decision: Decision, num_recent: int) -> Moment:
    now = decision.seen.screenshot
    return Moment.of(decision.task, decision.steps, decision.screenshots, now, num_recent=num_recent)


def _keep(kept: OrderedDict[KeyT, ValueT], key: KeyT, value: ValueT, limit: int) -> None:
    """Adds an entry as the latest, and drops the oldest one beyond `limit`."""
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > limit:
        kept.popitem(last=False)


def _key(moment: Moment) -> _MomentKey:
    return moment.instruction, tuple(event.action for event in moment.recent), moment.digests
