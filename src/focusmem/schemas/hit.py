"""A hit: a trajectory of the bank that a search found, and its similarity."""

from typing import Annotated

from pydantic import Field

from focusmem.schemas.record import Identifier, Record


class Hit(Record):
    trajectory_id: Identifier
    """The trajectory of the bank."""
    score: float
    """Cosine of query and trajectory."""
    rank: Annotated[int, Field(ge=0, le=2**31)]
    """The place among the hits of one query, the best first, from zero."""
