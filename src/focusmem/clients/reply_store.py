"""Replies on disk, found by their request. Several processes may use one folder.

    <folder>/ab/abcdef....json    one request, with pictures by their digests, and its reply
    <folder>/spending.jsonl       one line for each paid reply

Each file is written atomically and never changed.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from focusmem.clients.base import ChatReply
from focusmem.clients.keys import Key
from focusmem.clients.question import Question
from focusmem.errors import StorageError
from focusmem.files import read_plain_file, write_whole

_MAX_BYTES: Final = 2**26
_NOT_KEPT: Final = ("is_stored",)


class ReplyStore:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._asking: dict[str, tuple[threading.Lock, int]] = {}

    def find(self, question: Question) -> ChatReply | None:
        path = self._path(question)
        if not path.exists():
            return None
        try:
            document = json.loads(read_plain_file(path, _MAX_BYTES))
            reply = document["reply"]
            return ChatReply(**{**reply, "departures": tuple(reply["departures"]), "is_stored": True, "cost_usd": 0.0})
        except (ValueError, LookupError, TypeError):
            raise StorageError(f"{path} is no stored reply; delete it, and the request is sent again.") from None

    def put(self, question: Question, reply: ChatReply, key: Key) -> None:
        """`key` is removed from the stored request, in case the prompt contains it."""
        kept = {name: value for name, value in asdict(reply).items() if name not in _NOT_KEPT}
        document: dict[str, Any] = {"request": key.removed_from_all(question.record), "reply": kept}
        write_whole(self._path(question), json.dumps(document, indent=1, ensure_ascii=True).encode())

    @contextmanager
    def alone(self, question: Question) -> Iterator[None]:
        """Lets one thread at a time ask this question, so that the others find its reply."""
        digest = question.digest
        with self._lock:
            lock, num_users = self._asking.get(digest, (threading.Lock(), 0))
            self._asking[digest] = (lock, num_users + 1)
        try:
            with lock:
                yield
        finally:
            with self._lock:
                lock, num_users = self._asking[digest]
                if num_users == 1:
                    del self._asking[digest]
                else:
                    self._asking[digest] = (lock, num_users - 1)

    def _path(self, question: Question) -> Path:
        digest = question.digest
        return self.folder / digest[:2] / f"{digest}.json"
