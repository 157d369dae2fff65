"""Run a command while other processes keep every processor busy: python scripts/busy.py make test

With --load 4, four processes compute beside it instead of two for each processor. They end with the command, and the
exit code is the command's.
"""

import multiprocessing
import os
import signal
import subprocess
import sys


def compute(parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while os.getppid() == parent:  # also ends when the parent is killed
        sum(range(1_000_000))


def main() -> int:
    words = sys.argv[1:]
    load = 2 * (os.cpu_count() or 1)
    if words[:1] == ["--load"]:
        load, words = int(words[1]), words[2:]
    if not words:
        sys.exit(__doc__)
    others = [multiprocessing.Process(target=compute, args=(os.getpid(),), daemon=True) for _ in range(load)]
    for other in others:
        other.start()
    try:
        return subprocess.run(words, check=False).returncode
    finally:
        for other in others:
            other.kill()


if __name__ == "__main__":
    sys.exit(main())
