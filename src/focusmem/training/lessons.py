"""Lessons: the teacher's answers about an item, in memory and on disk.

A lesson is stored under the item's content, the teacher and the wording of the questions, so another policy never reads
a stale one. Each file is written whole, and the card is written last, so a lesson with a card is complete.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from safetensors import SafetensorError
from safetensors.torch import load as read_tensors
from safetensors.torch import save as write_tensors
from torch import Tensor

from focusmem.errors import RecordError, StorageError
from focusmem.files import sha256_hex, write_whole
from focusmem.schemas import Prompt, Record, dump_record, parse_record
from focusmem.schemas.record import Digest, Text, TextMap
from focusmem.training.questions import DESCRIBE, Discarded, Questions


@dataclass(frozen=True)
class Description:
    """The teacher's free description, token by token."""

    question: Prompt
    text: str
    ids: tuple[int, ...]
    """The ids as generated. They end with the end mark, unless the length limit cut the description off."""
    hidden_MD: Tensor | None
    """The frozen policy's last hidden states, before the head, from which each of the M ids is predicted. If None, they
    are computed from the raw item in the step that needs them."""


@dataclass(frozen=True)
class FunctionalPair:
    question: Prompt
    target: str


@dataclass(frozen=True)
class Lesson:
    description: Description | None
    functional: tuple[FunctionalPair, ...] = ()
    """Answers with the requested fields, and nothing else; there may be none."""


class _Card(Record):
    schema_version: Literal[3] = 3
    """Increased also when other answers count as good. The lessons are then made again."""
    item: Digest
    description: Text
    description_ids: tuple[int, ...]
    targets: TextMap
    """Usable answers, by subtype."""
    discarded: dict[Text, Discarded]
    """What was wrong with the other answers, by subtype."""
    hidden_sha256: Digest


class LessonStore:
    """The lessons of one policy, for one wording of the questions. Reading them needs no weights, so worker processes
    can do it.
    """

    def __init__(self, folder: Path, *, policy: str, questions: Questions) -> None:
        """`policy` names the teacher and everything that its answers depend on."""
        self.folder, self.questions = folder, questions
        self._context = sha256_hex(f"{policy} {questions.digest}".encode())[:32]

    def write(
        self,
        item: str,
        description: Description,
        *,
        targets: Mapping[str, str],
        discarded: Mapping[str, Discarded],
    ) -> None:
        assert description.hidden_MD is not None, "what is stored comes with its states"
        data = write_tensors({"hidden_MD": description.hidden_MD.detach().cpu().contiguous()})
        card = _Card(
            item=item,
            description=description.text,
            description_ids=description.ids,
            targets=dict(targets),
            discarded=dict(discarded),
            hidden_sha256=sha256_hex(data),
        )
        write_whole(self._path(item, "safetensors"), data)
        write_whole(self._path(item, "json"), dump_record(card))

    def read(self, item: str, *, name: str = "") -> Lesson:
        """The lesson about an item, by its digest. `name` is the item's name in the error message if there is no
        lesson.
        """
        card, hidden_MD = self._read(item, name or item[:12])
        description = Description(self.questions.ask(DESCRIBE), card.description, card.description_ids, hidden_MD)
        pairs = [FunctionalPair(self.questions.ask(subtype), text) for subtype, text in card.targets.items()]
        return Lesson(description, tuple(pairs))

    def discarded(self, item: str) -> dict[str, Discarded] | None:
        """What was wrong with discarded answers, by subtype; None if there is no complete lesson."""
        try:
            return dict(self._read(item, item[:12])[0].discarded)
        except StorageError:
            return None

    def _read(self, item: str, name: str) -> tuple[_Card, Tensor]:
        path = self._path(item, "json")
        try:
            card = parse_record(_Card, path.read_bytes(), str(path))
            data = self._path(item, "safetensors").read_bytes()
        except FileNotFoundError:
            others = any(path.parent.glob(f"{item}.*.json")) if not path.exists() else False
            why = " There is one by another policy or in other words." if others else ""
            raise StorageError(
                f"There is no lesson about the item '{name}' in {self.folder}.{why} "
                "Make the lessons first, with Teacher.prepare, the step before stage A."
            ) from None
        except OSError as error:
            raise StorageError(f"Could not read the lesson {path}: {error.strerror}.") from error
        except RecordError as error:
            raise _damaged(path, name) from error
        try:
            if sha256_hex(data) != card.hidden_sha256:
                raise _damaged(path, name)
            hidden_MD: Tensor = read_tensors(data)["hidden_MD"]
        except (SafetensorError, KeyError) as error:
            raise _damaged(path, name) from error
        return card, hidden_MD

    def _path(self, item: str, suffix: str) -> Path:
        return self.folder / item[:2] / f"{item}.{self._context}.{suffix}"


def _damaged(path: Path, name: str) -> StorageError:
    return StorageError(f"The lesson about the item '{name}' is damaged ({path}). Make it again with Teacher.prepare.")
