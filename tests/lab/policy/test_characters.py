import numpy as np
import pytest

from focusmem.lab.policy.characters import NUM_SLOTS, SLOT_HEIGHT, SLOT_WIDTH, TOKEN_PIXELS, letters_in_view
from focusmem.lab.world.raster import draw
from focusmem.lab.world.scene import VIEW_HEIGHT, VIEW_WIDTH, Box, Font, Rectangle, Scene, Word
from focusmem.lab.world.session import PageSession
from focusmem.lab.world.world import World
from focusmem.schemas import make_action

PAGES = ["/e-0/", "/e-0/entry/3", "/e-1/entry/2", "/e-2/kind/bag", "/e-34/entry/3"]


def scene_of(*drawn) -> Scene:
    return Scene("", VIEW_HEIGHT, (255, 255, 255), drawn, ())


def in_reading_order(letters) -> str:
    """The letters of a view from top to bottom and left to right, over the tokens' borders."""
    columns, per_row, per_column = VIEW_WIDTH // TOKEN_PIXELS, TOKEN_PIXELS // SLOT_HEIGHT, TOKEN_PIXELS // SLOT_WIDTH
    grid = letters.reshape(-1, columns, per_row, per_column).transpose(0, 2, 1, 3).reshape(-1, columns * per_column)
    return "".join(chr(32 + code) for code in grid.flatten() if code)


def test_a_word_can_be_read_back_wherever_it_stands():
    for size in (12, 14, 18):
        for left, top in ((0, 0), (13, 57), (301, 200)):
            letters = letters_in_view(scene_of(Word(left, top, "Thourm", Font(size), (0, 0, 0))), 0)
            assert letters.shape == (126, NUM_SLOTS)
            assert in_reading_order(letters) == "Thourm"


def test_what_is_covered_is_not_there():
    word, box = Word(40, 40, "hidden", Font(14), (0, 0, 0)), Rectangle(Box(0, 0, 300, 200), (9, 9, 9))
    assert not letters_in_view(scene_of(word, box), 0).any()
    assert letters_in_view(scene_of(box, word), 0).any()


def test_scrolling_moves_letters_with_the_page():
    scene = Scene("", 600, (255, 255, 255), (Word(40, 240, "moved", Font(14), (0, 0, 0)),), ())
    assert in_reading_order(letters_in_view(scene, 208)) == "moved"
    assert not letters_in_view(scene, 300).any()


@pytest.mark.parametrize("path", PAGES)
def test_there_is_ink_where_a_letter_is_said_to_be(path):
    scene = World(0).scene(path)
    image = np.asarray(draw(scene).convert("L"), dtype=int)
    letters = letters_in_view(scene, 0)
    with_ink = []
    for token, slot in zip(*np.nonzero(letters), strict=True):
        top = token // (VIEW_WIDTH // TOKEN_PIXELS) * TOKEN_PIXELS + slot // 8 * SLOT_HEIGHT
        left = token % (VIEW_WIDTH // TOKEN_PIXELS) * TOKEN_PIXELS + slot % 8 * SLOT_WIDTH
        around = image[max(0, top - 4) : top + SLOT_HEIGHT + 4, max(0, left - 4) : left + SLOT_WIDTH + 4]
        with_ink.append(np.ptp(around) > 40)
    assert len(with_ink) > 20
    assert np.mean(with_ink) > 0.97


def test_typed_text_has_letters_too():
    session = PageSession(World(0), "/e-34/")
    session.perform(make_action("type", text="Fiodiast", description="Search"))
    typed = dict(session.typed())
    assert typed == {"Search": "Fiodiast"}
    plain = letters_in_view(session.scene, session.scroll)
    with_text = letters_in_view(session.scene, session.scroll, typed)
    assert sorted(chr(32 + code) for code in with_text[plain != with_text]) == sorted("Fiodiast")
