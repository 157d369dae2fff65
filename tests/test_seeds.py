from hypothesis import given
from hypothesis import strategies as st

from focusmem.seeds import derive_seed

names = st.lists(st.integers() | st.text(st.characters(exclude_characters="\x1f", exclude_categories=["Cs"])))


@given(st.integers(), names)
def test_equal_names_give_equal_seeds_of_63_bits(root, path):
    assert derive_seed(root, *path) == derive_seed(root, *path)
    assert 0 <= derive_seed(root, *path) < 2**63


@given(st.integers(), names, st.integers(), names)
def test_other_names_give_other_seeds(root, path, other_root, other_path):
    is_same = (root, path) == (other_root, other_path)
    assert (derive_seed(root, *path) == derive_seed(other_root, *other_path)) == is_same


def test_a_number_is_not_its_text():
    assert derive_seed(0, 1) != derive_seed(0, "1")


def test_seeds_are_the_same_for_ever():
    assert derive_seed(0, "site", 17) == 6140501207256548308
