"""The processors and the memory of a Linux machine, as text, from /proc and /sys.

A row that cannot be read is `not readable`, because containers and other systems lack parts of /proc and /sys.
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
    """The result of `read`, or `not readable` after any error, because a missing fact must not break a run."""
    try:
        return read().strip() or NOT_READABLE
    except Exception:
        return NOT_READABLE


def output_of(*words: str, folder: Path | None = None) -> str:
    """The output of a command. Raises OSError if it fails or takes too long."""
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
    """Each different value with its count: `2 x Intel Xeon`."""
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
    """Socket and core of every hardware thread. A core is named by its threads, because core numbers may repeat on each
    die.
    """
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
    """The maximum frequency of any core; if the system does not show it, the highest current one."""
    limits_khz = [int(text_of(path)) for path in root.glob(f"{_CPU_FOLDERS}/cpufreq/cpuinfo_max_freq")]
    if limits_khz:
        return f"up to {max(limits_khz) / 1e6:.2f} GHz"
    return f"{max(map(float, _cpuinfo(root, 'cpu MHz'))) / 1e3:.2f} GHz at the time"


def _caches(root: Path) -> str:
    """The total size of each kind of cache. A cache that several threads share is listed by each of them but counted
    once.
    """
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
    """The count of numbers in a list such as `0-15,32-47`."""
    pairs = [part.partition("-") for part in ranges.split(",") if part]
    return sum(int(last or first) - int(first) + 1 for first, _, last in pairs)


def _cpuinfo(root: Path, name: str) -> list[str]:
    return re.findall(rf"^{name}\s*:\s*(.+)$", text_of(root / "proc/cpuinfo"), re.MULTILINE)


def text_of(path: Path) -> str:
    """A file as text that a record can hold; other bytes are replaced."""
    return path.read_text(errors="replace").replace("\0", "").strip()
