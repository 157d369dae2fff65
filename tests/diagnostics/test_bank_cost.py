import json

import pytest
from typer.testing import CliRunner

from focusmem.cli.main import app
from focusmem.diagnostics.bank_cost import BankCostConfig, measure_bank
from focusmem.errors import ConfigError


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


def test_more_queries_than_vectors_cannot_be_made():
    with pytest.raises(ConfigError, match="at most 5 can be made"):
        BankCostConfig(num_vectors=5, num_queries=6)
    with pytest.raises(ConfigError, match="choose one of clusters, smooth"):
        BankCostConfig(kind="odd")
