"""The embedder turns trajectories and moments of decision into vectors that can be compared.

`Embedder` is the seam. `QwenEmbedder` reads as Qwen3-VL-Embedding does: an instruction as the system's turn, pictures
and then text as one user's turn, the opening of an answer; the vector is the last hidden state at the last token,
scaled to length one. `forms.py` says which pictures and which text are read. torch is imported when something is first
embedded, so that importing the seam is fast.

One rule shortens an input that does not fit into `max_length`. Text has precedence: it is cut, at its end, only if it
does not fit beside one screenshot, and never to less than half of the window. The rest of the window takes as many
screenshots as fit: evenly spaced ones of a trajectory, the latest ones of a moment. The last screenshot is the last one
to be dropped.
"""

import bisect
import hashlib
import json
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field

from focusmem.bank.forms import COMPLETE, FORMS, Form, FormName, Moment, action_words, named_identity
from focusmem.schemas import LeftOut, Prompt, Screenshot, StoredTrajectory, Turn
from focusmem.settings import checked_dataclass

if TYPE_CHECKING:
    from focusmem.model.backbone import Backbone
    from focusmem.model.inputs import TokenRow

Vectors = npt.NDArray[np.float32]

Chooser = Callable[[int, int], list[int]]
"""Chooses indices, given the number of items and the number of indices to choose."""

_SLACK_TOKENS = 4
_NOTHING = "NULL"  # the published embedder reads this in place of a missing input


class Identified(Protocol):
    @property
    def width(self) -> int:
        """Numbers per vector."""

    @property
    def identity(self) -> str:
        """A name that is equal for embedders whose vectors of trajectories can be compared."""


class Embedder(Identified, Protocol):
    def embed_queries(self, moments: Sequence[Moment]) -> Vectors:
        """One row for each, of length one."""

    def embed_trajectories(self, items: Sequence[StoredTrajectory]) -> Vectors:
        """One row for each, of length one."""

    def left_out_of_query(self, moment: Moment) -> LeftOut:
        """What `embed_queries` leaves out of a moment."""

    def left_out_of_trajectory(self, item: StoredTrajectory) -> LeftOut:
        """What `embed_trajectories` leaves out of a trajectory."""


@checked_dataclass(frozen=True, kw_only=True)
class EmbedderConfig:
    form: FormName = COMPLETE.name
    """The name of the form: which parts of a moment and of a trajectory are read."""
    key_instruction: str = "Represent this record of a task that was carried out on a web site."
    """The instruction that precedes a trajectory. The paper does not give it."""
    query_instruction: str = "Find records of similar tasks on the same or a similar web site."
    """The instruction that precedes a moment."""
    max_key_frames: Annotated[int, Field(ge=0, strict=True)] | None = None
    """Maximum number of screenshots of a trajectory, to save time. None uses the maximum of the form."""
    max_length: Annotated[int, Field(ge=128, strict=True)] = 16_384
    """Maximum tokens of one input. Fifteen screenshots of 1280x720 pixels with their actions need about 14,000."""
    max_batch_tokens: Annotated[int, Field(ge=1, strict=True)] = 16_384
    """Maximum tokens of inputs that run together, padding included."""
    min_pixels: Annotated[int, Field(ge=1, strict=True)] = 4_096
    """Smaller screenshots are enlarged to this area, as the published embedder does."""
    max_pixels: Annotated[int, Field(ge=1, strict=True)] = 1_843_200
    """Larger screenshots are shrunk to this area."""

    @property
    def resolved_form(self) -> Form:
        """The form, with fewer screenshots of a trajectory if `max_key_frames` asks for that."""
        form, limit = FORMS[self.form], self.max_key_frames
        return form if limit is None else replace(form, max_key_frames=min(limit, form.max_key_frames))


@dataclass(frozen=True)
class _Reading:
    """The parts of an input that the model reads."""

    text: str
    places: list[int]
    """The indices of its screenshots."""
    left_out: LeftOut


