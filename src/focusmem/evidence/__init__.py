"""In: trajectories that were found, and the steps of an episode that left the prompt.
Out: evidence items and their raw serialisation as prompts, which the encoder and the teacher read.
Knows nothing of banks, tokens or models.
"""

from focusmem.evidence.items import CHUNK_EVENTS, episodic_items, working_items
from focusmem.evidence.serialisation import Serialiser

__all__ = ["CHUNK_EVENTS", "Serialiser", "episodic_items", "working_items"]
