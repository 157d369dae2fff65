"""Searches the bank for each training decision, as the agent would search it, and stores the hits on disk."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from focusmem.bank.base import SearchableBank
from focusmem.bank.embedder import Embedder
from focusmem.bank.forms import Moment
from focusmem.bank.leakage import Query
from focusmem.bank.trust import sources_to_search
from focusmem.data.choosing import Choosing, Chosen, steps_to_learn
from focusmem.data.config import DataConfig
from focusmem.errors import StorageError, UserError
from focusmem.files import write_whole
from focusmem.progress import Progress
from focusmem.schemas import Record, StoredTrajectory, dump_record, load_trajectory, parse_record
from focusmem.schemas.record import NonEmptyText, Text

_FOUND = "found"


class Found(Record):
    """The hits for one decision, which is a step of a trajectory."""

    step: Annotated[int, Field(ge=0)]
    hits: tuple[tuple[NonEmptyText, float], ...]
    """Trajectories of the bank with their scores, the best first."""


class FoundForTrajectory(Record):
    """The hits for all training decisions of a trajectory, as stored on disk."""

    schema_version: Literal[1] = 1
    folder: NonEmptyText
    """The folder of the trajectory."""
    site: Text
    decisions: tuple[Found, ...]


def find_all(
    embedder: Callable[[], Embedder], bank: SearchableBank, data: DataConfig, choosing: Choosing, folder: Path
) -> Chosen:
    """Searches the bank at every decision of the chosen trajectories. Trajectories that cannot be read are left out."""
    missing = [name for name in choosing.folders if not _path(folder, name).exists()]
    unusable: dict[str, str] = {}
    if missing:
        model = embedder()
        bank.check_embedder(model.identity)
        done = len(choosing.folders) - len(missing)
        with Progress("find", total=len(choosing.folders), start=done) as line:
            for name in missing:
                place = choosing.folders[name]
                try:
                    found = _find(model, bank, data, load_trajectory(place), place)
                except UserError as error:
                    unusable[name] = str(error)
                    line.step(failed=True)
                    continue
                write_whole(_path(folder, name), dump_record(found))
                line.step()
    return choosing.without(unusable)


def _find(
    embedder: Embedder, bank: SearchableBank, data: DataConfig, stored: StoredTrajectory, folder: Path
) -> FoundForTrajectory:
    record = stored.trajectory
    places = steps_to_learn(record.steps)
    moments = [
        Moment.of(
            record,
            record.steps[:at],
            stored.screenshots,
            stored.screenshots[record.steps[at].screenshot.sha256],
            num_recent=data.use.num_recent,
        )
        for at in places
    ]
    query, top, decisions = Query.of(record), data.use.num_episodic, []
    sources = sources_to_search(bank, only_trusted=data.only_trusted)
    for at, vector_D in zip(places, embedder.embed_queries(moments), strict=True):
        hits = bank.search(vector_D, query, top, outcomes=data.bank_outcomes, sources=sources).hits if top else ()
        decisions.append(Found(step=at, hits=tuple((hit.trajectory_id, hit.score) for hit in hits)))
    return FoundForTrajectory(folder=str(folder), site=record.site, decisions=tuple(decisions))


def read_found(folder: Path, trajectory_id: str) -> FoundForTrajectory:
    path = _path(folder, trajectory_id)
    try:
        return parse_record(FoundForTrajectory, path.read_bytes(), str(path))
    except OSError as error:
        raise StorageError(f"Could not read {path}: {error.strerror}. Prepare again in another folder.") from error


def _path(folder: Path, trajectory_id: str) -> Path:
    return folder / _FOUND / f"{trajectory_id}.json"
