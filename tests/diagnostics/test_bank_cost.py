import json

import pytest
from typer.testing import CliRunner

from focusmem.cli.main import app
from focusmem.diagnostics.bank_cost import BankCostConfig, measure_bank
from focusmem.errors import ConfigError, StorageError


@pytest.mark.parametrize("kind", ["clusters", "smooth"])
def test_a_small_bank_is_searched_exactly(tmp_path, kind):
    sizes = {"num_vectors": 600, "width": 64, "num_centres": 20, "num_queries": 10}
    figures = measure_bank(BankCostConfig(**sizes, kind=kind, folder=tmp_path))
    assert figures["recall"] == 1.0
    assert figures["is_exact"]
    assert list(tmp_path.iterdir()) == [], "the bank is removed again"


def test_the_command_writes_its_figures(tmp_path):
    out = tmp_path / "bank.json"
    words = ["bench", "bank", "--vectors", "300", "--width", "32", "--queries", "5", "--out", str(out)]
    result = CliRunner().invoke(app, [*words, "--json"])
    assert result.exit_code == 0, result.exception
    assert json.loads(result.stdout)["recall"] == json.loads(out.read_text())["recall"] == 1.0
    assert "recall at 3" in CliRunner().invoke(app, words).output


def test_where_nothing_is_left_to_find_there_is_no_recall(tmp_path):
    figures = measure_bank(BankCostConfig(num_vectors=1, width=32, num_centres=2, num_queries=1, folder=tmp_path))
    assert figures["recall"] is None
    words = ["bench", "bank", "--vectors", "1", "--width", "32", "--queries", "1", "--out", str(tmp_path / "out.json")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.exception
    assert "nothing to find" in result.output


def test_a_folder_that_is_not_there_is_named(tmp_path):
    sizes = {"num_vectors": 5, "width": 32, "num_queries": 1}
    with pytest.raises(StorageError, match=r"nowhere.*No such file"):
        measure_bank(BankCostConfig(**sizes, folder=tmp_path / "nowhere"))


def test_vectors_wider_than_a_bank_takes_cannot_be_made():
    with pytest.raises(ConfigError, match=r"width is 100000; .*at most 65536"):
        BankCostConfig(width=100_000)


def test_more_queries_than_vectors_cannot_be_made():
    with pytest.raises(ConfigError, match="at most 5 can be made"):
        BankCostConfig(num_vectors=5, num_queries=6)
    with pytest.raises(ConfigError, match="choose one of 'clusters' or 'smooth'"):
        BankCostConfig(kind="odd")
