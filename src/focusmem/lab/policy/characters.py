"""The position of each letter in a view, as a target for the vision tower.

A view is a grid of visual tokens of 32 by 32 pixels. Each is cut into slots of 4 by 8 pixels, small enough that two
letters rarely share one; a slot holds the letter whose middle falls into it. In pretraining the tower must predict the
letters of each token from that token's vector alone. The vectors then contain the letters, and the language model only
has to learn where to look. Without this, the training time did not suffice to learn to see.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from focusmem.lab.world.scene import (
    FIELD_FONT,
    FIELD_PADDING,
    FIELD_TEXT,
    VIEW_HEIGHT,
    VIEW_WIDTH,
    Control,
    Font,
    Rectangle,
    Scene,
    Word,
    loaded_font,
)

TOKEN_PIXELS = 32
SLOT_WIDTH, SLOT_HEIGHT = 4, 8
NUM_SLOTS = (TOKEN_PIXELS // SLOT_WIDTH) * (TOKEN_PIXELS // SLOT_HEIGHT)
NUM_LETTERS = 96
"""Number of classes: no letter, then the printable ASCII characters in order."""

_ROWS, _COLUMNS = VIEW_HEIGHT // SLOT_HEIGHT, VIEW_WIDTH // SLOT_WIDTH
_FIRST = 32


def letters_in_view(scene: Scene, scroll: int, typed: Mapping[str, str] | None = None) -> npt.NDArray[np.uint8]:
    """For each visual token in reading order, the letter in each of its slots, (tokens, slots).

    `typed` holds the texts of fields by field name. Of a long text the end is shown, as during typing.
    """
    slots = np.zeros((_ROWS, _COLUMNS), dtype=np.uint8)
    words: list[Word] = []
    for item in scene.drawn:
        if isinstance(item, Word):
            if -item.font.size < item.top - scroll < VIEW_HEIGHT:
                words.append(item)
        elif isinstance(item, Rectangle) and item.box.height > 2:  # thinner ones underline words
            _write(slots, words, scroll)
            words.clear()
            box = item.box
            top, bottom = (max(0, edge - scroll) // SLOT_HEIGHT for edge in (box.top, box.bottom))
            slots[top:bottom, max(0, box.left) // SLOT_WIDTH : box.right // SLOT_WIDTH] = 0
    words += [word for field in scene.controls for word in _typed(field, (typed or {}).get(field.name, ""))]
    _write(slots, words, scroll)
    per_row, per_column = TOKEN_PIXELS // SLOT_HEIGHT, TOKEN_PIXELS // SLOT_WIDTH
    tokens = slots.reshape(_ROWS // per_row, per_row, _COLUMNS // per_column, per_column).transpose(0, 2, 1, 3)
    return tokens.reshape(-1, NUM_SLOTS)


def _typed(field: Control, text: str) -> list[Word]:
    """A field's text as words; if it is too long, the first words are left out."""
    if field.kind != "field":
        return []
    right = field.box.left + FIELD_PADDING + min(FIELD_FONT.width(text), field.box.width - 2 * FIELD_PADDING)
    top = field.box.top + FIELD_FONT.baseline_in(field.box.height) - FIELD_FONT.baseline
    words = []
    for number, part in enumerate(text.split(" ")):
        left = right - FIELD_FONT.width(" ".join(text.split(" ")[number:]))
        if part and left >= field.box.left:
            words.append(Word(left, top, part, FIELD_FONT, FIELD_TEXT))
    return words


def _write(slots: npt.NDArray[np.uint8], words: Sequence[Word], scroll: int) -> None:
    if not words:
        return
    lettered = [_letters(word.text, word.font) for word in words]
    sizes = [len(codes) for codes, _ in lettered]
    tops = [(word.top - scroll + word.font.baseline - word.font.size // 3) // SLOT_HEIGHT for word in words]
    rows = np.repeat(tops, sizes)
    middles = np.concatenate([middles for _, middles in lettered]) + np.repeat([word.left for word in words], sizes)
    columns = middles // SLOT_WIDTH
    is_inside = (rows >= 0) & (rows < _ROWS) & (columns >= 0) & (columns < _COLUMNS)
    codes = np.concatenate([codes for codes, _ in lettered])
    slots[rows[is_inside], columns[is_inside]] = codes[is_inside]


@lru_cache(maxsize=50_000)
def _letters(text: str, font: Font) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """The code of each letter, and the distance of its middle from the word's left edge."""
    edges = [loaded_font(font).getlength(text[:num]) for num in range(len(text) + 1)]
    middles = np.array([(edges[num] + edges[num + 1]) / 2 for num in range(len(text))], dtype=np.int64)
    codes = np.array([ord(letter) - _FIRST if letter.isascii() else 0 for letter in text], dtype=np.uint8)
    return codes, middles
