"""The command line as it was typed, for the record of a run."""

import sys

from focusmem.cli.output import printable


def command_line() -> tuple[str, ...]:
    """The words of the command line, with the program's plain name in place of its path."""
    return "focusmem", *map(printable, sys.argv[1:])
