"""The line that was typed, for the records that runs keep."""

import sys

from focusmem.cli.output import printable


def command_line() -> tuple[str, ...]:
    """Word by word, however the program itself was found."""
    return "focusmem", *map(printable, sys.argv[1:])
