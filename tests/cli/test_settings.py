"""Every command keeps its help short and its other settings behind --set."""

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from focusmem.cli.main import app
from focusmem.errors import ConfigError
from focusmem.model.config import MemoryConfig

MOST_OPTIONS = 12


def commands(group=None, path=()):
    group = get_command(app) if group is None else group
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


COMMANDS = dict(commands())


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_the_first_panel_has_few_options(path):
    """--help is one of them."""
    options = [one for one in COMMANDS[path].params if one.param_type_name == "option"]
    first = [one.name for one in options if getattr(one, "rich_help_panel", None) is None]
    assert len({*first, "help"}) <= MOST_OPTIONS, first


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_option_has_a_help_text_and_the_command_a_line_to_paste(path):
    command = COMMANDS[path]
    assert command.help.splitlines()[0].startswith(f"focusmem {' '.join(path)}")
    assert [one.name for one in command.params if one.param_type_name == "option" and not one.help] == []


@pytest.mark.parametrize(
    "words",
    [
        ("lab", "pretrain", "--out", "x"),
        ("lab", "embedder", "--out", "x"),
        ("lab", "gate", "full", "--checkpoint", "x"),
        ("lab", "benefit", "full", "--checkpoint", "x"),
        (
            "lab",
            "examine",
        ),
        ("bench", "readout"),
        ("bench", "bank"),
        ("bench", "select"),
        ("model", "describe"),
    ],
    ids=" ".join,
)
def test_settings_are_printed_and_read_back(words, tmp_path):
    """What --dry-run prints is a settings file; a setting that does not exist is named."""
    run = CliRunner().invoke
    printed = run(app, [*words, "--dry-run"])
    assert printed.exit_code == 0, (printed.output, printed.exception)
    (tmp_path / "a.toml").write_text(printed.stdout)
    again = run(app, [*words, "--config", str(tmp_path / "a.toml"), "--dry-run"])
    assert again.stdout == printed.stdout
    wrong = run(app, [*words, "--set", "nothing=3", "--dry-run"])
    assert isinstance(wrong.exception, ConfigError)
    assert "There is no setting 'nothing'" in str(wrong.exception)


def test_an_option_is_a_setting():
    run = CliRunner().invoke
    words = ["model", "describe", "--backbone", "toy", "--tokens", "4", "--dry-run"]
    by_option, by_set = run(app, words), run(app, [*words[:4], "--set", "compressor.num_tokens=4", "--dry-run"])
    assert by_option.stdout == by_set.stdout
    assert "num_tokens = 4" in by_option.stdout
    assert MemoryConfig().compressor.num_tokens != 4
