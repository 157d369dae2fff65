"""Writes the experts' trajectories of the first evaluation sites as a bank that needs no vector store."""

from dataclasses import dataclass
from pathlib import Path

from focusmem.bank.embedder import Embedder
from focusmem.bank.numpy_bank import write_numpy_bank
from focusmem.errors import ConfigError
from focusmem.lab.memory.recall import LabBank
from focusmem.lab.world.rollout import RolloutStep, session_of
from focusmem.lab.world.small_png import small_png
from focusmem.lab.world.world import World
from focusmem.schemas import Screenshot


@dataclass(frozen=True)
class WrittenBank:
    folder: Path
    num_trajectories: int
    num_steps: int
    num_bytes: int
    """The size of all files together."""


def write_expert_bank(folder: Path, world: World, embedder: Embedder, *, num_sites: int) -> WrittenBank:
    """Writes the bank, whole or not at all. The same arguments give the same trajectories and vectors."""
    if num_sites < 1:
        raise ConfigError(f"num_sites is {num_sites}; it must be at least 1.")

    def picture(step: RolloutStep) -> Screenshot:
        return Screenshot.from_png(small_png(session_of(world, step).image()))

    items = LabBank(world, "e", num_sites=num_sites, picture=picture).trajectories
    write_numpy_bank(folder, items, embedder, trusted_sources={item.trajectory.source for item in items})
    return WrittenBank(
        folder,
        num_trajectories=len(items),
        num_steps=sum(len(item.trajectory.steps) for item in items),
        num_bytes=sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
    )
