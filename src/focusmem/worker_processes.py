"""Processes that share a piece of work, and that never outlive the one that started them."""

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
"""What each of them does, given its number; it is sent to them, so it must be something that pickle can name."""


@contextmanager
def worker_processes(work: Work, num: int) -> Iterator[Sequence[BaseProcess]]:
    """Numbers from zero, at work. Whoever of them is still alive at the end of the block is ended."""
    context = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
    # Nothing is ever said here: that it closes is how they learn that this process is gone, however it went.
    lifeline, our_end = context.Pipe(duplex=False)
    processes = [context.Process(target=_work, args=(work, number, lifeline), daemon=True) for number in range(num)]
    try:
        with _deaf_to_interrupts():
            for process in processes:
                process.start()
        yield processes
    finally:
        for process in processes:
            if process.pid is not None:  # else it was never started
                process.terminate()
                process.join()
        lifeline.close()
        our_end.close()


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Processes that are started meanwhile stay so: Ctrl-C reaches all of them at once, and ending them is for the one
    that started them.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may change this, and only it hears Ctrl-C
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _work(work: Work, number: int, lifeline: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # also where the one that started this could not see to it
    threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()
    try:
        work(number)
    except FocusmemError as error:
        sys.stderr.write(f"focusmem: {error}\n")
        sys.stderr.flush()
        os._exit(2)  # a model may still be answering in a thread, and torch aborts when the interpreter ends under it


def _end_with(lifeline: Connection) -> None:
    """End this process at once when the one that started it has ended, be it by a signal that it could not see."""
    wait([lifeline])
    os._exit(1)
