"""Trajectories on disk with a bank beside them, as training on stored trajectories finds them."""

from dataclasses import replace
from pathlib import Path

from banks import WordEmbedder, make_stored
from focusmem.bank import Bank
from focusmem.data.config import DataConfig
from focusmem.data.decisions import TrajectoryDecisions
from focusmem.schemas import save_trajectory

NUM_BANK = 8
OWN = range(NUM_BANK, NUM_BANK + 6)


def stored(number: int, **changes):
    return make_stored(number, num_steps=9, site=f"site-{number % 3}", **changes)


def write(folder: Path, item) -> Path:
    save_trajectory(folder / item.trajectory.trajectory_id, item.trajectory, item.screenshots)
    return folder / item.trajectory.trajectory_id


def make_data(folder: Path) -> DataConfig:
    embedder = WordEmbedder()
    Bank.create(folder / "bank", embedder).add([stored(number) for number in range(NUM_BANK)], embedder)
    folders = tuple(write(folder / "own", stored(number)) for number in OWN)
    return DataConfig(trajectories=folders, bank=folder / "bank")


def decisions_of(data: DataConfig, prepared, *, negative_share: float = 0.0) -> TrajectoryDecisions:
    return TrajectoryDecisions(prepared.found, replace(data, negative_share=negative_share), prepared.sites)
