"""Everything focusmem raises on purpose, as one tree.

FocusmemError
|-- UserError            the user's: shown as one line, no traceback
|   |-- ConfigError          a config field or option has a value that cannot work
|   |-- RecordError          stored data is not valid
|   |-- StorageError         a file cannot be read or written (full disk, missing folder)
|   |-- BackboneError        no such backbone, or its files cannot be loaded
|   |-- CheckpointError      a checkpoint does not belong to this backbone or config
|   |-- TrainingError        training cannot continue (a non-finite loss)
|   `-- MissingPackageError  a package is not installed
|-- PolicyError          the policy's: kept in the step and shown to the policy
|   `-- UnreadableActionError
`-- WorldError           the world's: the episode counts as an error, not a failure
    |-- BlockedError         a site refused the agent: counted apart
    `-- GroundingError       the grounding model cannot be reached or its reply is unusable

What is ours (a bug) is a plain exception with its traceback.
"""


class FocusmemError(Exception):
    """Base of all deliberate errors; the message is a whole sentence for people."""


class UserError(FocusmemError):
    pass


class ConfigError(UserError):
    pass


class RecordError(UserError):
    pass


class StorageError(UserError):
    pass


class BackboneError(UserError):
    pass


class CheckpointError(UserError):
    pass


class TrainingError(UserError):
    pass


class MissingPackageError(UserError):
    def __init__(self, package: str) -> None:
        super().__init__(f"This needs the package '{package}', which is not installed: pip install {package}")


class PolicyError(FocusmemError):
    pass


class UnreadableActionError(PolicyError):
    pass


class WorldError(FocusmemError):
    pass


class BlockedError(WorldError):
    pass


class GroundingError(WorldError):
    pass
