"""Worker processes that end together with the process that started them."""

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from focusmem.errors import FocusmemError

Work = Callable[[int], None]
"""The work of one process, given its number. It is pickled by name, so it must be importable."""


@contextmanager
def worker_processes(work: Work, num: int, *, may_have_children: bool = False) -> Iterator[Sequence[BaseProcess]]:
    """Starts `num` processes, numbered from zero. Processes that still run at the end of the block are terminated.
    With `may_have_children` they may start processes of their own, such as those that prepare batches.
    """
    context = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
    # Nothing is written to this pipe; end-of-file tells the workers that this process died.
    lifeline, our_end = context.Pipe(duplex=False)
    is_daemon = not may_have_children  # Python forbids children of daemons
    processes = [
        context.Process(target=_work, args=(work, number, lifeline), daemon=is_daemon) for number in range(num)
    ]
    try:
        with _deaf_to_interrupts():
            for process in processes:
                process.start()
        yield processes
    finally:
        for process in processes:
            if process.pid is not None:  # otherwise the process was never started
                process.terminate()
                process.join()
        lifeline.close()
        our_end.close()


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Processes started in this block ignore Ctrl-C. It reaches all processes at once, and only the starting process
    should end the others.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set signal handlers, and only it receives Ctrl-C
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _work(work: Work, number: int, lifeline: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # needed if the starting process could not set this
    threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()
    try:
        work(number)
    except FocusmemError as error:
        sys.stderr.write(f"focusmem: {error}\n")
        sys.stderr.flush()
        os._exit(2)  # not sys.exit: torch aborts if a thread still runs a model at interpreter shutdown


def _end_with(lifeline: Connection) -> None:
    """End this process at once when the starting process has ended, even if a signal killed it."""
    wait([lifeline])
    os._exit(1)
