"""Shows figures in one of two ways: as a table for people, or as one JSON document on standard output."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def print_json(document: Mapping[str, Any]) -> None:
    json.dump(document, sys.stdout, indent=2, allow_nan=False)
    sys.stdout.write("\n")


def printable(text: str) -> str:
    """Text for one printed line. File names and instructions may contain any character; unprintable ones
    are escaped.
    """
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table. The first column is left-aligned, all others are right-aligned."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # As `Text`, because square brackets in plain strings would be read as markup.
    table = Table(title=Text(title), title_justify="left")
    for index, column in enumerate(columns):
        table.add_column(Text(column), justify="left" if index == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    console = Console()
    if not console.is_terminal:  # a file may be as wide as the table
        console.width = max(console.width, Console(width=10_000).measure(table).maximum)
    console.print(table)


def print_markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("\\", "\\\\").replace("|", "\\|") for cell in cells) + " |\n"

    rule = "|" + "---|" * len(columns) + "\n"
    sys.stdout.write(line(columns) + rule + "".join(map(line, rows)))
