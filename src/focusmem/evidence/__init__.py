"""In: evidence items (steps of past trajectories or of the expired history).
Out: prompts, the raw serialisation that the encoder and the teacher read.
Knows nothing of banks, tokens or models.
"""

from focusmem.evidence.serialisation import Serialiser

__all__ = ["Serialiser"]
