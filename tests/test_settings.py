import dataclasses
import json
import pickle
import tomllib
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import NonNegativeFloat, PositiveInt

from focusmem.errors import ConfigError, StorageError
from focusmem.recipes.lab_training import lab
from focusmem.recipes.training import paper
from focusmem.settings import (
    Share,
    checked_dataclass,
    differences,
    everywhere,
    flattened,
    from_plain,
    resolved,
    to_plain,
    to_toml,
)


@checked_dataclass(frozen=True, kw_only=True)
class Oven:
    kind: Literal["gas", "wood"] = "gas"
    share: Share = 0.5
    num_trays: PositiveInt | None = None
    sizes: tuple[float, float] = (1.0, 2.0)
    is_on: bool = False
    folder: Path | None = None
    name: str = ""
    seed: int = 0


@checked_dataclass(frozen=True, kw_only=True)
class Kitchen:
    oven: Oven = Oven()
    spare: Oven | None = None
    row: tuple[Oven, ...] = ()
    rate: NonNegativeFloat = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.spare is not None and self.spare.kind == self.oven.kind:
            raise ConfigError("Kitchen.spare is of the same kind as Kitchen.oven.")


OVENS = st.builds(
    Oven,
    kind=st.sampled_from(["gas", "wood"]),
    share=st.floats(0, 1),
    num_trays=st.none() | st.integers(1, 2**63),
    sizes=st.tuples(st.floats(allow_nan=False), st.floats(allow_nan=False)),
    is_on=st.booleans(),
    folder=st.none() | st.just(Path("a b/c")),
    name=st.text(st.characters(codec="utf-8")),
)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"share": 1.5}, "Oven.share is 1.5; it must be at most 1"),
        ({"share": float("nan")}, "Oven.share is nan"),
        ({"num_trays": 0}, "Oven.num_trays is 0; it must be above 0"),
        ({"kind": "coal"}, "Oven.kind is 'coal'; choose one of 'gas' or 'wood'"),
        ({"num_trays": True}, "Oven.num_trays is True"),
        ({"num_trays": "3"}, "Oven.num_trays is '3'"),
        ({"sizes": (1.0,)}, r"Oven.sizes"),
        ({"folder": "text"}, "Oven.folder is 'text'"),
        ({"heat": 3}, r"There is no setting 'Oven.heat'\.$"),
        ({"shares": 3}, r"There is no setting 'Oven.shares'\. Did you mean 'Oven.share'\?$"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_allowed(values, message):
    with pytest.raises(ConfigError, match=message):
        Oven(**values)


def test_replace_checks_again():
    oven = Oven()
    assert dataclasses.replace(oven, num_trays=2).num_trays == 2
    with pytest.raises(ConfigError, match=r"Oven\.num_trays is -1"):
        dataclasses.replace(oven, num_trays=-1)
    with pytest.raises(ConfigError, match="same kind"):
        dataclasses.replace(Kitchen(), spare=Oven())


def test_settings_are_frozen_hashable_and_pickled():
    kitchen = Kitchen(oven=Oven(seed=3))
    assert hash(kitchen) == hash(Kitchen(oven=Oven(seed=3)))
    assert pickle.loads(pickle.dumps(kitchen)) == kitchen
    with pytest.raises(dataclasses.FrozenInstanceError):
        kitchen.seed = 1
    assert Kitchen(oven=kitchen.oven).oven is kitchen.oven


@given(OVENS, st.none() | OVENS, st.lists(OVENS, max_size=2))
def test_a_file_holds_every_setting(tmp_path_factory, oven, spare, row):
    """Also those without a value, whatever the settings are that it changes."""
    if spare is not None and spare.kind == oven.kind:
        spare = None
    kitchen = Kitchen(oven=oven, spare=spare, row=tuple(row))
    folder = tmp_path_factory.mktemp("settings")
    (folder / "kitchen.toml").write_text(to_toml(to_plain(kitchen)), encoding="utf-8")
    (folder / "run.json").write_text(json.dumps({"config": {"settings": to_plain(kitchen)}}))
    other = Kitchen(spare=Oven(kind="wood", num_trays=5), oven=Oven(num_trays=7, folder=Path("x")))
    for name in ("kitchen.toml", "run.json"):
        assert resolved(Kitchen(), file=folder / name) == kitchen
        # A room that is there in `other` alone is unset as a whole, and a list replaces a list.
        assert resolved(other, file=folder / name) == kitchen
    assert from_plain(Kitchen, to_plain(kitchen)) == kitchen


def test_files_then_values_then_assignments(tmp_path):
    path = tmp_path / "kitchen.toml"
    path.write_text('rate = 2\nseed = 1\n[oven]\nname = "file"\nnum_trays = 3\n')
    kitchen = resolved(
        Kitchen(),
        file=path,
        values={"oven.name": "value", "seed": 2},
        assignments=["seed=3", "oven.kind=wood", "oven.folder=a/b", "oven.sizes=[3, 4]", "spare.kind=gas"],
    )
    assert kitchen == Kitchen(
        oven=Oven(kind="wood", name="value", num_trays=3, folder=Path("a/b"), sizes=(3.0, 4.0)),
        spare=Oven(),
        rate=2.0,
        seed=3,
    )
    assert resolved(kitchen, assignments=["oven.num_trays=null", "spare=null"]).oven.num_trays is None


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("oven", "is not an assignment"),
        ("=3", "is not an assignment"),
        ("oven.heat=3", "There is no setting 'oven.heat'"),
        ("oven.tray=3", r"no setting 'oven.tray'\. Did you mean 'oven.num_trays'\?"),
        ('spare={"kinds": "wood"}', r"no setting 'spare.kinds'\. Did you mean 'spare.kind'\?"),
        ('row=[{}, {"folders": 2}]', r"no setting 'row.1.folders'\. Did you mean 'row.1.folder'\?"),
        ("rate.heat=3", "'rate' is a value and has no fields"),
        ("oven.share=two", "oven.share is 'two'"),
        ("oven=3", "oven is 3"),
        ('row=[{"share": 2}]', r"row\.0\.share is 2; it must be at most 1"),
    ],
)
def test_a_wrong_assignment_is_named(assignment, message):
    with pytest.raises(ConfigError, match=message):
        resolved(Kitchen(), assignments=[assignment])


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.toml", "rate = ", "is not valid TOML"),
        ("a.json", "{", "is not valid JSON"),
        ("a.json", '{"seed": 3}', "holds no settings"),
        ("a.json", "[]", "holds no settings"),
    ],
)
def test_a_file_without_settings_is_refused(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(StorageError, match=message):
        resolved(Kitchen(), file=tmp_path / name)


def test_a_value_in_a_file_counts_more_than_its_list_of_unset_names(tmp_path):
    """So that a printed file can be edited."""
    (tmp_path / "a.toml").write_text('unset = ["oven.num_trays"]\n[oven]\nnum_trays = 4\n')
    assert resolved(Kitchen(), file=tmp_path / "a.toml").oven.num_trays == 4


def test_one_value_for_every_field_of_a_name():
    kitchen = Kitchen(spare=Oven(kind="wood"))
    values = everywhere(kitchen, "seed", 5)
    assert values == {"seed": 5, "oven.seed": 5, "spare.seed": 5}
    assert resolved(kitchen, values=values).spare.seed == 5


def test_differences_by_name():
    one, other = (to_plain(Kitchen(oven=Oven(num_trays=num, seed=num), seed=num)) for num in (1, 2))
    assert differences(one, other) == {"oven.num_trays": (1, 2), "oven.seed": (1, 2), "seed": (1, 2)}
    assert list(differences(one, other, free={"seed"})) == ["oven.num_trays"]
    assert list(differences(one, other, free={"oven.num_trays", "oven.seed"})) == ["seed"]
    assert differences(one, one) == {}


@pytest.mark.parametrize("recipe", [paper, lab])
@pytest.mark.parametrize("variant", ["action-only", "full", "dynamic-16"])
def test_a_printed_recipe_is_the_recipe(tmp_path, recipe, variant):
    text = to_toml(to_plain(recipe(variant)))
    (tmp_path / "a.toml").write_text(text)
    assert resolved(recipe(variant), file=tmp_path / "a.toml") == recipe(variant)
    names = {name for name, value in flattened(to_plain(recipe(variant))).items() if value is not None}
    assert set(flattened(tomllib.loads(text))) == names | {"unset"}
