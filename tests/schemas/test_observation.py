import pytest
from pydantic import ValidationError

from focusmem.schemas import ControlInfo


def test_a_click_goes_to_the_middle():
    assert ControlInfo(name="Search", kind="field", left=10, top=20, width=5, height=4).centre == (12, 22)


@pytest.mark.parametrize("change", [{"name": " "}, {"kind": "menu"}, {"left": -1}, {"width": 0}, {"top": 1.0}])
def test_only_what_is_in_view_and_has_a_name_is_a_control(change):
    fields = {"name": "Search", "kind": "field", "left": 1, "top": 2, "width": 3, "height": 4}
    with pytest.raises(ValidationError):
        ControlInfo(**fields | change)
