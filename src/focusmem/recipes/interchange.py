"""Other people's results as a run of ours, and a run of ours as result folders that benchmarks' scripts read."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeVar

from focusmem.agent.live_episode import LiveEpisode
from focusmem.data.exporters.base import Exporter
from focusmem.data.exporters.registry import EXPORTERS
from focusmem.data.importers.base import Choice, Imported, Importer, RejectedError
from focusmem.data.importers.registry import IMPORTERS
from focusmem.errors import ConfigError, RecordError, UserError
from focusmem.evaluation.judging import stored_attempt
from focusmem.evaluation.run_store import RunStore
from focusmem.files import whole_folder, write_whole
from focusmem.judges.base import RULES
from focusmem.progress import Progress
from focusmem.schemas import Manifest, Run, RunFolder, StepNotes, Task, Verdict, dump_record, read_episode, run_name
from focusmem.schemas.environment import collect_environment
from focusmem.schemas.import_record import ImportRecord, Rejection
from focusmem.schemas.record import storable_text
from focusmem.schemas.run_folder import ENVIRONMENT_FILE, IMPORT_FILE, RUN_FILE, TASKS_FILE, task_folder

KindT = TypeVar("KindT")

DUPLICATE: Final = "two results for one task"


@dataclass(frozen=True, kw_only=True)
class ImportRequest:
    """What `focusmem data import` was asked for."""

    format: str
    path: Path
    out: Path
    """A new folder, which becomes a run."""
    suite: str | None = None
    """The first part of task ids; None for the format's own."""
    agent: str | None = None
    """The name that reports show for whoever acted; None for the format's name."""
    source: str | None = None
    """Where a bank says that the trajectories come from; None names the format and the folder."""
    instructions: Mapping[str, str] = field(default_factory=dict)
    """Instructions by the name of a result, for formats that do not store them."""
    command: tuple[str, ...] = ()


@dataclass(frozen=True)
class Exported:
    names: tuple[str, ...]
    """The folders that were written."""
    left_out: tuple[Rejection, ...]
    """Attempts that were not written."""
    changes: Mapping[str, tuple[str, ...]]
    """What was changed to fit the format, by folder."""
    cannot_hold: tuple[str, ...]
    """What every export in this format loses."""


# Importing


def import_results(request: ImportRequest) -> ImportRecord:
    """Reads results into a run that can be judged, shown and added to a bank. All or nothing is written."""
    importer = _named(IMPORTERS, request.format)
    if not request.path.exists():
        raise ConfigError(f"{request.path} does not exist.")
    places = importer.find(request.path)
    if not places:
        raise ConfigError(f"{request.path} holds nothing that looks like a result in the format '{request.format}'.")
    suite = request.suite or importer.suite
    choice = Choice(suite, request.instructions)
    with whole_folder(request.out) as partial, Progress("import", total=len(places)) as line:
        run = _begun(request, partial)
        store = _Store(RunStore(partial), request)
        for place in places:
            line.step(failed=not store.add(place, importer, choice))
        record = store.record()
        if not store.tasks:
            raise ConfigError(f"None of {len(places)} results could be imported: {_counted(record)}. {_first(record)}")
        write_whole(partial / IMPORT_FILE, dump_record(record))
        write_whole(partial / TASKS_FILE, dump_record(Manifest.of(suite, store.tasks, {})))
        write_whole(partial / ENVIRONMENT_FILE, dump_record(collect_environment({})))
        ended = {"status": "finished", "finished_at": datetime.now(UTC), "num_tasks": len(store.tasks)}
        write_whole(partial / RUN_FILE, dump_record(run.model_copy(update=ended)))
    return record


def _begun(request: ImportRequest, folder: Path) -> Run:
    run = Run(
        run_id=run_name(request.out),
        command=request.command,
        status="running",
        config={"imported": {"format": request.format, "path": storable_text(str(request.path))}},
        started_at=datetime.now(UTC),
    )
    write_whole(folder / RUN_FILE, dump_record(run))
    return run


