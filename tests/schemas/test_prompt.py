import pytest

from factories import make_screenshot
from focusmem.errors import ConfigError
from focusmem.schemas import Turn


def test_a_turn_holds_text_and_screenshots_in_order():
    screenshot = make_screenshot()
    turn = Turn("user", ("before", screenshot, "after"))
    assert turn.parts == ("before", screenshot, "after")
    assert turn == Turn("user", ("before", make_screenshot(), "after"))


@pytest.mark.parametrize(
    ("role", "parts", "message"),
    [
        ("robot", ("x",), r"Turn\.role is 'robot'; use one of system, user, assistant"),
        ("user", ["x"], r"Turn\.parts is a list; use a tuple"),
        ("user", "text", r"Turn\.parts is a str; use a tuple"),
        ("user", ("x", b"y"), r"Turn\.parts\[1\] is a bytes; use text"),
        ("user", (make_screenshot().image(),), r"Turn\.parts\[0\] is a Image; use text .* or a Screenshot"),
    ],
)
def test_a_turn_says_what_is_wrong_with_it(role, parts, message):
    with pytest.raises(ConfigError, match=message):
        Turn(role, parts)
