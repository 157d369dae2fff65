"""A bank on disk as the laboratory's minds search it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from focusmem.bank.embedder import Embedder, Moment
from focusmem.bank.leakage import Query
from focusmem.bank.retrieval import Hits
from focusmem.bank.store import Bank
from focusmem.schemas import StoredTrajectory, Task


@dataclass(frozen=True)
class BankRecall:
    """Finds what `LabRecall` finds over the same trajectories, with the leakage guard on."""

    bank: Bank
    embedder: Embedder
    _loaded: dict[str, StoredTrajectory] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.bank.check_embedder(self.embedder.identity)

    def find(self, moments: Sequence[Moment], tasks: Sequence[Task], *, top: int = 3) -> list[Hits]:
        vectors_QD = self.embedder.embed_queries(moments)
        return [
            self.bank.search(vector_D, Query.of(task), top) for vector_D, task in zip(vectors_QD, tasks, strict=True)
        ]

    def load(self, trajectory_id: str) -> StoredTrajectory:
        """Read once: the same few are found at step after step."""
        if trajectory_id not in self._loaded:
            self._loaded[trajectory_id] = self.bank.load(trajectory_id)
        return self._loaded[trajectory_id]
