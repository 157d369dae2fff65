"""A command that fails while a thread is in torch, as a mind's may be: python failing_command.py"""

import atexit
import sys
import threading

import torch

from focusmem.cli import main
from focusmem.errors import StorageError


def answer(has_begun: threading.Event) -> None:
    rows = torch.ones(1500, 1500)
    while True:
        rows @ rows
        has_begun.set()


@main.app.command()
def fail() -> None:
    atexit.register(sys.stdout.write, "closed\n")
    has_begun = threading.Event()
    threading.Thread(target=answer, args=(has_begun,), daemon=True).start()
    has_begun.wait()
    sys.stdout.write("begun\n")
    raise StorageError("The disk is full.")


if __name__ == "__main__":
    sys.argv = ["focusmem", "fail"]
    main.main()
