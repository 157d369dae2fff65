"""Prompts as token ids in the model's chat layout."""

import copy
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Tokenizer

from focusmem.errors import BackboneError, ConfigError
from focusmem.model.images import ImageConfig, fitted_size
from focusmem.model.inputs import PARTS, PackedRows, TokenRow, text_and_image_positions
from focusmem.schemas import Instruction, Prompt, Screenshot, Turn

SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)


class ChatTokenizer:
    """Turns text into tokens. Acting, training and evidence all use this class."""

    def __init__(self, tokenizer: Tokenizer, images: ImageConfig, *, name: str = "this model") -> None:
        self.tokenizer = copy.deepcopy(tokenizer)
        # Text is never searched for special tokens: a page that says <|im_end|> must not end a turn.
        self.tokenizer.encode_special_tokens = True
        self.images, self.name = images, name
        self.special = {token: self._special_id(token) for token in SPECIAL_TOKENS}
        self.stop_ids = frozenset({self.special["<|im_end|>"], self.special["<|endoftext|>"]})

    def tokenise(self, prompt: Prompt, *, reply: str | None = None, is_complete: bool = False) -> TokenRow:
        """A prompt followed by the opening of its answer.

        With `reply` the answer follows as the target. With `is_complete` no opening follows: the prompt is only read,
        not answered.
        """
        if not prompt:
            raise ConfigError("A prompt needs at least one turn.")
        ids: list[int] = []
        instruction: list[int] = []
        for turn in prompt:
            own, marked = self._turn(turn)
            instruction += [len(ids) + place for place in marked]
            ids += own
        if not is_complete:
            ids += self.opening_ids("assistant")
        target = [] if reply is None else [*self.encode(reply), self.special["<|im_end|>"]]
        pictures = tuple(part for turn in prompt for part in turn.parts if isinstance(part, Screenshot))
        return TokenRow(tuple(ids + target), pictures, num_target=len(target), instruction=tuple(instruction))

    def turn_ids(self, turn: Turn) -> list[int]:
        """One turn, from its opening to the line break after its end."""
        return self._turn(turn)[0]

    def _turn(self, turn: Turn) -> tuple[list[int], list[int]]:
        """The ids of a turn, and the positions of the instruction's ids."""
        ids, marked = [self.special["<|im_start|>"]], list[int]()
        text, spans = f"{turn.role}\n", list[tuple[int, int]]()

        def add_text() -> None:
            own, places = self._encode_marked(text, spans)
            marked.extend(len(ids) + place for place in places)
            ids.extend(own)

        for part in turn.parts:
            if isinstance(part, str):
                spans += [(len(text), len(text) + len(part))] if isinstance(part, Instruction) else []
                text += part
                continue
            add_text()
            ids.extend(self._picture_ids(part))
            text, spans = "", []
        add_text()
        return [*ids, self.special["<|im_end|>"], *self.encode("\n")], marked

    def opening_ids(self, role: str) -> list[int]:
        return [self.special["<|im_start|>"], *self.encode(f"{role}\n")]

    def pack(self, rows: Sequence[TokenRow]) -> PackedRows:
        """Lays rows end to end as one batch, with everything that embedding needs besides weights."""
        image_token = self.special["<|image_pad|>"]
        grids = [[self.token_grid(picture.width, picture.height) for picture in row.pictures] for row in rows]
        placed = [text_and_image_positions(row.ids, image_token, own) for row, own in zip(rows, grids, strict=True)]
        ids_T = torch.tensor([token for row in rows for token in row.ids], dtype=torch.int64)
        parts = [_parts(row, image_token, own) for row, own in zip(rows, grids, strict=True)]
        no_positions = torch.zeros(3, 0, dtype=torch.int64)
        return PackedRows(
            ids_T=ids_T,
            positions_3T=torch.cat([no_positions, *(positions_3S for positions_3S, _ in placed)], dim=1),
            visual_V=(ids_T == image_token).nonzero().squeeze(1),
            lengths=tuple(len(row.ids) for row in rows),
            num_visual=tuple(sum(height * width for height, width in own) for own in grids),
            next_positions=tuple(next_position for _, next_position in placed),
            target_ids=tuple(row.ids[len(row.ids) - row.num_target :] for row in rows),
            pictures=tuple(row.pictures for row in rows),
            parts_T=torch.from_numpy(np.concatenate([np.zeros(0, dtype=np.int64), *(part for part, _ in parts)])),
            part_counts=tuple(counts for _, counts in parts),
        )

    def encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids) if text else []

    def _encode_marked(self, text: str, spans: Sequence[tuple[int, int]]) -> tuple[list[int], list[int]]:
        """The ids of a text, and the positions of the ids that contain a character of one of the spans."""
        if not text or not spans:
            return self.encode(text), []
        encoded = self.tokenizer.encode(text, add_special_tokens=False)
        places = [
            place
            for place, (start, end) in enumerate(encoded.offsets)
            if any(start < last and end > first for first, last in spans)
        ]
        return list(encoded.ids), places

    def text_of(self, ids: Sequence[int]) -> str:
        """The text of generated ids, without special tokens."""
        return self.tokenizer.decode(list(ids), skip_special_tokens=True)

    def token_grid(self, width: int, height: int) -> tuple[int, int]:
        """Rows and columns of visual tokens for a picture of this size."""
        fitted_h, fitted_w = fitted_size(height, width, self.images)
        return fitted_h // self.images.pixels_per_token, fitted_w // self.images.pixels_per_token

    def _picture_ids(self, picture: Screenshot) -> list[int]:
        rows, columns = self.token_grid(picture.width, picture.height)
        pads = [self.special["<|image_pad|>"]] * (rows * columns)
        return [self.special["<|vision_start|>"], *pads, self.special["<|vision_end|>"]]

    def _special_id(self, token: str) -> int:
        index = self.tokenizer.token_to_id(token)
        if index is None:
            raise BackboneError(f"The tokenizer of '{self.name}' has no {token}: it is not a Qwen3-VL tokenizer.")
        return int(index)


def _parts(
    row: TokenRow, image_token: int, grids: Sequence[tuple[int, int]]
) -> tuple[npt.NDArray[np.int64], tuple[int, ...]]:
    """The part of the context to which each id belongs, as an index into `PARTS`, and the number of ids of each part.
    Ids of earlier screenshots and of the reply belong to no part; their index is the number of parts.
    """
    instruction, screenshot, text, none = range(len(PARTS) + 1)
    visual = np.flatnonzero(np.asarray(row.ids) == image_token)
    parts = np.full(len(row.ids), text)
    parts[visual] = none
    if grids:
        parts[visual[-grids[-1][0] * grids[-1][1] :]] = screenshot
    parts[list(row.instruction)] = instruction
    parts[len(row.ids) - row.num_target :] = none
    return parts, tuple(np.bincount(parts, minlength=none + 1)[:none].tolist())
