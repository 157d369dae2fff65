"""The raster view: a scene drawn with Pillow in about a millisecond."""

from functools import lru_cache

from PIL import Image, ImageDraw

from focusmem.lab.world.scene import (
    FIELD_FONT,
    FIELD_PADDING,
    FIELD_TEXT,
    VIEW_HEIGHT,
    VIEW_WIDTH,
    Colour,
    Control,
    Font,
    Rectangle,
    Scene,
    Shape,
    Word,
    loaded_font,
)

_OVERHANG = 2


def draw(
    scene: Scene, scroll: int = 0, typed: tuple[tuple[Control, str], ...] = (), focused: Control | None = None
) -> Image.Image:
    """Draws the visible part of a page; `typed` holds the texts of its fields."""
    image = Image.new("RGB", (VIEW_WIDTH, VIEW_HEIGHT), scene.background)
    canvas = ImageDraw.Draw(image)
    for item in scene.drawn:
        if isinstance(item, Word):
            _draw_word(image, item.left, item.top - scroll, item.text, item.font, item.colour)
        elif isinstance(item, Rectangle):
            box = item.box
            if box.top - scroll < VIEW_HEIGHT and box.bottom > scroll:
                corners = (box.left, box.top - scroll, box.right - 1, box.bottom - 1 - scroll)
                canvas.rectangle(corners, fill=item.fill, outline=item.outline)
        else:
            _draw_shape(canvas, item, scroll)
    for field, text in typed:
        _draw_typed(image, field, text, scroll, is_focused=field == focused)
    return image


def _draw_word(image: Image.Image, left: int, top: int, text: str, font: Font, colour: Colour) -> None:
    if -2 * font.size < top < VIEW_HEIGHT:
        image.paste(colour, (left - _OVERHANG, top), _mask(text, font))


def _draw_shape(canvas: ImageDraw.ImageDraw, shape: Shape, scroll: int) -> None:
    points = [(x, y - scroll) for x, y in shape.points]
    if min(y for _, y in points) >= VIEW_HEIGHT or max(y for _, y in points) < 0:
        return
    if shape.kind == "ellipse":
        canvas.ellipse([points[0], points[1]], fill=shape.fill)
    else:
        canvas.polygon(points, fill=shape.fill)


def _draw_typed(image: Image.Image, field: Control, text: str, scroll: int, *, is_focused: bool) -> None:
    """Text in a field. Of a long text, a browser shows the end while the field has the focus, otherwise
    the beginning.
    """
    box, mask = field.box, _mask(text, FIELD_FONT)
    top = box.top - scroll + FIELD_FONT.baseline_in(box.height) - FIELD_FONT.baseline
    if not text or not -FIELD_FONT.line_height < top < VIEW_HEIGHT:
        return
    room = box.width - 2 * FIELD_PADDING
    hidden = max(0, mask.width - 2 * _OVERHANG - room) if is_focused else 0
    start = hidden + _OVERHANG
    image.paste(FIELD_TEXT, (box.left + FIELD_PADDING, top), mask.crop((start, 0, start + room, mask.height)))


@lru_cache(maxsize=50_000)
def _mask(text: str, font: Font) -> Image.Image:
    """A word's coverage mask, drawn once, with room for letters that extend beyond their box."""
    mask = Image.new("L", (max(1, font.width(text)) + 2 * _OVERHANG, font.line_height))
    drawing = ImageDraw.Draw(mask)
    drawing.text((_OVERHANG, font.baseline), text, fill=255, font=loaded_font(font), anchor="ls")
    return mask
