"""What the README tells people to paste must run."""

import re
from pathlib import Path

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_the_python_example_runs_as_written(capsys):
    [code] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out.startswith("[")


def test_every_file_it_names_exists():
    root = Path(__file__).parents[1]
    for path in re.findall(r"`((?:src|docs|tests)/[^` ]*)`", README):
        assert (root / path).exists(), path
