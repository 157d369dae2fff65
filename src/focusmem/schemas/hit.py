"""What retrieval found: a trajectory of the bank, and how alike it is."""

from typing import Annotated

from pydantic import Field

from focusmem.schemas.record import Identifier, Record


class Hit(Record):
    trajectory_id: Identifier
    """Which trajectory of the bank."""
    score: float
    """Cosine of query and trajectory."""
    rank: Annotated[int, Field(ge=0, le=2**31)]
    """The place among the hits of one query, the best first, from zero."""
