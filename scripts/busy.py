"""Run a command while other processes keep every processor busy: python scripts/busy.py make test

Two processes for each processor compute beside it, or as many as `--load 6` says. They end with the command, and the
exit code is the command's.
"""

import os
import subprocess
import sys

COMPUTE = """
import os, sys
while os.getppid() == int(sys.argv[1]):  # also ends when this script is killed
    sum(range(1_000_000))
"""


def main() -> int:
    words, load = sys.argv[1:], 2 * (os.cpu_count() or 1)
    if words[:1] == ["--load"]:
        load, words = int(words[1]), words[2:]
    if not words:
        sys.exit(__doc__)
    neighbour = [sys.executable, "-c", COMPUTE, str(os.getpid())]
    neighbours = [subprocess.Popen(neighbour, start_new_session=True) for _ in range(load)]
    try:
        return subprocess.run(words, check=False).returncode
    finally:
        for one in neighbours:
            one.kill()


if __name__ == "__main__":
    sys.exit(main())
