"""The HTML view: a scene as a web page, with every pixel where the raster view draws it.

Everything that is drawn is hidden from screen readers. Real links and fields with accessible names lie over it. Only
numbers and escaped text are inserted into the page.
"""

import base64
import hashlib
from collections.abc import Iterable
from html import escape
from itertools import groupby
from typing import Final

from focusmem.lab.world.scene import (
    FIELD_FONT,
    FIELD_PADDING,
    FIELD_TEXT,
    VIEW_WIDTH,
    Box,
    Colour,
    Control,
    Drawn,
    Rectangle,
    Scene,
    Shape,
    Word,
)

FONT_PATHS: Final = {False: "/_font/regular.ttf", True: "/_font/bold.ttf"}

# Enter opens the field's path with the text in place of `{text}`, escaped as Python's `quote` does.
_SCRIPT: Final = """
document.addEventListener("keydown", (event) => {
  const leads = event.key === "Enter" && event.target.dataset.leads;
  if (!leads) return;
  const escaped = (letter) => "%" + letter.charCodeAt(0).toString(16).toUpperCase();
  const text = encodeURIComponent(event.target.value).replace(/[!'()*]/g, escaped);
  location.assign(leads.replaceAll("{text}", () => text));
});
"""

_STYLE: Final = f"""
@font-face {{ font-family: Lab; font-weight: 400; src: url({FONT_PATHS[False]}); }}
@font-face {{ font-family: Lab; font-weight: 700; src: url({FONT_PATHS[True]}); }}
html, body {{ margin: 0; }}
main {{ position: relative; width: {VIEW_WIDTH}px; overflow: clip; margin: 0 auto; }}
main * {{ position: absolute; box-sizing: border-box; }}
span, input {{ font-family: Lab; font-kerning: none; font-variant-ligatures: none; white-space: pre; }}
svg {{ left: 0; top: 0; }}
input {{ border: 0; background: none; outline: none; caret-color: transparent; color: rgb{FIELD_TEXT};
  font-size: {FIELD_FONT.size}px; padding: 0 {FIELD_PADDING}px; }}
"""

CONTENT_SECURITY_POLICY: Final = "; ".join(
    [
        "default-src 'none'",
        "style-src 'unsafe-inline'",
        "font-src 'self'",
        f"script-src 'sha256-{base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()}'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
)
"""The Content-Security-Policy header: a page may show itself, load its fonts, and run its one script."""


def render_html(scene: Scene) -> str:
    drawn = "\n".join(_drawn(scene.drawn, scene.height))
    controls = "\n".join(_control(control) for control in scene.controls)
    return f"""<!doctype html>
<html lang="en" style="background: {_rgb(scene.background)}">
<head>
<meta charset="utf-8">
<title>{escape(scene.title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<main style="height: {scene.height}px">
{drawn}
{controls}
</main>
<script>{_SCRIPT}</script>
</body>
</html>
"""


def _drawn(items: Iterable[Drawn], height: int) -> Iterable[str]:
    """The drawn elements in order; adjacent figures share a picture."""
    for kind, group in groupby(items, key=type):
        if kind is Shape:
            figures = "".join(map(_figure, group))
            size = f'width="{VIEW_WIDTH}" height="{height}"'
            yield f'<svg aria-hidden="true" {size} shape-rendering="crispEdges">{figures}</svg>'
        else:
            yield from map(_figure, group)


def _figure(item: Drawn) -> str:
    match item:
        case Rectangle():
            return _rectangle(item)
        case Word():
            return _word(item)
        case Shape():
            return _shape(item)


def _rectangle(item: Rectangle) -> str:
    border = f"; border: 1px solid {_rgb(item.outline)}" if item.outline else ""
    return f'<div style="{_place(item.box)}; background: {_rgb(item.fill)}{border}"></div>'


def _word(item: Word) -> str:
    style = (
        f"left: {item.left}px; top: {item.top}px; color: {_rgb(item.colour)}; font-size: {item.font.size}px; "
        f"line-height: {item.font.line_height}px; font-weight: {700 if item.font.is_bold else 400}"
    )
    return f'<span aria-hidden="true" style="{style}">{escape(item.text)}</span>'


def _shape(shape: Shape) -> str:
    """Pillow also paints the pixels on a figure's edge, so the figure is half a pixel larger on all sides."""
    fill = _rgb(shape.fill)
    if shape.kind == "ellipse":
        (left, top), (right, bottom) = shape.points
        centre = f'cx="{(left + right + 1) / 2}" cy="{(top + bottom + 1) / 2}"'
        return f'<ellipse {centre} rx="{(right - left + 1) / 2}" ry="{(bottom - top + 1) / 2}" fill="{fill}"/>'
    points = " ".join(f"{x + 0.5},{y + 0.5}" for x, y in shape.points)
    return f'<polygon points="{points}" fill="{fill}" stroke="{fill}"/>'


def _control(control: Control) -> str:
    name, href = f'aria-label="{escape(control.name)}"', escape(control.href)
    # Not in the tab order, because in the raster's session only fields can have the focus.
    place = f'tabindex="-1" style="{_place(control.box)}'
    if control.kind == "field":
        line = f"line-height: {control.box.height}px"
        return f'<input type="text" autocomplete="off" {name} data-leads="{href}" {place}; {line}">'
    role = 'role="button" ' if control.kind == "button" else ""
    return f'<a {role}{name} href="{href}" {place}"></a>'


def _place(box: Box) -> str:
    return f"left: {box.left}px; top: {box.top}px; width: {box.width}px; height: {box.height}px"


def _rgb(colour: Colour) -> str:
    red, green, blue = colour
    return f"rgb({red:d},{green:d},{blue:d})"
