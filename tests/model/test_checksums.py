import shutil
import subprocess

import pytest

from focusmem.errors import BackboneError
from focusmem.model.backbone import Backbone


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("backbone")
    Backbone.toy(num_layers=1).save(folder)
    return folder


@pytest.fixture
def copy(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "copy")


FILES = ("config.json", "model.safetensors", "preprocessor_config.json", "tokenizer.json", "tokenizer_config.json")


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_in_any_file_is_noticed_and_named(copy, name):
    path = copy / name
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    path.write_bytes(data)
    with pytest.raises(BackboneError, match=rf"copy/{name} is damaged.*Copy the file again"):
        Backbone.load(copy)


def test_every_file_that_the_backbone_is_read_from_has_a_digest(saved):
    names = [line.split()[1] for line in (saved / "SHA256SUMS").read_text().splitlines()]
    assert set(FILES) <= set(names)
    assert {path.name for path in saved.iterdir()} == {*names, "SHA256SUMS"}
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=saved, check=True)


def test_a_file_without_a_digest_is_refused(copy):
    path = copy / "SHA256SUMS"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[1:]))
    with pytest.raises(BackboneError, match=r"config\.json is damaged"):
        Backbone.load(copy)


def test_files_beside_it_may_change(copy):
    (copy / "card.json").write_text("{}")
    Backbone.load(copy)


def test_a_folder_without_digests_is_loaded_as_it_is(copy):
    (copy / "SHA256SUMS").unlink()
    Backbone.load(copy)
