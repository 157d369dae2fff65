"""A command that fails while a thread is in torch, as a mind's may be: python failing_command.py"""

import atexit
import sys
import threading
import time

import torch

from focusmem.cli import main
from focusmem.errors import StorageError


def answer() -> None:
    rows = torch.ones(1500, 1500)
    while True:
        rows @ rows


@main.app.command()
def fail() -> None:
    atexit.register(sys.stdout.write, "closed\n")
    threading.Thread(target=answer, daemon=True).start()
    time.sleep(0.3)
    sys.stdout.write("begun\n")
    raise StorageError("The disk is full.")


if __name__ == "__main__":
    sys.argv = ["focusmem", "fail"]
    main.main()