class QwenEmbedder:
    """A Qwen3-VL checkpoint as an embedder, whether or not it was trained to embed."""

    def __init__(
        self, backbone: "Backbone", config: EmbedderConfig | None = None, *, weights_name: str | None = None
    ) -> None:
        """`weights_name` replaces the digest of the weights in the identity. It is needed if the weights were computed
        from other weights: computed weights differ in their last digits between machines, but the identity should be
        the same everywhere.
        """
        from focusmem.model.backbone import Backbone

        self.config = config or EmbedderConfig()
        self.form = self.config.resolved_form
        self._weights_name = weights_name
        images = replace(backbone.images, min_pixels=self.config.min_pixels, max_pixels=self.config.max_pixels)
        # The same weights with the embedder's own picture sizes. A picture whose size suits both is looked at once.
        # Successive moments of an episode share all screenshots except one.
        self.backbone = Backbone(
            backbone.model, backbone.chat.tokenizer, images, name=backbone.name, pictures=backbone.pictures
        )

    @classmethod
    def load(cls, source: str | Path, config: EmbedderConfig | None = None, *, device: str = "cpu") -> Self:
        """A checkpoint's folder or hub id, or `toy`: the architecture with random weights, to try things out."""
        from focusmem.model.backbone import Backbone
        from focusmem.model.devices import fast_dtype, usable_device
        from focusmem.model.sizes import TOY

        found = usable_device(device)
        if str(source) == TOY:
            return cls(Backbone.toy().to(found), config)
        return cls(Backbone.load(source, dtype=fast_dtype(found), device=found, needs_head=False), config)

    @property
    def width(self) -> int:
        return self.backbone.width

    @cached_property
    def identity(self) -> str:
        """Depends on the form, the weights and the settings for trajectories. The queries' instruction may change."""
        found = self.backbone.identity()
        settings = [self.config.key_instruction, self.config.max_length]
        weights = self._weights_name or found.weights
        parts = json.dumps([asdict(self.form), found.architecture, weights, settings])
        return named_identity(self.form.name, f"last-token-{hashlib.sha256(parts.encode()).hexdigest()[:32]}")

    def embed_queries(self, moments: Sequence[Moment]) -> Vectors:
        return self._embed([self.query_prompt(moment) for moment in moments])

    def embed_trajectories(self, items: Sequence[StoredTrajectory]) -> Vectors:
        return self._embed([self.key_prompt(item) for item in items])

    def left_out_of_query(self, moment: Moment) -> LeftOut:
        return self._read_moment(moment, self._shots(moment)).left_out

    def left_out_of_trajectory(self, item: StoredTrajectory) -> LeftOut:
        return self._read_trajectory(item).left_out

    # Preparing inputs

    def key_prompt(self, item: StoredTrajectory) -> Prompt:
        reading, steps = self._read_trajectory(item), item.trajectory.steps
        frames = [item.screenshots[steps[place].screenshot.sha256] for place in reading.places]
        return _prompt(self.config.key_instruction, reading.text, frames)

    def query_prompt(self, moment: Moment) -> Prompt:
        shots = self._shots(moment)
        reading = self._read_moment(moment, shots)
        return _prompt(self.config.query_instruction, reading.text, [shots[place] for place in reading.places])

    def _read_trajectory(self, item: StoredTrajectory) -> _Reading:
        """Opens no screenshot, because the record holds their sizes."""
        record = item.trajectory
        text = _joined([record.instruction.strip(), *map(action_words, record.steps)])
        sizes = [(step.screenshot.width, step.screenshot.height) for step in record.steps]
        most = min(self.form.max_key_frames, len(sizes))
        return self._fit(self.config.key_instruction, text, sizes, most, evenly_chosen)

    def _read_moment(self, moment: Moment, shots: Sequence[Screenshot]) -> _Reading:
        events = moment.recent[max(0, len(moment.recent) - self.form.num_recent_actions) :]
        text = _joined([moment.instruction.strip(), *(event.action for event in events)])
        sizes = [(shot.width, shot.height) for shot in shots]
        return self._fit(self.config.query_instruction, text, sizes, len(sizes), latest)

    def _shots(self, moment: Moment) -> list[Screenshot]:
        """The screenshots that the form reads of a moment, the current one last."""
        events = moment.recent[max(0, len(moment.recent) - self.form.num_recent_screenshots) :]
        return [event.screenshot for event in events] + ([] if moment.screenshot is None else [moment.screenshot])

    def _fit(
        self, instruction: str, text: str, sizes: Sequence[tuple[int, int]], most: int, choose: Chooser
    ) -> _Reading:
        """The text, cut if necessary, and as many frames as fit beside it."""
        chat = self.backbone.chat
        costs = [rows * columns + 2 for rows, columns in (chat.token_grid(*size) for size in sizes)]
        reserved = min((costs[place] for place in choose(len(sizes), 1)), default=0) if most else 0
        whole, text = text, self._cut(instruction, text, self.config.max_length - reserved)
        room = self.config.max_length - self._length(instruction, text)
        chosen = (choose(len(sizes), num) for num in range(most, -1, -1))
        places = next((places for places in chosen if sum(costs[place] for place in places) <= room), [])
        left_out = LeftOut(num_frames=len(sizes) - len(places), num_characters=len(whole) - len(text))
        return _Reading(text, places, left_out)

    def _cut(self, instruction: str, text: str, room: int) -> str:
        """The longest beginning of the text that fits."""
        room = max(room, self.config.max_length // 2)  # if a frame alone is too large, the text has priority
        if self._length(instruction, text) <= room:
            return text
        # Cut by characters, not by tokens: a token may be a part of a character.
        lengths = range(len(text))
        num = bisect.bisect_right(lengths, room, key=lambda num: self._length(instruction, text[:num]))
        return text[: max(0, num - 1)]

    def _length(self, instruction: str, text: str) -> int:
        # The same text may become a few more tokens when it stands between frames.
        return len(self.backbone.tokenise(_prompt(instruction, text, [])).ids) + _SLACK_TOKENS

    def _embed(self, prompts: Sequence[Prompt]) -> Vectors:
        import torch

        from focusmem.model.inputs import stack_rows

        rows = [self.backbone.tokenise(prompt) for prompt in prompts]
        vectors_ND = np.empty((len(rows), self.width), dtype=np.float32)
        for places in _groups(rows, self.config.max_batch_tokens):
            with torch.no_grad():
                batch = stack_rows(self.backbone.embed([rows[place] for place in places]))
                hidden_BSD = self.backbone.run(batch)
            last_B = torch.tensor(batch.lengths, device=hidden_BSD.device) - 1
            pooled_BD = hidden_BSD[torch.arange(len(places), device=hidden_BSD.device), last_B].float()
            vectors_ND[places] = torch.nn.functional.normalize(pooled_BD, dim=-1).cpu().numpy()
        return vectors_ND


def evenly_chosen(total: int, num: int) -> list[int]:
    """Evenly spaced indices that include the first and the last. If only one is chosen, it is the last."""
    if num <= 1:
        return [total - 1] if num and total else []
    return [round(place * (total - 1) / (num - 1)) for place in range(num)]


def latest(total: int, num: int) -> list[int]:
    return list(range(total - num, total))


def _prompt(instruction: str, text: str, frames: Sequence[Screenshot]) -> Prompt:
    parts: tuple[str | Screenshot, ...] = (*frames, text) if text else tuple(frames)
    return Turn("system", (_punctuated(instruction),)), Turn("user", parts or (_NOTHING,))


def _punctuated(instruction: str) -> str:
    """The instruction, ended with a punctuation mark, as in the training of the published embedder."""
    instruction = instruction.strip()
    is_ended = bool(instruction) and unicodedata.category(instruction[-1]).startswith("P")
    return instruction if is_ended else f"{instruction}."


def _joined(lines: Sequence[str]) -> str:
    return "\n".join(line for line in lines if line)


def _groups(rows: Sequence["TokenRow"], max_tokens: int) -> Iterator[list[int]]:
    """Groups of row indices that run together: rows of similar length, so that there is little padding."""
    waiting = sorted(range(len(rows)), key=lambda place: len(rows[place].ids))
    while waiting:
        num = max(1, max_tokens // len(rows[waiting[-1]].ids))
        yield waiting[-num:]
        waiting = waiting[:-num]
