"""Pictures as a few coloured figures: what a product looks like, and the emblems of an encyclopedia."""

from collections.abc import Sequence

from focusmem.lab.world.scene import Box, Colour, Shape

# Each silhouette is drawn on a square of 100 by 100: (figure, points, shade). Shade 0 is the picture's own colour,
# positive shades are lighter, negative ones darker.
_Figure = tuple[str, tuple[tuple[int, int], ...], float]

_SILHOUETTES: dict[str, tuple[_Figure, ...]] = {
    "lamp": (
        ("polygon", ((30, 12), (70, 12), (88, 52), (12, 52)), 0),
        ("polygon", ((46, 52), (54, 52), (54, 82), (46, 82)), -0.4),
        ("ellipse", ((28, 78), (72, 94)), -0.4),
    ),
    "chair": (
        ("polygon", ((24, 8), (36, 8), (36, 92), (24, 92)), -0.3),
        ("polygon", ((24, 12), (64, 12), (64, 48), (24, 48)), 0),
        ("polygon", ((24, 50), (80, 50), (80, 62), (24, 62)), 0),
        ("polygon", ((70, 62), (80, 62), (80, 92), (70, 92)), -0.3),
    ),
    "mug": (
        ("ellipse", ((56, 30), (94, 74)), -0.3),
        ("ellipse", ((64, 40), (84, 64)), 0.9),
        ("polygon", ((18, 20), (72, 20), (68, 88), (22, 88)), 0),
        ("ellipse", ((18, 12), (72, 28)), 0.4),
    ),
    "clock": (
        ("ellipse", ((8, 8), (92, 92)), 0),
        ("ellipse", ((18, 18), (82, 82)), 0.9),
        ("polygon", ((48, 24), (53, 24), (53, 52), (48, 52)), -0.6),
        ("polygon", ((48, 48), (74, 48), (74, 53), (48, 53)), -0.6),
    ),
    "bag": (
        ("ellipse", ((28, 6), (72, 52)), -0.4),
        ("ellipse", ((36, 16), (64, 50)), 0.9),
        ("polygon", ((14, 34), (86, 34), (94, 92), (6, 92)), 0),
        ("polygon", ((34, 54), (66, 54), (66, 68), (34, 68)), 0.35),
    ),
    "kettle": (
        ("polygon", ((70, 40), (98, 26), (98, 36), (76, 58)), -0.3),
        ("ellipse", ((18, 30), (80, 92)), 0),
        ("polygon", ((40, 20), (58, 20), (58, 34), (40, 34)), -0.4),
        ("polygon", ((4, 34), (14, 34), (26, 72), (18, 76)), -0.4),
    ),
    "book": (
        ("polygon", ((14, 16), (80, 8), (80, 84), (14, 92)), 0),
        ("polygon", ((80, 8), (88, 16), (88, 90), (80, 84)), 0.8),
        ("polygon", ((26, 30), (66, 25), (66, 36), (26, 41)), 0.5),
    ),
    "shoe": (
        ("polygon", ((10, 30), (40, 30), (50, 54), (92, 62), (92, 78), (10, 78)), 0),
        ("polygon", ((8, 78), (94, 78), (94, 88), (8, 88)), -0.5),
        ("polygon", ((44, 42), (56, 50), (50, 56), (40, 48)), 0.6),
    ),
    "tent": (
        ("polygon", ((50, 12), (96, 88), (4, 88)), 0),
        ("polygon", ((50, 40), (66, 88), (34, 88)), -0.5),
    ),
    "guitar": (
        ("polygon", ((60, 6), (72, 12), (52, 56), (42, 50)), -0.5),
        ("ellipse", ((34, 34), (68, 66)), 0),
        ("ellipse", ((14, 46), (66, 96)), 0),
        ("ellipse", ((34, 60), (50, 76)), -0.6),
    ),
    "camera": (
        ("polygon", ((34, 18), (66, 18), (70, 34), (30, 34)), -0.3),
        ("polygon", ((6, 30), (94, 30), (94, 84), (6, 84)), 0),
        ("ellipse", ((32, 34), (70, 72)), 0.7),
        ("ellipse", ((40, 42), (62, 64)), -0.6),
    ),
    "plant": (
        ("ellipse", ((6, 14), (50, 46)), 0),
        ("ellipse", ((50, 6), (94, 42)), 0),
        ("polygon", ((46, 26), (54, 26), (54, 64), (46, 64)), -0.4),
        ("polygon", ((26, 62), (74, 62), (66, 94), (34, 94)), -0.2),
    ),
    "ball": (
        ("ellipse", ((8, 8), (92, 92)), 0),
        ("polygon", ((50, 32), (68, 46), (61, 66), (39, 66), (32, 46)), 0.7),
        ("ellipse", ((16, 20), (30, 34)), 0.5),
    ),
    "hat": (
        ("ellipse", ((4, 58), (96, 86)), -0.3),
        ("polygon", ((26, 24), (74, 24), (78, 70), (22, 70)), 0),
        ("polygon", ((22, 56), (78, 56), (78, 68), (22, 68)), 0.5),
    ),
    "bottle": (
        ("polygon", ((42, 4), (58, 4), (58, 18), (42, 18)), -0.5),
        ("polygon", ((40, 18), (60, 18), (70, 40), (70, 94), (30, 94), (30, 40)), 0),
        ("polygon", ((30, 54), (70, 54), (70, 74), (30, 74)), 0.6),
    ),
    "drill": (
        ("polygon", ((68, 26), (98, 32), (98, 36), (68, 42)), -0.5),
        ("polygon", ((10, 18), (70, 18), (70, 48), (10, 48)), 0),
        ("polygon", ((20, 48), (42, 48), (36, 92), (14, 92)), -0.3),
    ),
    "pillow": (
        ("polygon", ((6, 22), (50, 30), (94, 22), (88, 54), (94, 84), (50, 76), (6, 84), (12, 54)), 0),
        ("ellipse", ((40, 44), (60, 62)), 0.5),
    ),
    "table": (
        ("polygon", ((4, 28), (96, 28), (96, 42), (4, 42)), 0),
        ("polygon", ((12, 42), (22, 42), (22, 90), (12, 90)), -0.3),
        ("polygon", ((78, 42), (88, 42), (88, 90), (78, 90)), -0.3),
    ),
    "umbrella": (
        ("polygon", ((48, 8), (52, 8), (52, 92), (48, 92)), -0.6),
        ("polygon", ((50, 10), (80, 22), (96, 52), (4, 52), (20, 22)), 0),
        ("polygon", ((50, 10), (60, 52), (40, 52)), 0.4),
    ),
    "bike": (
        ("ellipse", ((2, 46), (42, 86)), -0.5),
        ("ellipse", ((10, 54), (34, 78)), 0.9),
        ("ellipse", ((58, 46), (98, 86)), -0.5),
        ("ellipse", ((66, 54), (90, 78)), 0.9),
        ("polygon", ((20, 62), (40, 28), (46, 32), (28, 68)), 0),
        ("polygon", ((36, 28), (76, 28), (80, 64), (74, 66), (68, 36), (38, 36)), 0),
    ),
    "mountain": (
        ("polygon", ((4, 92), (40, 14), (70, 92)), 0),
        ("polygon", ((44, 92), (72, 40), (96, 92)), -0.3),
        ("polygon", ((40, 14), (50, 40), (30, 40)), 0.8),
    ),
    "city": (
        ("polygon", ((6, 46), (30, 46), (30, 92), (6, 92)), -0.3),
        ("polygon", ((32, 12), (60, 12), (60, 92), (32, 92)), 0),
        ("polygon", ((62, 34), (94, 34), (94, 92), (62, 92)), -0.3),
        ("polygon", ((40, 22), (52, 22), (52, 34), (40, 34)), 0.7),
        ("polygon", ((70, 46), (84, 46), (84, 58), (70, 58)), 0.7),
    ),
    "bridge": (
        ("polygon", ((2, 40), (98, 40), (98, 54), (2, 54)), 0),
        ("polygon", ((14, 54), (26, 54), (26, 90), (14, 90)), -0.3),
        ("polygon", ((74, 54), (86, 54), (86, 90), (74, 90)), -0.3),
        ("polygon", ((14, 40), (20, 12), (26, 40)), -0.3),
        ("polygon", ((74, 40), (80, 12), (86, 40)), -0.3),
    ),
    "star": (
        (
            "polygon",
            ((50, 4), (61, 36), (96, 36), (68, 57), (78, 92), (50, 71), (22, 92), (32, 57), (4, 36), (39, 36)),
            0,
        ),
    ),
    "cross": (
        ("polygon", ((38, 6), (62, 6), (62, 94), (38, 94)), 0),
        ("polygon", ((6, 38), (94, 38), (94, 62), (6, 62)), 0),
    ),
    "ring": (("ellipse", ((6, 6), (94, 94)), 0), ("ellipse", ((28, 28), (72, 72)), 0.9)),
    "arrow": (("polygon", ((50, 4), (92, 50), (66, 50), (66, 96), (34, 96), (34, 50), (8, 50)), 0),),
    "tower": (
        ("polygon", ((28, 30), (72, 30), (78, 96), (22, 96)), 0),
        ("polygon", ((18, 8), (34, 8), (34, 20), (42, 20), (42, 8), (58, 8), (58, 20), (66, 20), (66, 8), (82, 8),
                     (82, 34), (18, 34)), 0),
    ),
    "leaf": (("polygon", ((50, 4), (84, 34), (78, 74), (50, 96), (22, 74), (16, 34)), 0),
             ("polygon", ((48, 22), (52, 22), (52, 96), (48, 96)), -0.5)),
    "wave": (("polygon", ((4, 40), (28, 20), (52, 40), (76, 20), (96, 40), (96, 76), (76, 58), (52, 76), (28, 58),
                          (4, 76)), 0),),
    "crown": (("polygon", ((8, 24), (30, 52), (50, 14), (70, 52), (92, 24), (84, 88), (16, 88)), 0),),
}  # fmt: skip