class _Store:
    """The attempts that were read so far."""

    def __init__(self, store: RunStore, request: ImportRequest) -> None:
        self.store, self.request = store, request
        self.tasks: list[Task] = []
        self.rejected: list[Rejection] = []
        self._folders: set[str] = set()

    def add(self, place: Path, importer: Importer, choice: Choice) -> bool:
        """Whether the result was imported."""
        try:
            imported = importer.read(place, choice)
            if task_folder(imported.task.task_id) in self._folders:
                raise RejectedError(DUPLICATE, f"Another result for {imported.task.task_id} was imported before.")
            self._save(imported)
        except UserError as error:
            reason = error.reason if isinstance(error, RejectedError) else type(error).__name__
            name, detail = storable_text(str(place)) or ".", storable_text(str(error))
            self.rejected.append(Rejection(name=name, reason=reason, detail=detail))
            return False
        self._folders.add(task_folder(imported.task.task_id))
        self.tasks.append(imported.task)
        return True

    def record(self) -> ImportRecord:
        return ImportRecord(
            format=self.request.format,
            path=storable_text(str(self.request.path)),
            num_imported=len(self.tasks),
            rejected=tuple(self.rejected),
            num_by_reason=dict(Counter(one.reason for one in self.rejected)),
        )

    def _save(self, imported: Imported) -> None:
        live = LiveEpisode(imported.task)
        for step in imported.steps:
            live.add(step, imported.screenshots[step.screenshot.sha256], StepNotes())
        live.screenshots.update(imported.screenshots)
        live.closing = imported.closing
        verdict = Verdict(
            task_id=imported.task.task_id,
            outcome=imported.outcome,
            reason=imported.reason,
            judge=imported.judge or RULES,
            judge_profile="imported",
        )
        source = self.request.source or f"{self.request.format} results: {run_name(self.request.path)}"
        self.store.save(live, verdict, method=self.request.agent or self.request.format, source=source)


def _counted(record: ImportRecord) -> str:
    return ", ".join(f"{num} {reason}" for reason, num in record.num_by_reason.items())


def _first(record: ImportRecord) -> str:
    return f"The first is {record.rejected[0].name}: {record.rejected[0].detail}"


# Exporting


def export_run(run: Path, form: str, out: Path, *, attempt: int = 1) -> Exported:
    """Writes one attempt at each task of a run into a new folder."""
    exporter = _named(EXPORTERS, form)
    folder = RunFolder.open(run)
    places = [place for place in folder.places(folder.manifest()) if place.name == str(attempt)]
    if not places:
        raise ConfigError(f"{run} has no finished attempt number {attempt}.")
    left_out, changes = [], dict[str, tuple[str, ...]]()
    with whole_folder(out) as partial, Progress("export", total=len(places)) as line:
        for place in places:
            try:
                name, changed = _exported(place, exporter, partial)
            except UserError as error:
                left_out.append(_left_out(place, error))
                line.step(failed=True)
                continue
            changes[name] = changed
            line.step()
        if not changes:
            raise ConfigError(f"Nothing in {run} could be exported. {left_out[0].name}: {left_out[0].detail}")
    kept = {name: changed for name, changed in changes.items() if changed}
    return Exported(tuple(changes), tuple(left_out), kept, exporter.cannot_hold)


def _exported(place: Path, exporter: Exporter, out: Path) -> tuple[str, tuple[str, ...]]:
    stored = read_episode(place)
    attempt = stored_attempt(stored)
    if attempt.error is not None:
        raise RejectedError("ended by an error", f"The attempt ended by an error of the world: {attempt.error}")
    if not attempt.steps:
        raise RejectedError("no step", "The attempt has no step.")
    name = exporter.folder(attempt.task.task_id)
    if (out / name).exists():
        raise RecordError(f"The folder {name!r} is taken by another task.")
    with whole_folder(out / name) as partial:
        return name, exporter.write(attempt, partial)


def _left_out(place: Path, error: UserError) -> Rejection:
    reason = error.reason if isinstance(error, RejectedError) else type(error).__name__
    return Rejection(name=storable_text(str(place)), reason=reason, detail=storable_text(str(error)))


def _named(table: Mapping[str, KindT], name: str) -> KindT:
    if name not in table:
        raise ConfigError(f"There is no format '{name}' for this; choose one of {', '.join(table)}.")
    return table[name]
