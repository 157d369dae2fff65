"""The `focusmem` command: the list of its subcommands."""

import atexit
import logging
import os
import sys
import threading
from contextlib import suppress
from typing import NoReturn

import typer

from focusmem.cli import (
    bank,
    bench,
    compare,
    data,
    demo,
    judge,
    lab_memory,
    model,
    report,
    reproduce,
    run,
    suites,
    train,
    trajectory,
)
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
app.add_typer(suites.app, name="suites", help="Suites of tasks, and the files of benchmarks.")
app.add_typer(model.app, name="model", help="The parts of the memory pathway and their sizes.")
app.add_typer(lab_memory.app, name="lab", help="The small offline world: sites, tasks, solvers, policy, memories.")
app.add_typer(trajectory.app, name="trajectory", help="Check stored trajectories.")
app.add_typer(bank.app, name="bank", help="Store trajectories and find the useful ones.")
app.add_typer(data.app, name="data", help="Read other agents' results, and write ours for benchmarks' own scripts.")
app.add_typer(bench.app, name="bench", help="Measure how fast the parts are on this machine.")
app.add_typer(reproduce.app, name="reproduce", help="Make our results again, in units that can be resumed.")
app.command(name="train")(train.train)
app.command(name="judge")(judge.judge)
app.command(name="report")(report.report)
app.command(name="compare")(compare.compare)
app.command(name="table")(compare.table)


def main() -> None:
    """Runs a command. A mistake of the user prints one line. A bug in focusmem prints a traceback."""
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
        if ending.code == _INTERRUPTED:  # typer's exit code for Ctrl-C
            _stop()
        raise


def _stop() -> NoReturn:
    sys.stderr.write("\nfocusmem: stopped\n")
    _leave(_INTERRUPTED)


def _leave(code: int) -> NoReturn:
    """End the process at once. Everything is closed by now, but a thread may still run a model, and torch would abort
    at interpreter shutdown.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
