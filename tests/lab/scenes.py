"""A world of a few hand-made pages, one for each thing the two views must agree on."""

from urllib.parse import parse_qs, urlsplit

from focusmem.lab.world.scene import VIEW_WIDTH, Box, Control, Drawn, Font, Rectangle, Scene, Shape, Word

INK, PAPER, BLUE, WHITE = (24, 24, 32), (250, 248, 242), (30, 70, 160), (255, 255, 255)
HOSTILE = """</title></style></script><script>document.title="owned"</script><img src=x onerror=alert(1)>"'&{text}"""


def line(left: int, top: int, text: str, font: Font, colour: tuple[int, int, int] = INK) -> list[Drawn]:
    """Words side by side, as the world lays them out."""
    words: list[Drawn] = []
    for word in text.split():
        words.append(Word(left, top, word, font, colour))
        left += font.width(word) + font.space
    return words


class ToyPages:
    def scene(self, path: str) -> Scene:
        split = urlsplit(path)
        query = {name: values[0] for name, values in parse_qs(split.query).items()}
        match split.path.split("/")[1:]:
            case ["toy", ""]:
                return home()
            case ["toy", "find"]:
                return results(query.get("q", ""))
            case ["toy", "entry", number]:
                return entry(number)
            case ["toy", "dialog"]:
                return dialog()
            case ["toy", "pictures"]:
                return pictures()
            case ["toy", "hostile"]:
                return hostile()
        return lost(path)


def home() -> Scene:
    """A field at the top, one further down, text in every size, and links to everything else."""
    drawn: list[Drawn] = [Rectangle(Box(0, 0, VIEW_WIDTH, 34), BLUE), Rectangle(Box(220, 6, 150, 22), WHITE, INK)]
    drawn += line(10, 7, "Toy market", Font(14, True), WHITE)
    controls = [
        Control(Box(220, 6, 150, 22), "field", "Search", "/toy/find?q={text}&seen=1"),
        Control(Box(4, 4, 120, 26), "link", "Toy market home", "/toy/"),
    ]
    top = 40
    for name, href in (("Pictures", "pictures"), ("Dialog", "dialog"), ("Hostile", "hostile"), ("Nowhere", "no%20way")):
        drawn += line(14, top, name, Font(13), BLUE)
        controls.append(Control(Box(14, top, Font(13).width(name), 18), "link", name, f"/toy/{href}"))
        top += 22
    for size in range(10, 22):
        font = Font(size, size % 2 == 0)
        drawn += line(14, top, "The AV office fjord lamp: 129 euros, 4.5 kg", font)
        top += font.line_height + 3
    drawn.append(Rectangle(Box(14, 440, 200, 30), WHITE, INK))
    controls.append(Control(Box(14, 440, 200, 30), "field", "Your name", "/toy/find?seen=1&q={text}"))
    drawn.append(Rectangle(Box(14, 700, 90, 26), BLUE))
    drawn += line(30, 703, "Sign up", Font(14, True), WHITE)
    controls.append(Control(Box(14, 700, 90, 26), "button", "Sign up", "/toy/entry/9"))
    return Scene("Toy market", 760, PAPER, tuple(drawn), tuple(controls))


def results(text: str) -> Scene:
    drawn, controls = line(14, 8, f"Search: {text}", Font(16, True)), []
    for number in range(6):
        box = Box(14, 40 + 60 * number, VIEW_WIDTH - 28, 50)
        name = f"Lamp number {number}"
        drawn.append(Rectangle(box, WHITE, (200, 200, 210)))
        drawn += line(24, box.top + 6, name, Font(14, True), BLUE)
        controls.append(Control(box, "link", name, f"/toy/entry/{number}?seen=1"))
    return Scene(f"Search: {text}", 410, PAPER, tuple(drawn), tuple(controls))


def entry(number: str) -> Scene:
    drawn = line(14, 8, f"Entry {number}", Font(18, True), WHITE) + line(14, 40, "Weight: 4.5 kg", Font(13), WHITE)
    back = Control(Box(14, 70, 60, 20), "link", "Back", "/toy/")
    return Scene(f"Entry {number}", 200, (30, 34, 44), tuple(drawn), (back,))


def dialog() -> Scene:
    """A button that lies over the middle of a link, as an open dialog may."""
    drawn: list[Drawn] = [Rectangle(Box(60, 80, 320, 120), WHITE, BLUE), Rectangle(Box(80, 140, 110, 30), BLUE)]
    drawn += line(76, 90, "Before you go on", Font(16, True)) + line(96, 144, "Continue", Font(14, True), WHITE)
    controls = (
        Control(Box(60, 130, 320, 40), "link", "Buried link", "/toy/entry/1"),
        Control(Box(80, 140, 220, 30), "button", "Continue", "/toy/entry/2"),
    )
    return Scene("Dialog", 288, PAPER, tuple(drawn), controls)


def pictures() -> Scene:
    drawn: list[Drawn] = [
        Shape("polygon", ((40, 20), (120, 20), (150, 90), (10, 90)), (200, 60, 40)),
        Shape("ellipse", ((170, 20), (250, 90)), (40, 140, 60)),
        Shape("ellipse", ((190, 40), (230, 70)), WHITE),
        Rectangle(Box(270, 20, 80, 70), (90, 60, 160)),
        Shape("polygon", ((310, 10), (340, 80), (280, 80)), (240, 200, 60)),
    ]
    return Scene("Pictures", 288, PAPER, tuple(drawn), ())


def hostile() -> Scene:
    drawn = line(14, 8, HOSTILE, Font(13))
    controls = (
        Control(Box(14, 60, 200, 20), "link", HOSTILE, "/toy/entry/3"),
        Control(Box(14, 90, 200, 22), "field", f"Field {HOSTILE}", "/toy/find?q={text}"),
    )
    return Scene(HOSTILE, 288, PAPER, tuple(drawn), controls)


def lost(path: str) -> Scene:
    return Scene("Not found", 288, PAPER, tuple(line(14, 8, "There is nothing here", Font(16, True))), ())
