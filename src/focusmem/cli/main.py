"""The `focusmem` command: the list of its verbs."""

import atexit
import logging
import os
import sys
import threading
from contextlib import suppress
from typing import NoReturn

import typer

from focusmem.cli import bank, bench, compare, demo, judge, lab_memory, model, report, run, train, trajectory
from focusmem.errors import FocusmemError

_MISTAKEN, _INTERRUPTED = 2, 130

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    help="Latent memory for frozen GUI agents. Try: focusmem demo",
)
app.command(name="demo")(demo.demo)
app.command(name="run")(run.run)
app.add_typer(model.app, name="model", help="What the memory pathway is made of.")
app.add_typer(lab_memory.app, name="lab", help="The small offline world: sites, tasks, solvers, a policy.")
app.add_typer(trajectory.app, name="trajectory", help="Trajectories on disk.")
app.add_typer(bank.app, name="bank", help="Remember trajectories, find the useful ones.")
app.add_typer(bench.app, name="bench", help="How fast the parts are on this machine.")
app.command(name="train")(train.train)
app.command(name="judge")(judge.judge)
app.command(name="report")(report.report)
app.command(name="compare")(compare.compare)
app.command(name="table")(compare.table)


def main() -> None:
    """Run a command; a mistake of the user's is one line, a bug of ours a traceback."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    try:
        app()
    except FocusmemError as error:
        sys.stderr.write(f"focusmem: {error}\n")
        if any(thread.daemon for thread in threading.enumerate()):
            _leave(_MISTAKEN)
        sys.exit(_MISTAKEN)
    except KeyboardInterrupt:
        _stop()
    except SystemExit as ending:
        if ending.code == _INTERRUPTED:  # how typer tells of Ctrl-C
            _stop()
        raise


def _stop() -> NoReturn:
    sys.stderr.write("\nfocusmem: stopped\n")
    _leave(_INTERRUPTED)


def _leave(code: int) -> NoReturn:
    """At once: everything has been closed by now, but a model may still be answering in a thread, and torch aborts when
    the interpreter ends under it.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
