import json
import os

import pytest
from typer.testing import CliRunner

from factories import make_trajectory
from focusmem.cli.trajectory import app
from focusmem.errors import UserError
from focusmem.schemas import save_trajectory


@pytest.fixture
def bank(tmp_path):
    """Two sound trajectories and a damaged one, at different depths."""
    save_trajectory(tmp_path / "a", *make_trajectory(2))
    save_trajectory(tmp_path / "deep" / "b", *make_trajectory(3))
    save_trajectory(tmp_path / "deep" / "c", *make_trajectory(1))
    (tmp_path / "deep" / "c" / "trajectory.json").write_text("{")
    return tmp_path


def check(*words):
    return CliRunner().invoke(app, ["check", *map(str, words)])


def test_a_sound_trajectory_passes(bank):
    for path in (bank / "a", bank / "a" / "trajectory.json"):
        result = check(path)
        assert result.exit_code == 0
        assert result.stdout == "1 of 1 trajectories are valid.\n"


def test_problems_are_printed_and_counted(bank):
    result = check(bank)
    assert result.exit_code == 1
    problem, summary = result.stdout.splitlines()
    assert problem.startswith(str(bank / "deep" / "c" / "trajectory.json") + " is not valid JSON")
    assert summary == "2 of 3 trajectories are valid."


def test_json_is_one_document(bank):
    result = check(bank, "--json")
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    trajectories = document.pop("trajectories")
    assert document == {"num_trajectories": 3, "num_valid": 2, "valid_rate": 2 / 3}
    assert [entry["path"] for entry in trajectories] == [str(bank / name) for name in ("a", "deep/b", "deep/c")]
    assert [entry["is_valid"] for entry in trajectories] == [True, True, False]
    assert [entry["num_steps"] for entry in trajectories] == [2, 3, None]
    assert [len(entry["problems"]) for entry in trajectories] == [0, 0, 1]


def test_unfinished_folders_are_left_out(bank):
    (bank / "a").rename(bank / ".a.partial")
    assert json.loads(check(bank, "--json").stdout)["num_trajectories"] == 2


def test_odd_file_names_are_printed_in_one_line(bank):
    (bank / "a" / os.fsdecode(b"new\nline\xff")).write_text("x")
    result = check(bank / "a")
    assert result.exit_code == 1
    assert len(result.stdout.splitlines()) == 2


@pytest.mark.parametrize(
    ("name", "message"),
    [("nowhere", "does not exist"), ("empty", "holds no trajectory"), ("notes.txt", "neither a folder nor")],
)
def test_a_wrong_path_is_the_users_error(tmp_path, name, message):
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("x")
    result = check(tmp_path / name)
    assert isinstance(result.exception, UserError)
    assert message in str(result.exception)


def test_the_help_opens_with_a_line_to_paste():
    result = check("--help")
    assert result.exit_code == 0
    text = result.stdout[result.stdout.index("]") :] if "]" in result.stdout else result.stdout
    assert "focusmem trajectory check my-trajectories/" in text
