"""A run and its environment: the command, the settings, the code and the machine."""

import secrets
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from focusmem.schemas.record import Identifier, JsonObject, Record, Text, TextMap, UtcTime, sorted_by_key

Seed = Annotated[int, Field(ge=0, lt=2**64)]


class Environment(Record):
    commit: Annotated[str, Field(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})$")] | None = None
    """The git commit of the code; absent when it was not run from a checkout."""
    has_uncommitted_changes: bool | None = None
    """Whether the code differed from that commit; absent when that is not known."""
    packages: TextMap = Field(default_factory=dict)
    """Versions of Python and of packages, by name; `not installed` where one is absent."""
    system: TextMap = Field(default_factory=dict)
    """Operating system, kernel, driver and CUDA; `not readable` where the machine does not tell."""
    hardware: TextMap = Field(default_factory=dict)
    """Processors, caches, memory and GPUs; `not readable` where the machine does not tell."""
    seeds: Annotated[dict[Text, Seed], AfterValidator(sorted_by_key)] = Field(default_factory=dict)
    """The seed of each kind of randomness, by purpose."""


class Run(Record):
    schema_version: Literal[1] = 1
    """Increased when the meaning of a field changes."""
    run_id: Identifier
    """The name of the run's folder, or a name made from it if the folder's is not usable."""
    key: Identifier = Field(default_factory=lambda: secrets.token_hex(4))
    """A random name that the run keeps when it is resumed. It is part of its trajectory ids, so that they differ from
    those of any other run.
    """
    command: tuple[Text, ...]
    """The command line, word by word; empty if the run was started from Python."""
    status: Literal["running", "finished", "failed"]
    """A run that was killed stays `running`."""
    config: JsonObject
    """The resolved settings, defaults included."""
    started_at: UtcTime
    """When the run was first started."""
    finished_at: UtcTime | None = None
    """When the run finished or failed."""
    num_tasks: Annotated[int, Field(ge=0, le=2**31)] | None = None
    """How many tasks the run attempts; absent for a run without tasks."""
    error: Text | None = None
    """Why the run failed."""

    @model_validator(mode="after")
    def _status_fits_times(self) -> Self:
        if self.status == "running" and self.finished_at is not None:
            raise ValueError("says that the run is still running, yet has a finished_at")
        if self.status == "finished" and self.finished_at is None:
            raise ValueError("says that the run is finished, yet has no finished_at")
        return self
