"""Encodes all trajectories of a bank beforehand, so that no step of an episode has to wait for it."""

import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Final

import torch

from focusmem.agent.fronts.latent import LatentFront
from focusmem.bank.base import SearchableBank
from focusmem.bank.embedding import in_batches
from focusmem.bank.opening import open_bank
from focusmem.bank.reports import Failure
from focusmem.errors import ConfigError, FocusmemError, UserError
from focusmem.evidence import Serialiser, episodic_items
from focusmem.model.evidence_cache import EvidenceCache
from focusmem.progress import Progress
from focusmem.recipes.run_parts import Parts
from focusmem.recipes.run_settings import RunSettings
from focusmem.schemas import Prompt, StoredTrajectory
from focusmem.suites.task_file import TaskSuite
from focusmem.worker_processes import worker_processes

_FREE_DISK_SHARE: Final = 0.05
"""Share of the disk that encoding leaves free, because the items of a large bank can take terabytes."""


@dataclass(frozen=True)
class Encoded:
    """Counts of encoded items; a trajectory is one item."""

    num_items: int = 0
    num_encoded: int = 0
    num_cached: int = 0
    """Items that were in the cache already."""
    num_left_out: int = 0
    """Items for which the cache has no room, in memory or on disk. They are encoded when a search finds them."""
    num_bytes: int = 0
    """The size of all these items in the cache."""
    seconds: float = 0.0
    failures: tuple[Failure, ...] = ()
    """Trajectories that could not be read."""

    def __add__(self, other: "Encoded") -> "Encoded":
        return Encoded(
            self.num_items + other.num_items,
            self.num_encoded + other.num_encoded,
            self.num_cached + other.num_cached,
            self.num_left_out + other.num_left_out,
            self.num_bytes + other.num_bytes,
            self.seconds + other.seconds,
            self.failures + other.failures,
        )


def encode_bank(
    bank: SearchableBank, front: LatentFront, ids: Sequence[str] | None = None, *, line: Progress | None = None
) -> Encoded:
    """Put the trajectories of a bank into the cache of a front; `ids` selects some of them. Cached items are not
    encoded again.

    Encoding stops when the cache is full: without a cache folder before items would push each other out of memory, with
    a cache folder before the disk is nearly full.
    """
    if ids is None:
        ids = [entry.trajectory_id for entry in bank.entries()]
    total = Encoded()
    for encoded in _batches(bank, front, ids):
        total += encoded
        _tick(line, encoded)
    return total


def encode_stored_bank(settings: RunSettings, folder: Path, *, num_processes: int = 1) -> Encoded:
    """Encode a bank on disk into the cache folder of the settings, with the memory that the settings name."""
    if settings.memory.cache.folder is None:
        raise ConfigError("memory.cache.folder is missing: encoded items are kept there.")
    cache = replace(settings.memory.cache, memory_limit_bytes=0)  # nothing is read from memory afterwards
    settings = replace(settings, memory=replace(settings.memory, cache=cache))
    bank, parts = open_bank(folder), _parts(settings)
    if not parts.is_latent:
        raise ConfigError(f"The memory '{settings.memory.name}' encodes nothing; choose a trained one, such as full.")
    started = time.monotonic()
    ids = [entry.trajectory_id for entry in bank.entries()]
    with Progress("encode", total=len(ids)) as line:
        if num_processes == 1:
            total = encode_bank(bank, _front(parts), ids, line=line)
        else:
            total = _share_out(settings, folder, ids, num_processes, line)
    return replace(total, seconds=time.monotonic() - started)


def episodic_record(serialise: Serialiser, stored: StoredTrajectory) -> Prompt:
    """A trajectory as the encoder reads it. The record contains neither its rank nor its score."""
    [item] = episodic_items([(stored.trajectory, 0.0)])
    return serialise(item, stored.screenshots)


def _batches(bank: SearchableBank, front: LatentFront, ids: Sequence[str]) -> Iterator[Encoded]:
    cache, largest = front.cache, 0
    for batch in in_batches(ids):
        if not _has_room(cache, largest):
            yield Encoded(num_items=len(batch), num_left_out=len(batch))
            continue
        before = cache.num_bytes
        records, failures = [], []
        for name in batch:
            try:
                records.append(episodic_record(front.serialise, bank.load(name)))
            except UserError as error:
                failures.append(Failure(name, str(error)))
        missing = [record for record in records if cache.size_of(record) is None]
        cache.fetch(missing)
        largest = max(largest, cache.num_bytes - before)
        yield Encoded(
            num_items=len(batch),
            num_encoded=len(missing),
            num_cached=len(records) - len(missing),
            num_bytes=sum(cache.size_of(record) or 0 for record in records),
            failures=tuple(failures),
        )


def _has_room(cache: EvidenceCache, num_bytes: int) -> bool:
    """Whether the cache has room for another batch of this size."""
    if cache.config.folder is None:
        return cache.num_bytes + num_bytes <= cache.config.memory_limit_bytes
    there = next(one for one in (cache.config.folder, *cache.config.folder.absolute().parents) if one.exists())
    disk = shutil.disk_usage(there)
    return disk.free - num_bytes >= disk.total * _FREE_DISK_SHARE


def _parts(settings: RunSettings) -> Parts:
    return Parts(settings, TaskSuite("bank", ()))  # only the memory of these parts is used, so there are no tasks


def _front(parts: Parts) -> LatentFront:
    front = parts.front
    assert isinstance(front, LatentFront), "the memory is latent"
    return front


def _tick(line: Progress | None, encoded: Encoded) -> None:
    if line is not None:
        line.step(encoded.num_items - len(encoded.failures))
        line.step(len(encoded.failures), failed=True)


# Several processes


def _share_out(settings: RunSettings, folder: Path, ids: Sequence[str], num: int, line: Progress) -> Encoded:
    parts = [ids[number::num] for number in range(num)]
    total = Encoded()
    with (
        _pipes(num) as (readers, writers),
        worker_processes(partial(_take_part, settings, folder, parts, writers), num) as processes,
    ):
        for writer in writers:
            writer.close()  # so that a pipe closes when its process ends
        for encoded in _received(readers):
            total += encoded
            _tick(line, encoded)
        for process in processes:
            process.join()
    num_failed = sum(process.exitcode != 0 for process in processes)
    if num_failed:
        raise FocusmemError(
            f"{num_failed} of {num} processes stopped early; their messages are above. Encoded items are kept; the "
            "same command resumes from there."
        )
    return total


def _take_part(
    settings: RunSettings,
    folder: Path,
    parts: Sequence[Sequence[str]],
    writers: Sequence[Connection],
    number: int,
) -> None:
    for place, writer in enumerate(writers):
        if place != number:
            writer.close()
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // len(parts)))
    front = _front(_parts(settings))
    for encoded in _batches(open_bank(folder), front, parts[number]):
        writers[number].send(encoded)


@contextmanager
def _pipes(num: int) -> Iterator[tuple[list[Connection], list[Connection]]]:
    pairs = [get_context("spawn").Pipe(duplex=False) for _ in range(num)]
    try:
        yield [reader for reader, _ in pairs], [writer for _, writer in pairs]
    finally:
        for pair in pairs:
            for end in pair:
                end.close()


def _received(readers: Sequence[Connection]) -> Iterator[Encoded]:
    """Yields the reports of the processes until the last one has closed its pipe."""
    left = list(readers)
    while left:
        for reader in wait(left):
            assert isinstance(reader, Connection), "only connections were given"
            try:
                yield reader.recv()
            except (EOFError, OSError):  # the process has ended, possibly while it sent a report
                left.remove(reader)
