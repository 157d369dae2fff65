"""The embedder turns trajectories and moments of decision into vectors that can be compared.

`Embedder` is the seam. `QwenEmbedder` reads as Qwen3-VL-Embedding does: an instruction as the system's turn, pictures
and then text as one user's turn, the opening of an answer; the vector is the last hidden state at the last token,
scaled to length one. torch is imported when something is first embedded, so that importing the seam is fast.
"""

import bisect
import hashlib
import json
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Protocol, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field

from focusmem.schemas import Prompt, Screenshot, Step, StoredTrajectory, Task, Trajectory, Turn, action_to_json
from focusmem.schemas.action import AnyAction
from focusmem.settings import checked_dataclass

if TYPE_CHECKING:
    from focusmem.model.backbone import Backbone
    from focusmem.model.inputs import TokenRow

Vectors = npt.NDArray[np.float32]

TextPart = Literal["instruction", "site", "actions"]
"""A part of an embedded text; the config lists the parts in order."""

Chooser = Callable[[int, int], list[int]]
"""Chooses indices, given the number of items and the number that is wanted."""

_SLACK_TOKENS = 4
_LAYOUT_VERSION = 1  # increased when the same trajectory would be read differently
_NOTHING = "NULL"  # the published embedder reads this in place of a missing input


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The contents of a query: the task, the current and earlier screenshots, and the actions so far."""

    instruction: str = ""
    site: str = ""
    screenshots: tuple[Screenshot, ...] = ()
    """In order; the current one is the last."""
    actions: tuple[AnyAction, ...] = ()
    """In order; the latest is the last."""

    @classmethod
    def of(
        cls, record: Task | Trajectory, steps: Sequence[Step], screenshots: Mapping[str, Screenshot], now: Screenshot
    ) -> Self:
        """The moment after these steps of a task, with the present screenshot and the one before it."""
        before = [screenshots[step.screenshot.sha256] for step in steps[-1:]]
        actions = tuple(step.action for step in steps if step.action is not None)
        return cls(instruction=record.instruction, site=record.site, screenshots=(*before, now), actions=actions)


class Identified(Protocol):
    @property
    def width(self) -> int:
        """Numbers per vector."""

    @property
    def identity(self) -> str:
        """Equal for embedders whose vectors of trajectories can be compared."""


class Embedder(Identified, Protocol):
    def embed_queries(self, moments: Sequence[Moment]) -> Vectors:
        """One row for each, of length one."""

    def embed_trajectories(self, items: Sequence[StoredTrajectory]) -> Vectors:
        """One row for each, of length one."""


@checked_dataclass(frozen=True, kw_only=True)
class EmbedderConfig:
    key_instruction: str = "Represent this record of a task that was carried out on a web site."
    """The instruction that precedes a trajectory. The paper does not give it."""
    query_instruction: str = "Find records of similar tasks on the same or a similar web site."
    """The instruction that precedes a moment."""
    key_parts: tuple[TextPart, ...] = ("instruction", "site")
    """The parts of a trajectory's text."""
    query_parts: tuple[TextPart, ...] = ("instruction", "site")
    """The parts of a moment's text."""
    max_key_frames: Annotated[int, Field(ge=0, strict=True)] | None = None
    """Maximum number of screenshots of a trajectory, evenly spaced; None takes as many as fit."""
    num_query_frames: Annotated[int, Field(ge=0, strict=True)] = 1
    """Number of latest screenshots of a moment."""
    max_length: Annotated[int, Field(ge=128, strict=True)] = 8_192
    """Maximum tokens of one input. If it is longer, screenshots are left out first, then text is cut."""
    max_batch_tokens: Annotated[int, Field(ge=1, strict=True)] = 16_384
    """Maximum tokens of inputs that run together, padding included."""
    min_pixels: Annotated[int, Field(ge=1, strict=True)] = 4_096
    """Smaller screenshots are enlarged to this area, as the published embedder does."""
    max_pixels: Annotated[int, Field(ge=1, strict=True)] = 1_843_200
    """Larger screenshots are shrunk to this area."""


@dataclass
class EmbedderCounts:
    """Counts of what the embedder has read so far."""

    num_inputs: int = 0
    num_frames: int = 0
    """Screenshots in all inputs."""
    num_frames_used: int = 0
    num_texts_cut: int = 0


