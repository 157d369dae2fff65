"""In: trajectories, vectors of an embedder, and queries of a decision.
Out: the most useful trajectories that do not give the task away, with their scores; whole trajectories from disk.
Knows nothing of how evidence is made from a hit, of the policy, or of what the agent does with it.
"""

from focusmem.bank.base import SearchableBank
from focusmem.bank.leakage import LeakageGuard, Query, Removal, Screened
from focusmem.bank.numpy_bank import NumpyBank
from focusmem.bank.opening import open_bank
from focusmem.bank.retrieval import Hits, RetrievalConfig
from focusmem.bank.store import Bank

__all__ = [
    "Bank",
    "Hits",
    "LeakageGuard",
    "NumpyBank",
    "Query",
    "Removal",
    "RetrievalConfig",
    "Screened",
    "SearchableBank",
    "open_bank",
]
