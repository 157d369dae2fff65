"""Work in two processes, to be cut off: python shared_work.py FOLDER; each leaves a file there and goes on and on."""

import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path

import torch

from focusmem.errors import StorageError
from focusmem.worker_processes import worker_processes


def stay(folder, number):
    (folder / str(number)).touch()
    time.sleep(3600)


def answer(has_begun):
    """As a model does, in torch."""
    rows = torch.ones(1500, 1500)
    while True:
        rows @ rows
        has_begun.set()


def fail(number):
    if number == 1:
        has_begun = threading.Event()
        threading.Thread(target=answer, args=(has_begun,), daemon=True).start()
        has_begun.wait()
        raise StorageError("The disk is full.")


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where tests run in the background
    try:
        with worker_processes(partial(stay, Path(sys.argv[1])), 2) as started:
            started[0].join()
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")