class QwenEmbedder:
    """A Qwen3-VL checkpoint as an embedder, whether or not it was trained to embed."""

    def __init__(
        self, backbone: "Backbone", config: EmbedderConfig | None = None, *, weights_name: str | None = None
    ) -> None:
        """`weights_name` replaces the digest of the weights if they were computed from others: such sums differ in
        their last digits between machines, and the embedder should have one identity on all of them.
        """
        from focusmem.model.backbone import Backbone

        self.config = config or EmbedderConfig()
        self._weights_name = weights_name
        images = replace(backbone.images, min_pixels=self.config.min_pixels, max_pixels=self.config.max_pixels)
        # The same weights with the embedder's own picture sizes. A picture that fits both is looked at once.
        self.backbone = Backbone(
            backbone.model, backbone.chat.tokenizer, images, name=backbone.name, pictures=backbone.pictures
        )
        self.counts = EmbedderCounts()

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
        """Depends on the weights and on the settings for trajectories. Settings for queries may change at any time."""
        found = self.backbone.identity()
        names = ("key_instruction", "key_parts", "max_key_frames", "max_length")
        settings = {name: value for name, value in asdict(self.config).items() if name in names}
        weights = self._weights_name or found.weights
        parts = json.dumps([_LAYOUT_VERSION, found.architecture, weights, settings])
        return f"last-token-{hashlib.sha256(parts.encode()).hexdigest()[:32]}"

    def embed_queries(self, moments: Sequence[Moment]) -> Vectors:
        return self._embed([self.query_prompt(moment) for moment in moments])

    def embed_trajectories(self, items: Sequence[StoredTrajectory]) -> Vectors:
        return self._embed([self.key_prompt(item) for item in items])

    # Preparing inputs

    def key_prompt(self, item: StoredTrajectory) -> Prompt:
        steps = item.trajectory.steps
        text = _text(
            self.config.key_parts,
            instruction=item.trajectory.instruction,
            site=item.trajectory.site,
            actions=[step.action for step in steps if step.action is not None],
        )
        sizes = [(step.screenshot.width, step.screenshot.height) for step in steps]
        limit = self.config.max_key_frames
        most = len(steps) if limit is None else min(limit, len(steps))
        text, places = self._fit(self.config.key_instruction, text, sizes, most, evenly_chosen)
        frames = [item.screenshots[steps[place].screenshot.sha256] for place in places]
        return _prompt(self.config.key_instruction, text, frames)

    def query_prompt(self, moment: Moment) -> Prompt:
        text = _text(
            self.config.query_parts, instruction=moment.instruction, site=moment.site, actions=list(moment.actions)
        )
        shots = moment.screenshots
        sizes = [(shot.width, shot.height) for shot in shots]
        most = min(self.config.num_query_frames, len(shots))
        text, places = self._fit(self.config.query_instruction, text, sizes, most, latest)
        return _prompt(self.config.query_instruction, text, [shots[place] for place in places])

    def _fit(
        self, instruction: str, text: str, sizes: Sequence[tuple[int, int]], most: int, choose: Chooser
    ) -> tuple[str, list[int]]:
        """The text, and the indices of as many frames as fit beside it."""
        chat = self.backbone.chat
        costs = [rows * columns + 2 for rows, columns in (chat.token_grid(*size) for size in sizes)]
        reserved = min((costs[place] for place in choose(len(sizes), 1)), default=0) if most else 0
        whole, text = text, self._cut(instruction, text, self.config.max_length - reserved)
        room = self.config.max_length - self._length(instruction, text)
        chosen = (choose(len(sizes), num) for num in range(most, -1, -1))
        places = next((places for places in chosen if sum(costs[place] for place in places) <= room), [])
        self.counts.num_inputs += 1
        self.counts.num_frames += len(sizes)
        self.counts.num_frames_used += len(places)
        self.counts.num_texts_cut += text != whole
        return text, places

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
    """Evenly spaced indices, the first and the last included; a single one is the last."""
    if num <= 1:
        return [total - 1] if num and total else []
    return [round(place * (total - 1) / (num - 1)) for place in range(num)]


def latest(total: int, num: int) -> list[int]:
    return list(range(total - num, total))


def _prompt(instruction: str, text: str, frames: Sequence[Screenshot]) -> Prompt:
    parts: tuple[str | Screenshot, ...] = (*frames, text) if text else tuple(frames)
    return Turn("system", (_punctuated(instruction),)), Turn("user", parts or (_NOTHING,))


def _punctuated(instruction: str) -> str:
    """As the published embedder was trained: an instruction ends with a punctuation mark."""
    instruction = instruction.strip()
    is_ended = bool(instruction) and unicodedata.category(instruction[-1]).startswith("P")
    return instruction if is_ended else f"{instruction}."


def _text(parts: Sequence[TextPart], *, instruction: str, site: str, actions: Sequence[AnyAction]) -> str:
    values = {
        "instruction": instruction.strip(),
        "site": f"Site: {site.strip()}" if site.strip() else "",
        "actions": "\n".join(action_to_json(action) for action in actions),
    }
    return "\n".join(values[part] for part in parts if values[part])


def _groups(rows: Sequence["TokenRow"], max_tokens: int) -> Iterator[list[int]]:
    """Groups of row indices that run together: rows of similar length, so that there is little padding."""
    waiting = sorted(range(len(rows)), key=lambda place: len(rows[place].ids))
    while waiting:
        num = max(1, max_tokens // len(rows[waiting[-1]].ids))
        yield waiting[-num:]
        waiting = waiting[:-num]
