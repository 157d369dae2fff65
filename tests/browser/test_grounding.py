import pytest

from focusmem.browser.grounding import find_control, find_field
from focusmem.schemas import ControlInfo


def control(name, kind="link", top=0, left=0):
    return ControlInfo(name=name, kind=kind, left=left, top=top, width=10, height=10)


def found(description, *names, **options):
    controls = [control(name, top=20 * index) for index, name in enumerate(names)]
    match = find_control(description, controls, **options)
    return match and match.name


@pytest.mark.parametrize(
    "description",
    [
        "Add to cart",
        "add to CART",
        "the 'Add to cart' button",
        'An "Add to cart" link.',
        "Add to cart...",
        "  add\u00a0to   cart ",
        "add_to_cart",
        "\uff21dd to cart",
        "Add to cart tab",
    ],
)
def test_wording_does_not_matter_where_it_says_the_same(description):
    assert found(description, "Cart", "Add to list", "Add to cart") == "Add to cart"


def test_the_very_name_comes_before_longer_ones():
    assert found("Lamp", "Lamp shade", "Blue lamp", "Lamp") == "Lamp"


@pytest.mark.parametrize(
    ("description", "expected"),
    [
        ("the Next link at the bottom of the page", "Next"),
        ("the search result Blue desk lamp", "Blue desk lamp"),
        ("desk lamp", "Blue desk lamp"),
        ("lamp for the desk, the blue one", "Blue desk lamp"),
        ("add the blue desk lamp to compare", "Add to compare"),
    ],
)
def test_otherwise_the_one_that_shares_most_words(description, expected):
    names = ["Compare", "Search", "Next", "Page", "Add to compare", "Blue desk lamp", "Red floor lamp"]
    names.remove("Blue desk lamp") if expected == "Add to compare" else None
    assert found(description, *names) == expected


@pytest.mark.parametrize(
    ("description", "name"),
    [
        ("Page 3", "Page 2"),
        ("Lamp number 12", "Lamp number 13"),
        ("Blue desk lamp", "Red desk lamp"),
        ("Large blue desk lamp", "Large red desk lamp"),
        ("checkout", "Check your order"),
        ("carts", "Cart"),
        ("art", "Cart"),
        ("Sign in", "Sign up"),
        ("the", "The"),
        ("?!", "Search"),
        ("Search", "!!!"),
    ],
)
def test_a_near_miss_is_a_miss(description, name):
    assert found(description, name) is None


def test_a_tie_goes_to_the_one_that_stands_higher():
    controls = [control("Details", top=50), control("Details", top=10, left=30), control("Details", top=10, left=5)]
    assert find_control("details link", controls) is controls[2]


def test_the_kind_a_description_hints_at_breaks_a_tie():
    controls = [control("Search", "button", top=0), control("Search", "field", top=5), control("Search", "link", top=9)]
    assert find_control("Search", controls) is controls[0]
    assert find_control("the search box", controls) is controls[1]
    assert find_control("search link", controls) is controls[2]


def test_only_the_kinds_asked_for_are_found():
    controls = [control("Search", "button"), control("Search the shop", "field", top=50)]
    assert find_control("Search", controls, ("field",)) is controls[1]
    assert find_control("Search", [], ("field",)) is None


def test_a_kind_word_that_is_the_name_stays():
    assert found("Menu", "Home", "Menu") == "Menu"
    assert found("the menu button", "Home", "Menu") == "Menu"


def test_where_to_type():
    name, mail, button = control("Name", "field"), control("Mail", "field", top=50), control("Send", "button")
    assert find_field("mail field", [name, mail, button], has_focus=True) is mail
    assert "No field in view is called 'Send'" in find_field("Send", [name, mail, button], has_focus=True)
    assert find_field(None, [name, mail], has_focus=True) is None
    assert find_field(None, [name, button], has_focus=False) is name
    assert "2 fields" in find_field(None, [name, mail], has_focus=False)
    assert "no field" in find_field(None, [button], has_focus=False)
