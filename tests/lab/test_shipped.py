import shutil
import tomllib
from pathlib import Path

import pytest

from focusmem.errors import StorageError
from focusmem.lab import shipped
from focusmem.lab.shipped import SHIPPED, Weights

ROOT = Path(__file__).parents[2]


def test_parts_that_are_there_are_found(toy_weights):
    weights = Weights(toy_weights)
    found = [weights.policy, weights.embedder, weights.memory("full"), weights.memory("action-only"), weights.bank]
    names = ["policy", "embedder", "memory/full", "memory/action-only", "bank"]
    assert [place.relative_to(toy_weights).as_posix() for place in found] == names


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda weights: weights.policy, ["policy", "focusmem lab pretrain"]),
        (lambda weights: weights.embedder, ["embedder", "focusmem lab embedder --out"]),
        (lambda weights: weights.memory("full"), ["memory/full", "focusmem lab train full"]),
        (lambda weights: weights.bank, ["bank", "focusmem lab bank --out"]),
    ],
)
def test_a_part_that_is_missing_is_named_with_the_command_that_makes_it(tmp_path, monkeypatch, ask, words):
    with pytest.raises(StorageError) as own:
        ask(Weights(tmp_path))
    assert all(word in str(own.value) for word in [*words, str(tmp_path)])
    monkeypatch.setattr(shipped, "SHIPPED", tmp_path)
    with pytest.raises(StorageError, match="ships without"):
        ask(Weights())


def test_everything_that_ships_is_in_the_wheel(toy_weights, tmp_path):
    """The patterns of pyproject.toml cover each file of such a folder, wherever it lies."""
    package = tmp_path / "focusmem"
    shutil.copytree(toy_weights, package / SHIPPED.relative_to(ROOT / "src" / "focusmem"))
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = settings["tool"]["setuptools"]["package-data"]["focusmem"]
    covered = {path for pattern in patterns for path in package.glob(pattern)}
    files = {path for path in package.rglob("*") if path.is_file()}
    assert files <= covered
    assert not any(part.startswith(".") for path in files for part in path.parts[len(package.parts) :])