PLACE_PICTURES = {
    "mountain": "mountain",
    "lake": "wave",
    "castle": "tower",
    "city": "city",
    "island": "plant",
    "bridge": "bridge",
}
EMBLEMS = ("star", "cross", "ring", "arrow", "tower", "leaf", "wave", "crown")


def silhouette(name: str, colour: Colour, box: Box) -> tuple[Shape, ...]:
    """One picture, scaled into its box."""
    return tuple(
        Shape(
            "ellipse" if figure == "ellipse" else "polygon",
            tuple((box.left + x * box.width // 100, box.top + y * box.height // 100) for x, y in points),
            shade(colour, amount),
        )
        for figure, points, amount in _SILHOUETTES[name]
    )


def row_of(name: str, colour: Colour, count: int, box: Box) -> tuple[Shape, ...]:
    """The same thing several times, side by side in the box, as large as fits."""
    side = min(box.height, box.width // count)
    left = box.left + (box.width - side * count) // 2
    top = box.top + (box.height - side) // 2
    pieces: Sequence[tuple[Shape, ...]] = [
        silhouette(name, colour, Box(left + side * index + side // 12, top, side * 5 // 6, side))
        for index in range(count)
    ]
    return tuple(shape for piece in pieces for shape in piece)


def shade(colour: Colour, amount: float) -> Colour:
    """Lighter for positive amounts, darker for negative ones."""
    goal = 255 if amount > 0 else 0
    red, green, blue = (round(value + (goal - value) * abs(amount)) for value in colour)
    return red, green, blue
