"""Two ways to show figures: a table for people, or one JSON document on standard output."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def print_json(document: Mapping[str, Any]) -> None:
    json.dump(document, sys.stdout, indent=2, allow_nan=False)
    sys.stdout.write("\n")


def printable(text: str) -> str:
    """File names and instructions can hold anything; what is printed stays one line of valid text."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """The first column reads left to right, the others are figures."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # As text: names may hold square brackets, which are markup otherwise.
    table = Table(title=Text(title), title_justify="left")
    for index, column in enumerate(columns):
        table.add_column(Text(column), justify="left" if index == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    console = Console()
    if not console.is_terminal:  # a file is as wide as it needs to be
        console.width = max(console.width, Console(width=10_000).measure(table).maximum)
    console.print(table)


def print_markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("\\", "\\\\").replace("|", "\\|") for cell in cells) + " |\n"

    rule = "|" + "---|" * len(columns) + "\n"
    sys.stdout.write(line(columns) + rule + "".join(map(line, rows)))
