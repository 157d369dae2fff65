"""A cache of encoded evidence: in memory up to a limit, and on disk for later processes.

An entry is found again only under the same raw serialisation, the same weights, the same form and the same
precision, so another checkpoint can never read a stale one. A chunk of working memory that still grows is kept
separately, in memory only, with the encoder's state. When such a chunk grows, only its new event is encoded.
"""

import hashlib
import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from pydantic import NonNegativeInt, PositiveInt
from safetensors import SafetensorError
from safetensors.torch import load as read_tensors
from safetensors.torch import save as write_tensors
from torch import Tensor

from focusmem.errors import StorageError
from focusmem.files import write_whole
from focusmem.model.compressor import Features, KeysValues
from focusmem.model.encoded import EncodedItems
from focusmem.model.growing_chunk import Chunk, GrowingChunks, Growth, ReadTurns, grow
from focusmem.model.inputs import alike_in_length
from focusmem.model.policy import EvidenceForm, MemoryPolicy
from focusmem.schemas import Prompt
from focusmem.settings import checked_dataclass

Precision = Literal["exact", "bfloat16", "int8"]

_log = logging.getLogger(__name__)
_INT8_MAX = 127
_SCHEMA_VERSION = 2


@checked_dataclass(frozen=True, kw_only=True)
class CacheConfig:
    form: EvidenceForm = "keys_values"
    """Keys and values (fastest), or the features before them (half the bytes)."""
    precision: Precision = "exact"
    """Exact, rounded to bfloat16, or 8 bits per number with one scale per token and head."""
    memory_limit_bytes: NonNegativeInt = 4 * 2**30
    """Above this size the least recently used entries leave memory; they stay on disk."""
    growing_limit_bytes: NonNegativeInt = 8 * 2**30
    """Above this size the least recently used growing chunks leave memory; the next use encodes them whole."""
    folder: Path | None = None
    """The folder for entries on disk; None keeps them in memory only."""
    max_batch_tokens: PositiveInt = 16_384
    """Missing items are encoded together up to this many tokens, padding included."""


@dataclass
class CacheCounts:
    """Counts of the cache's operations so far."""

    num_memory_hits: int = 0
    num_disk_hits: int = 0
    num_encoded: int = 0
    """Items that were encoded whole."""
    num_extended: int = 0
    """Chunks of which only new events were encoded."""
    num_encoded_tokens: int = 0
    """Tokens that the encoder read."""
    num_evicted: int = 0
    num_corrupt: int = 0
    """Files with a wrong checksum; each was deleted and its item was encoded again."""


