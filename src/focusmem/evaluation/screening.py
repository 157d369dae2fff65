"""Screens a suite once. The failed attempts of a reference run are audited, and every later run leaves out the tasks
that a site made impossible. Paper, Appendix C.1.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from focusmem.errors import ConfigError, WorldError
from focusmem.evaluation.judging import JudgeRoom, stored_attempt
from focusmem.evaluation.run_store import RunStore
from focusmem.files import read_plain_file, sha256_hex, write_whole
from focusmem.judges.inquiry import Estimate
from focusmem.judges.screening import Auditor
from focusmem.schemas import JudgeCost, Manifest, RunFolder, StoredEpisode, dump_record, parse_record
from focusmem.schemas.record import MAX_DOCUMENT_BYTES
from focusmem.schemas.run_folder import SCREENING_FILE
from focusmem.schemas.screening import Audit, BlockedTask, Screening


def to_audit(folder: RunFolder) -> list[StoredEpisode]:
    """Selects failures, and attempts that a site refused. Other errors say nothing about the site, and an attempt
    without a step shows nothing.
    """
    episodes = folder.episodes()
    return [
        stored
        for stored in episodes
        if (stored.outcome == "failure" or stored.episode.is_blocked) and stored.episode.notes
    ]


def screen(
    store: RunStore, auditor: Auditor, *, again: bool = False, watch: Callable[[Audit], None] = lambda audit: None
) -> Screening:
    """Audits the attempts that have not been audited yet, and writes the frozen subset. `watch` is called in another
    thread.
    """
    check_reference(store.folder, again=again)
    with store.locked(), JudgeRoom(None) as room:
        audits = room.wait_for(_audit_all(store, auditor, watch, again=again))
        missing = [audit for audit in audits if audit.decision == "not_audited"]
        if missing:
            raise WorldError(
                f"{len(missing)} of {len(audits)} attempts could not be audited, so the subset is not frozen yet; the "
                f"same command goes on from there. The first problem: {missing[0].reason}"
            )
        screening = _frozen(store.folder, auditor, audits)
        write_whole(store.path / SCREENING_FILE, dump_record(screening))
    return screening


def check_reference(folder: RunFolder, *, again: bool = False) -> None:
    """Checks the run: a suite is screened once, by one run with one attempt at each task."""
    manifest = folder.manifest()
    if folder.screening() is not None and not again:
        raise ConfigError(
            f"{folder.path / SCREENING_FILE} exists: a suite is screened once, before the experiments. Use --again to "
            "replace it."
        )
    if manifest.num_attempts > 1:
        raise ConfigError(f"{folder.path} has {manifest.num_attempts} attempts at each task; screen a run with one.")
    if (num_missing := len(manifest.tasks) - len(folder.places(manifest))) > 0:
        raise ConfigError(
            f"{folder.path} lacks {num_missing} of its {len(manifest.tasks)} tasks; resume the run first."
        )
    if any(one.outcome == "not_judged" for one in folder.episodes()):
        raise ConfigError(f"{folder.path} has episodes that are not judged; run `focusmem judge` on it first.")


def estimate_screening(folder: RunFolder, auditor: Auditor) -> Estimate:
    """Estimates the questions that `screen` would ask. Nothing is sent."""
    total = Estimate()
    for stored in to_audit(folder):
        if _made_before(stored, auditor) is None:
            total += asyncio.run(auditor.estimate(stored_attempt(stored)))
    return total


async def _audit_all(store: RunStore, auditor: Auditor, watch: Callable[[Audit], None], *, again: bool) -> list[Audit]:
    limit = asyncio.Semaphore(auditor.model.max_together)

    async def one(stored: StoredEpisode) -> Audit:
        audit = None if again else _made_before(stored, auditor)
        if audit is None:
            async with limit:
                audit = await auditor.audit(await asyncio.to_thread(stored_attempt, stored))
            store.keep_audit(stored, audit)
        watch(audit)
        return audit

    return list(await asyncio.gather(*map(one, to_audit(store.folder))))


def _made_before(stored: StoredEpisode, auditor: Auditor) -> Audit | None:
    """The finished audit by the same model with the same wording, if there is one."""
    audit = stored.audit()
    if audit is None or audit.decision == "not_audited" or audit.subject != stored_attempt(stored).digest:
        return None
    asked = audit.consultation
    ours = (auditor.model.name, auditor.texts.digest, auditor.model.temperature)
    return audit if (asked.model, asked.prompts, asked.temperature) == ours else None


def _frozen(folder: RunFolder, auditor: Auditor, audits: Sequence[Audit]) -> Screening:
    manifest, episodes = folder.manifest(), folder.episodes()
    blocked = tuple(
        BlockedTask(task_id=audit.task_id, kind=audit.kind, step=audit.step, reason=audit.reason)
        for audit in audits
        if audit.kind is not None and audit.step is not None
    )
    left_out = {task.task_id for task in blocked}
    kept = tuple(task.task_id for task in manifest.tasks if task.task_id not in left_out)
    if not kept:
        raise ConfigError(f"Every task of {folder.path} is blocked, so nothing is left to evaluate.")
    return Screening(
        suite=manifest.suite,
        tasks_sha256=manifest.sha256,
        reference=folder.run().run_id,
        model=auditor.model.name,
        prompts=auditor.texts.digest,
        departures=tuple(sorted({text for audit in audits for text in audit.consultation.departures})),
        kept=kept,
        blocked=blocked,
        num_succeeded=sum(one.is_won for one in episodes),
        num_audited=len(audits),
        num_unreadable=sum(audit.decision == "unreadable" for audit in audits),
        num_errors=sum(one.outcome == "error" and not one.episode.is_blocked for one in episodes),
        cost=sum((audit.cost for audit in audits), JudgeCost()),
    )


def read_screening(path: Path) -> Screening:
    """Reads a frozen subset from its file, or from the folder of the run that was screened."""
    file = path / SCREENING_FILE if path.is_dir() else path
    return parse_record(Screening, read_plain_file(file, MAX_DOCUMENT_BYTES), str(file))


def within(manifest: Manifest, screening: Screening, origin: Path) -> Manifest:
    """The manifest of a run, reduced to the frozen subset."""
    kept = set(screening.kept)
    if {task.task_id for task in manifest.tasks} == kept:
        return manifest
    if (manifest.suite, manifest.sha256) != (screening.suite, screening.tasks_sha256):
        raise ConfigError(
            f"{origin} is a run of other tasks than those that were screened ({screening.suite}), so the frozen subset "
            "does not fit it."
        )
    tasks = tuple(task for task in manifest.tasks if task.task_id in kept)
    digest = sha256_hex("\n".join([manifest.sha256, *screening.kept]).encode())
    return manifest.model_copy(update={"tasks": tasks, "sha256": digest})
