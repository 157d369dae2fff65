"""What was run, with which settings, and on what: enough to repeat it and to know what a number came from."""

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
    """Versions of the installed packages, by name."""
    hardware: TextMap = Field(default_factory=dict)
    """What the machine is, for example its processor, memory and accelerator."""
    seeds: Annotated[dict[Text, Seed], AfterValidator(sorted_by_key)] = Field(default_factory=dict)
    """Where each kind of randomness began, by purpose."""


class Run(Record):
    schema_version: Literal[1] = 1
    """Raised when the meaning of a field changes."""
    run_id: Identifier
    """The name of the run's folder, or one made from it where that is not usable as a name."""
    command: tuple[Text, ...]
    """The command line, word by word; empty where it was not run by a command."""
    status: Literal["running", "finished", "failed"]
    """A run that is still `running` long after it started was killed."""
    config: JsonObject
    """The resolved config: every setting, defaults included."""
    started_at: UtcTime
    """When the work began."""
    finished_at: UtcTime | None = None
    """When the run came to its end, well or badly."""
    num_tasks: Annotated[int, Field(ge=0, le=2**31)] | None = None
    """How many tasks it was to attempt, where it is that kind of run."""
    error: Text | None = None
    """Why it failed."""

    @model_validator(mode="after")
    def _status_fits_times(self) -> Self:
        if self.status == "running" and self.finished_at is not None:
            raise ValueError("says that the run is still running, yet has a finished_at")
        if self.status == "finished" and self.finished_at is None:
            raise ValueError("says that the run is finished, yet has no finished_at")
        return self
