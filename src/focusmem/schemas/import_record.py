"""The record of an import: the number of imported results, and the refused results with their reasons."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from focusmem.schemas.record import NonEmptyText, Record, Text, sorted_by_key


class Rejection(Record):
    """A result that was not imported."""

    name: NonEmptyText
    """Its file or folder."""
    reason: NonEmptyText
    """The reason; equal for equal causes, so that causes can be counted."""
    detail: Text
    """The details for this result."""


class ImportRecord(Record):
    schema_version: Literal[1] = 1
    """Increased when the meaning of a field changes."""
    format: NonEmptyText
    """The format of the results."""
    path: NonEmptyText
    """Where they were."""
    num_imported: Annotated[int, Field(ge=0)]
    rejected: tuple[Rejection, ...] = ()
    num_by_reason: Annotated[dict[Text, int], AfterValidator(sorted_by_key)] = Field(default_factory=dict)
    """The number of refused results for each reason."""
