import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from focusmem.cli.main import app
from focusmem.errors import ConfigError
from focusmem.model.checkpoint import Checkpoint
from focusmem.training.vital_signs import VitalSigns
from toys import make_policy


def focusmem(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "focusmem.cli.main", *words], capture_output=True, text=True, check=False
    )


def test_help_is_instant_since_it_loads_nothing_but_what_prints_it():
    """Of our packages only the commands themselves, which load the others when they run."""
    code = """
import atexit, json, sys
from focusmem.cli.main import main
atexit.register(lambda: sys.stderr.write(json.dumps(list(sys.modules))))
sys.argv = ["focusmem", "--help"]
main()
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = [name.split(".") for name in json.loads(result.stderr)]
    assert {name[1] for name in loaded if name[0] == "focusmem" and len(name) > 1} == {"cli", "errors"}
    assert not {name[0] for name in loaded} & {"numpy", "PIL", "pydantic", "torch", "transformers", "matplotlib"}


def test_describe_prints_one_json_document():
    result = CliRunner().invoke(app, ["model", "describe", "--backbone", "qwen3-vl-8b", "--json"])
    assert result.exit_code == 0, result.output
    counts = json.loads(result.stdout)["num_parameters"]
    assert counts["lora"] == 174_587_904
    assert counts["compressor"] + counts["readout"] == 244_474_112


def test_describe_prints_a_table():
    result = CliRunner().invoke(app, ["model", "describe", "--backbone", "qwen3-vl-8b"])
    assert result.exit_code == 0
    assert "234,995,712" in result.output


def test_a_card_tells_what_departs_from_the_paper():
    told = json.loads(CliRunner().invoke(app, ["model", "card", "full", "--json"]).stdout)
    assert (told["variant"], told["recipe"]) == ("full", "lab")
    assert told["acting"] == {"is_dynamic": True, "is_gated": True}
    result = CliRunner().invoke(app, ["model", "card", "full"])
    assert result.exit_code == 0
    assert {f"- {line}" for line in (*told["departures"], *told["scale"])} <= set(result.output.splitlines())


@pytest.mark.parametrize("shuffled_nats", [0.401, 0.9])
def test_a_card_says_if_the_readout_is_not_trained(shuffled_nats, tmp_path):
    signs = VitalSigns(32, 0.41, 0.4, shuffled_nats, 1.0, 0.02, 0.97, 0.25).as_plain() | {"is_learnt_from": False}
    Checkpoint.save(make_policy(), tmp_path / "memory", notes={"stage": "stage_b", "vital_signs": signs})
    told = json.loads(CliRunner().invoke(app, ["model", "card", str(tmp_path / "memory"), "--json"]).stdout)
    assert told["vital_signs"] == signs
    shown = CliRunner().invoke(app, ["model", "card", str(tmp_path / "memory")]).output
    assert ("not trained" in shown) == (shuffled_nats < 0.5)
    assert "0.400 with own states" in shown
    assert "97% of ordinary blocks" in shown


def test_a_users_mistake_is_one_line_and_no_traceback():
    result = focusmem("model", "describe", "--backbone", "qwen9")
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("focusmem: Unknown backbone 'qwen9'")
    assert len(result.stderr.splitlines()) == 1


def test_a_mistake_that_shows_while_a_model_answers_ends_as_any_other():
    """Torch aborts when the interpreter ends under a thread that is in it."""
    script = Path(__file__).with_name("failing_command.py")
    result = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert result.stderr == "focusmem: The disk is full.\n"
    assert result.stdout == "begun\nclosed\n", "what was printed is there, and what was to be closed at the end"
    assert result.returncode == 2


def test_budget_that_does_not_exist():
    with pytest.raises(ConfigError, match="choose one of 1, 2, 4, 8 or 16"):
        CliRunner().invoke(app, ["model", "describe", "--tokens", "5"], catch_exceptions=False)


def test_bench_writes_its_figures_and_keeps_standard_output_clean(tmp_path):
    out = tmp_path / "figures" / "readout.json"
    words = [
        "--width",
        "64",
        "--episodic-tokens",
        "60",
        "--working-tokens",
        "20",
        "--repeats",
        "1",
        "--out",
        str(out),
    ]
    result = focusmem("bench", "readout", *words, "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == json.loads(out.read_text())
    assert "readout 4/4" in result.stderr, "the progress line"
    assert "cached" in CliRunner().invoke(app, ["bench", "readout", *words]).stdout


def test_a_device_that_is_not_there():
    with pytest.raises(ConfigError, match="no such GPU"):
        CliRunner().invoke(app, ["bench", "readout", "--device", "cuda:99", "--width", "64"], catch_exceptions=False)
