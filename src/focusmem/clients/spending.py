"""The cost of an endpoint's replies so far. With a folder, the total is kept between processes."""

import json
import os
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from focusmem.clients.options import Prices
from focusmem.errors import StorageError
from focusmem.files import open_plain_file

SPENDING_FILE: Final = "spending.jsonl"
_PER: Final = 1_000_000


@dataclass(frozen=True)
class Usage:
    """The server's token counts for one reply; None where it gives no count."""

    num_prompt_tokens: int | None = None
    num_reply_tokens: int | None = None
    num_cached_tokens: int = 0
    """Prompt tokens that the server had cached from an earlier prompt."""

    @classmethod
    def of(cls, counts: object) -> "Usage":
        """Reads the field `usage` of a completion.

        Some servers (Gemini's among them) leave thoughts out of `completion_tokens` and count them only in
        `total_tokens`, although they are charged like the rest of the reply.
        """
        if not isinstance(counts, Mapping):
            return cls()
        prompt, reply, total = (_count(counts.get(f"{name}_tokens")) for name in ("prompt", "completion", "total"))
        if prompt is not None and total is not None:
            reply = max(reply or 0, total - prompt)
        details = counts.get("prompt_tokens_details")
        cached = _count(details.get("cached_tokens")) if isinstance(details, Mapping) else None
        return cls(prompt, reply, min(cached or 0, prompt or 0))

    def cost_usd(self, prices: Prices | None) -> float | None:
        if prices is None or self.num_prompt_tokens is None or self.num_reply_tokens is None:
            return None
        cached_price = prices.prompt if prices.cached_prompt is None else prices.cached_prompt
        fresh = self.num_prompt_tokens - self.num_cached_tokens
        return (
            fresh * prices.prompt + self.num_cached_tokens * cached_price + self.num_reply_tokens * prices.reply
        ) / _PER


@dataclass(frozen=True)
class Spending:
    num_replies: int = 0
    """Replies that the server sent and counted, unusable ones included."""
    num_prompt_tokens: int = 0
    num_reply_tokens: int = 0
    cost_usd: float = 0.0
    num_without_cost: int = 0
    """Replies whose cost is unknown, because no prices are set or the server gave no counts."""
    num_stored: int = 0
    """Replies that were read from the store by this process, at no cost."""

    def plus(self, usage: Usage, cost_usd: float | None) -> "Spending":
        return replace(
            self,
            num_replies=self.num_replies + 1,
            num_prompt_tokens=self.num_prompt_tokens + (usage.num_prompt_tokens or 0),
            num_reply_tokens=self.num_reply_tokens + (usage.num_reply_tokens or 0),
            cost_usd=self.cost_usd + (cost_usd or 0.0),
            num_without_cost=self.num_without_cost + (cost_usd is None),
        )

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Ledger:
    """Adds up costs over threads; with a folder also over processes, one line for each reply."""

    def __init__(self, folder: Path | None) -> None:
        self._path = None if folder is None else folder / SPENDING_FILE
        self._here = Spending()
        self._lock = threading.Lock()

    def paid(self, model: str, usage: Usage, cost_usd: float | None) -> None:
        with self._lock:
            self._here = self._here.plus(usage, cost_usd)
            if self._path is not None:
                _append(self._path, {"model": model, **asdict(usage), "cost_usd": cost_usd})

    def was_stored(self) -> None:
        with self._lock:
            self._here = replace(self._here, num_stored=self._here.num_stored + 1)

    def total(self) -> Spending:
        """The total of all recorded replies, including those of other processes and before a restart."""
        with self._lock:
            if self._path is None:
                return self._here
            return replace(spent(self._path.parent), num_stored=self._here.num_stored)


def spent(folder: Path) -> Spending:
    """The total of a folder of stored replies."""
    total, path = Spending(), folder / SPENDING_FILE
    if not path.exists():
        return total
    with open_plain_file(path) as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                entry = json.loads(line)
                cost = entry.pop("cost_usd")
                del entry["model"]
                total = total.plus(Usage(**entry), cost)
            except (ValueError, TypeError, KeyError, AttributeError):
                raise StorageError(f"{path}, line {number}: this is no entry of a reply that was paid.") from None
    return total


def _append(path: Path, entry: Mapping[str, Any]) -> None:
    """Each line is written by one call, so that lines of several processes do not mix, and a killed process leaves a
    whole line or none.
    """
    line = json.dumps(entry).encode() + b"\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(handle, line)
        finally:
            os.close(handle)
    except OSError as error:
        raise StorageError(f"Could not write {path}: {error.strerror or error}.") from error


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
