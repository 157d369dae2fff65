import pytest

from focusmem.browser.keys import read_key, unknown_key


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("Enter", "Enter"),
        ("return", "Enter"),
        ("ESC", "Escape"),
        ("page down", "PageDown"),
        ("Page_Up", "PageUp"),
        ("down", "ArrowDown"),
        ("Space", "Space"),
        ("a", "a"),
        ("A", "A"),
        ("?", "?"),
        ("+", "+"),
        ("Ctrl+A", "Control+a"),
        ("control + shift + t", "Control+Shift+T"),
        ("Shift+a", "Shift+A"),
        ("Shift+Tab", "Shift+Tab"),
        ("cmd+Enter", "Meta+Enter"),
        ("Control++", "Control++"),
    ],
)
def test_keys_have_one_spelling(text, key):
    assert read_key(text) == key


@pytest.mark.parametrize(
    "text",
    ["", " ", "Hyper+Q", "Control", "Control+", "Enter+a", "Control+Control+a", "aa", "F99", "\u00e4", "a+b", "\n"],
)
def test_anything_else_is_no_key(text):
    assert read_key(text) is None


def test_the_policy_is_told_what_to_press():
    assert unknown_key("x" * 100) == (
        f"There is no key '{'x' * 40}'; press one such as Enter, Escape, Backspace, PageDown or Control+A."
    )