class EvidenceCache:
    """Encodes an item when it is first requested, and returns the kept entry afterwards."""

    def __init__(self, policy: MemoryPolicy, config: CacheConfig | None = None) -> None:
        self.policy, self.config = policy, config or CacheConfig()
        self.counts = CacheCounts()
        self.num_bytes = 0
        self._entries: OrderedDict[tuple[str, str], dict[str, Tensor]] = OrderedDict()
        self._unwritten: set[tuple[str, str]] = set()
        self._growing = GrowingChunks(self.config.growing_limit_bytes)
        self._lock = threading.RLock()

    def fetch(self, prompts: Sequence[Prompt], *, chunks: Sequence[Chunk | None] = ()) -> list[EncodedItems]:
        """One encoded item per raw serialisation, in order.

        `chunks` says for each item whether it is a chunk of working memory. The last turn of such an item is its
        closing, which may differ from step to step. If a chunk continues the chunk that its episode fetched before,
        only the new turns are encoded.
        """
        if self.policy.training:
            raise RuntimeError("kept evidence must not depend on dropout; call policy.eval() before using the cache")
        with self._lock:
            return self._fetch(prompts, chunks or [None] * len(prompts))

    def _fetch(self, prompts: Sequence[Prompt], chunks: Sequence[Chunk | None]) -> list[EncodedItems]:
        digests, context = [prompt_digest(prompt) for prompt in prompts], self._context()
        # Held here as well, so that an item that is evicted meanwhile is still returned.
        found: dict[str, dict[str, Tensor]] = {}
        missing: dict[str, Prompt] = {}
        owners: dict[str, list[Chunk]] = {}
        for digest, prompt, chunk in zip(digests, prompts, chunks, strict=True):
            if chunk is not None:
                owners.setdefault(digest, []).append(chunk)
            if digest in found or digest in missing:
                continue
            entry = self._known(digest, context, chunk)
            if entry is None:
                missing[digest] = prompt
            else:
                found[digest] = entry
        failure: StorageError | None = None
        for digest, entry in self._new(missing, owners, context):
            found[digest] = entry
            if all(chunk.is_full for chunk in owners.get(digest, ())):
                self._keep(digest, context, entry)
                failure = self._to_disk(digest, context, entry) or failure
        for digest, entry in found.items():
            if (digest, context) in self._unwritten and digest not in missing:
                failure = self._to_disk(digest, context, entry) or failure
        if failure is not None:  # raised last, so that a full disk loses no encoded item
            raise failure
        return [self._restored(found[digest]) for digest in digests]

    @property
    def num_growing_bytes(self) -> int:
        """The size of growing chunks, including the encoder's state."""
        return self._growing.num_bytes

    def forget_episode(self, episode_id: str) -> None:
        """Frees the chunk that grew with an episode. Does not wait for a `fetch` that is under way."""
        self._growing.forget(episode_id)

    def size_of(self, prompt: Prompt) -> int | None:
        """The bytes of an item's entry on disk, or in memory if it is not on disk; None if it is not kept.

        The file is not read, so a damaged file counts too.
        """
        digest, context = prompt_digest(prompt), self._context()
        path = self._path(digest, context)
        with self._lock:
            if path is not None and path.is_file():
                return path.stat().st_size
            entry = self._entries.get((digest, context))
            return None if entry is None else _size(entry)

    def forget(self, prompt: Prompt) -> None:
        """Remove an item from memory and from disk, for every checkpoint, form and precision."""
        digest = prompt_digest(prompt)
        with self._lock:
            for key in [key for key in self._entries if key[0] == digest]:
                self.num_bytes -= _size(self._entries.pop(key))
                self._unwritten.discard(key)
        if self.config.folder is not None:
            forget_on_disk(self.config.folder, prompt)

    def _known(self, digest: str, context: str, chunk: Chunk | None) -> dict[str, Tensor] | None:
        if chunk is not None and not chunk.is_full:
            entry = self._growing.entry(chunk.episode_id, (digest, context))
            self.counts.num_memory_hits += entry is not None
            return entry
        return self._from_memory(digest, context) or self._from_disk(digest, context)

    # Memory

    def _from_memory(self, digest: str, context: str) -> dict[str, Tensor] | None:
        entry = self._entries.get((digest, context))
        if entry is not None:
            self._entries.move_to_end((digest, context))
            self.counts.num_memory_hits += 1
        return entry

    def _keep(self, digest: str, context: str, entry: dict[str, Tensor]) -> None:
        self._entries[digest, context] = entry
        self.num_bytes += _size(entry)
        while self.num_bytes > self.config.memory_limit_bytes:
            key, evicted = self._entries.popitem(last=False)
            self._unwritten.discard(key)
            self.num_bytes -= _size(evicted)
            self.counts.num_evicted += 1

    # Disk

    def _from_disk(self, digest: str, context: str) -> dict[str, Tensor] | None:
        path = self._path(digest, context)
        if path is None:
            return None
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError(f"Could not read the cache entry {path}: {error.strerror}.") from error
        tensors = _checked(data)
        if tensors is None or not self._part_names() <= set(tensors):
            _log.warning("cache entry %s is damaged; its item is encoded again", path)
            self.counts.num_corrupt += 1
            path.unlink(missing_ok=True)
            return None
        self.counts.num_disk_hits += 1
        entry = {name: tensor.to(self.policy.backbone.device) for name, tensor in tensors.items()}
        self._keep(digest, context, entry)
        return entry

    def _to_disk(self, digest: str, context: str, entry: dict[str, Tensor]) -> StorageError | None:
        """Write an entry. An error is returned, not raised; writing is tried again when the item is next requested."""
        path = self._path(digest, context)
        if path is None:
            return None
        try:
            write_whole(path, _sealed(entry))
        except StorageError as error:
            if (digest, context) in self._entries:
                self._unwritten.add((digest, context))
            return error
        self._unwritten.discard((digest, context))
        return None

    def _part_names(self) -> set[str]:
        parts = {"features"} if self.config.form == "features" else {"keys", "values"}
        scales = {f"{part}_scale" for part in parts} if self.config.precision == "int8" else set()
        return {"summary", "looks", *parts, *scales}

    def _path(self, digest: str, context: str) -> Path | None:
        folder = self.config.folder
        return None if folder is None else folder / digest[:2] / f"{digest}.{context}.safetensors"

    def _context(self) -> str:
        """A digest of everything that an entry depends on besides its item."""
        parts = f"{_SCHEMA_VERSION} {self.policy.fingerprint()} {self.config.form} {self.config.precision}"
        return hashlib.sha256(parts.encode()).hexdigest()[:32]

    # Encoding and the kept form

    def _new(
        self, missing: dict[str, Prompt], owners: dict[str, list[Chunk]], context: str
    ) -> Iterator[tuple[str, dict[str, Tensor]]]:
        """The entries of missing items. A chunk that continues, or may grow later, is read with the encoder's state."""
        growths: dict[str, Growth] = {}
        begun: dict[str, dict[str, Tensor]] = {}
        for digest, prompt in missing.items():
            chunks = owners.get(digest, ())
            known = [self._growing.before(chunk.episode_id, prompt, context) for chunk in chunks]
            before = next((one for one in known if one is not None), None)
            if before is not None:
                growths[digest] = Growth.of(self.policy, prompt, before[0])
                begun[digest] = before[1]
            elif any(not chunk.is_full for chunk in chunks):
                growths[digest] = Growth.of(self.policy, prompt)
        yield from self._encode({digest: prompt for digest, prompt in missing.items() if digest not in growths})
        for digest, entry, read in self._grow(growths, begun):
            if all(chunk.is_full for chunk in owners[digest]):
                for chunk in owners[digest]:
                    self._growing.forget(chunk.episode_id)
            else:
                self._growing.keep([chunk.episode_id for chunk in owners[digest]], (digest, context), entry, read)
            yield digest, entry

    @torch.no_grad()
    def _encode(self, missing: dict[str, Prompt]) -> Iterator[tuple[str, dict[str, Tensor]]]:
        backbone = self.policy.encoder.backbone
        rows = {digest: backbone.tokenise(prompt, is_complete=True) for digest, prompt in missing.items()}
        for together in self._groups({digest: len(row.ids) for digest, row in rows.items()}):
            embedded = backbone.embed([rows[digest] for digest in together])
            with torch.autocast(backbone.device.type, enabled=False):
                group = self.policy.encode_rows(embedded, form=self.config.form)
            self.counts.num_encoded += len(together)
            self.counts.num_encoded_tokens += sum(row.length for row in embedded)
            for digest, item in zip(together, group.split([row.length for row in embedded]), strict=True):
                yield digest, self._kept_form(item)

    def _grow(
        self, growths: dict[str, Growth], begun: dict[str, dict[str, Tensor]]
    ) -> Iterator[tuple[str, dict[str, Tensor], ReadTurns]]:
        """`begun` holds the entries of chunks whose earlier events were encoded before."""
        for together in self._groups({digest: len(growth.tokens.ids) for digest, growth in growths.items()}):
            grown = grow(self.policy, [growths[digest] for digest in together], form=self.config.form)
            for digest, (item, read) in zip(together, grown, strict=True):
                growth, entry = growths[digest], self._kept_form(item)
                self.counts.num_encoded += digest not in begun
                self.counts.num_extended += digest in begun
                self.counts.num_encoded_tokens += len(growth.tokens.ids)
                if digest in begun:
                    entry |= self._lengthened(begun[digest], growth.before.front.length, entry)
                yield digest, entry, read

    def _groups(self, lengths: dict[str, int]) -> list[list[str]]:
        """Items that are encoded together, of similar length, the longest first."""
        digests, limit = list(lengths), self.config.max_batch_tokens
        padding = self.policy.encoder.backbone.max_padding
        groups = alike_in_length(list(lengths.values()), max_tokens=limit, max_padding=padding)
        return [[digests[number] for number in group] for group in groups]

    def _lengthened(self, old: dict[str, Tensor], num_kept: int, new: dict[str, Tensor]) -> dict[str, Tensor]:
        """Joins the kept tokens of each part of an entry with the new tokens, which replace the old closing. Tokens are
        the second-to-last axis of every part.
        """
        names = self._part_names() - {"summary", "looks"}
        return {name: torch.cat([old[name][..., :num_kept, :], new[name]], dim=-2) for name in sorted(names)}

    def _kept_form(self, item: EncodedItems) -> dict[str, Tensor]:
        evidence = item.evidence
        if isinstance(evidence, KeysValues):
            parts = {"keys": evidence.keys_NATX, "values": evidence.values_NATX}
        else:
            assert isinstance(evidence, Features), "freshly encoded items are not shared"
            parts = {"features": evidence.features_NTH}
        entry = {"summary": item.summary_NE, "looks": item.looks_NE}
        for name, tensor in parts.items():
            if self.config.precision == "int8":
                entry[name], entry[f"{name}_scale"] = quantise(tensor)
            else:
                wanted = torch.bfloat16 if self.config.precision == "bfloat16" else tensor.dtype
                entry[name] = tensor.to(wanted)
        return entry

    def _restored(self, entry: dict[str, Tensor]) -> EncodedItems:
        dtype = self.policy.compressor.w_key.weight.dtype

        def part(name: str) -> Tensor:
            scale = entry.get(f"{name}_scale")
            return entry[name].to(dtype) if scale is None else dequantise(entry[name], scale, dtype)

        if self.config.form == "features":
            return EncodedItems(Features(part("features"), None), entry["summary"], entry["looks"])
        return EncodedItems(KeysValues(part("keys"), part("values"), None), entry["summary"], entry["looks"])


