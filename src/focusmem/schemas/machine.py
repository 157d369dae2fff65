"""What a Linux machine says about its processors and its memory, as text, from /proc and /sys.

A row that cannot be read says so: in containers and on other systems parts of both are missing.
"""

import os
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

NOT_READABLE = "not readable"
_TIME_LIMIT_S = 20.0
_CPU_FOLDERS = "sys/devices/system/cpu/cpu[0-9]*"
_SIZE_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


def row(read: Callable[[], str]) -> str:
    """What `read` returns. A fact that cannot be had must not break the run that asked for it, whatever is missing."""
    try:
        return read().strip() or NOT_READABLE
    except Exception:
        return NOT_READABLE


def output_of(*words: str, folder: Path | None = None) -> str:
    """What a command prints; an OSError if it fails or takes too long."""
    try:
        done = subprocess.run(
            words,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIME_LIMIT_S,
            check=True,
        )
    except subprocess.SubprocessError as error:
        raise OSError(f"{words[0]}: {error}") from error
    return done.stdout.replace("\0", "")


def tally(values: Iterable[str]) -> str:
    """Equal values once, with their number: `2 x Intel Xeon`."""
    return ", ".join(f"{number} x {value}" for value, number in Counter(values).items())


def processor_rows(root: Path) -> dict[str, str]:
    topology = _topology(root)
    sockets = {socket for socket, _ in topology}
    return {
        "cpu_model": row(lambda: ", ".join(dict.fromkeys(_cpuinfo(root, "model name")))),
        "cpu_sockets": str(len(sockets) or NOT_READABLE),
        "cpu_cores": str(len(set(topology)) or NOT_READABLE),
        "cpu_threads": str(len(topology) or NOT_READABLE),
        "cpu_threads_usable": row(lambda: str(len(os.sched_getaffinity(0)))),
        "cpu_frequency": row(lambda: _frequency(root)),
        "cpu_cache": row(lambda: _caches(root)),
        "numa_nodes": row(lambda: _numa_nodes(root)),
    }


def memory_rows(root: Path) -> dict[str, str]:
    meminfo = root / "proc/meminfo"
    return {
        "memory": row(lambda: _size_in(meminfo, "MemTotal")),
        "swap": row(lambda: _size_in(meminfo, "SwapTotal")),
    }


def _topology(root: Path) -> list[tuple[str, str]]:
    """Socket and core of every hardware thread; a core is named by its threads, since numbers may repeat per die."""
    folders = [folder / "topology" for folder in root.glob(_CPU_FOLDERS)]
    try:
        threads = [
            (text_of(folder / "physical_package_id"), text_of(folder / "thread_siblings_list"))
            for folder in folders
            if folder.is_dir()
        ]
        return threads or list(zip(_cpuinfo(root, "physical id"), _cpuinfo(root, "core id"), strict=True))
    except (OSError, ValueError):
        return []


def _frequency(root: Path) -> str:
    """The highest possible one; where the system hides it, the highest at this moment."""
    limits_khz = [int(text_of(path)) for path in root.glob(f"{_CPU_FOLDERS}/cpufreq/cpuinfo_max_freq")]
    if limits_khz:
        return f"up to {max(limits_khz) / 1e6:.2f} GHz"
    return f"{max(map(float, _cpuinfo(root, 'cpu MHz'))) / 1e3:.2f} GHz at the time"


def _caches(root: Path) -> str:
    """The sum of each kind over the machine. A cache that several threads share is listed by each of them."""
    sizes: dict[tuple[str, str], dict[str, int]] = {}
    for folder in root.glob(f"{_CPU_FOLDERS}/cache/index[0-9]*"):
        kind = text_of(folder / "type")
        name = f"L{text_of(folder / 'level')}" + {"Data": "d", "Instruction": "i"}.get(kind, "")
        size = text_of(folder / "size")  # such as 48K
        num_bytes = int(size.rstrip("KMG")) * _SIZE_UNITS[size.lstrip("0123456789")]
        sizes.setdefault((name, kind), {})[text_of(folder / "shared_cpu_list")] = num_bytes
    return ", ".join(f"{name} {_binary_size(sum(own.values()))}" for (name, _), own in sorted(sizes.items()))


def _numa_nodes(root: Path) -> str:
    return tally(
        f"{_size_in(folder / 'meminfo', 'MemTotal')} and {_num_listed(text_of(folder / 'cpulist'))} threads"
        for folder in sorted(root.glob("sys/devices/system/node/node[0-9]*"))
    )


def _size_in(path: Path, name: str) -> str:
    """A size from a file of lines such as `MemTotal:  24684092 kB`."""
    match = re.search(rf"\b{name}:\s+(\d+) kB", text_of(path))
    if match is None:
        raise ValueError(f"{path} has no {name}")
    return f"{int(match[1]) / 2**20:.1f} GiB"


def _binary_size(num_bytes: int) -> str:
    return f"{num_bytes / 2**20:g} MiB" if num_bytes >= 2**20 else f"{num_bytes / 2**10:g} KiB"


def _num_listed(ranges: str) -> int:
    """How many numbers there are in a list such as `0-15,32-47`."""
    pairs = [part.partition("-") for part in ranges.split(",") if part]
    return sum(int(last or first) - int(first) + 1 for first, _, last in pairs)


def _cpuinfo(root: Path, name: str) -> list[str]:
    return re.findall(rf"^{name}\s*:\s*(.+)$", text_of(root / "proc/cpuinfo"), re.MULTILINE)


def text_of(path: Path) -> str:
    """A file as text that a record can hold, whatever its bytes are."""
    return path.read_text(errors="replace").replace("\0", "").strip()
