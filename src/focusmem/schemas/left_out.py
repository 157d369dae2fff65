"""The parts of an input that an embedder did not read, because the input was too long."""

from typing import Annotated

from pydantic import Field

from focusmem.schemas.record import Record

Count = Annotated[int, Field(ge=0, le=2**31)]


class LeftOut(Record):
    num_frames: Count = 0
    """Screenshots that were left out."""
    num_characters: Count = 0
    """Characters that were cut from the end of the text."""

    @property
    def is_nothing(self) -> bool:
        """Whether the whole input was read."""
        return not (self.num_frames or self.num_characters)