def forget_on_disk(folder: Path, prompt: Prompt) -> None:
    """Remove an item's files from a cache folder, for every checkpoint, form and precision; needs no model."""
    digest = prompt_digest(prompt)
    for path in (folder / digest[:2]).glob(f"{digest}.*.safetensors"):
        path.unlink(missing_ok=True)


def prompt_digest(prompt: Prompt) -> str:
    """A digest of everything in a serialisation that the encoder reads."""
    digest = hashlib.sha256()
    for turn in prompt:
        parts = [["text", part] if isinstance(part, str) else ["picture", part.digest] for part in turn.parts]
        digest.update(json.dumps([turn.role, parts]).encode())
    return digest.hexdigest()


def quantise(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """8-bit numbers, and the scale of each vector along the last axis that restores them."""
    scale = tensor.float().abs().amax(dim=-1, keepdim=True).clamp(min=1e-12) / _INT8_MAX
    return (tensor.float() / scale).round().to(torch.int8), scale


def dequantise(numbers: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    return (numbers.float() * scale).to(dtype)


def _size(entry: dict[str, Tensor]) -> int:
    return sum(tensor.nbytes for tensor in entry.values())


def _sealed(entry: dict[str, Tensor]) -> bytes:
    """A safetensors file that carries the checksum of its own contents."""
    tensors = {name: tensor.cpu().contiguous() for name, tensor in entry.items()}
    checksum = _checksum(write_tensors(tensors))
    sealed: bytes = write_tensors(tensors, metadata={"sha256": checksum})
    return sealed


def _checked(data: bytes) -> dict[str, Tensor] | None:
    """Reads the tensors of a file. Returns None if the file is damaged."""
    try:
        header, _ = _parts(data)
        if header["__metadata__"]["sha256"] != _checksum(data):
            return None
        return dict(read_tensors(data))
    except (SafetensorError, ValueError, KeyError, TypeError):
        return None


def _checksum(data: bytes) -> str:
    header, payload = _parts(data)
    header.pop("__metadata__", None)
    return hashlib.sha256(json.dumps(header, sort_keys=True).encode() + payload).hexdigest()


def _parts(data: bytes) -> tuple[dict[str, dict[str, str]], bytes]:
    """Splits a safetensors file, which holds the length of its JSON header, the header, and the numbers."""
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    if not isinstance(header, dict):
        raise TypeError("the header is not an object")
    return header, data[start:]
