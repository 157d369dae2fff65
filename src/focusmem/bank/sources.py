"""Finds trajectories to add: in folders of trajectories and in the folders of runs."""

from functools import cache
from pathlib import Path

from focusmem.schemas import RunFolder, StoredTrajectory, find_trajectories, is_run, load_trajectory, read_episode
from focusmem.schemas.run_folder import EPISODE_FILE, TRAJECTORY_FOLDER


def find_sources(path: Path) -> list[Path]:
    """The trajectory folders at or below a path. From a run, only the folders of finished episodes are returned."""
    if is_run(path):
        return _episodes(path)
    is_run_folder = cache(is_run)
    sources: list[Path] = []
    runs: set[Path] = set()
    for folder in find_trajectories(path):
        above = [parent for parent in folder.parents if parent.is_relative_to(path)]
        run = next((parent for parent in above if is_run_folder(parent)), None)
        if run is None:
            sources.append(folder)
        elif run not in runs:
            runs.add(run)
            sources += _episodes(run)
    return sources


def load_source(folder: Path) -> StoredTrajectory | None:
    """Loads a trajectory. The trajectory of an episode gets the outcome of its verdict. Returns None for an episode
    without a step.
    """
    place = folder.parent
    if folder.name != TRAJECTORY_FOLDER or not (place / EPISODE_FILE).exists():
        return load_trajectory(folder)
    episode = read_episode(place)
    stored = episode.trajectory()
    if stored is None or stored.trajectory.outcome == episode.outcome:
        return stored
    return StoredTrajectory(stored.trajectory.model_copy(update={"outcome": episode.outcome}), stored.screenshots)


def _episodes(run: Path) -> list[Path]:
    folder = RunFolder.open(run)
    return [place / TRAJECTORY_FOLDER for place in folder.places(folder.manifest())]
