"""NVIDIA GPUs, their driver and their connections, as text, from `nvidia-smi`."""

import re
import shutil
from pathlib import Path

from focusmem.schemas.machine import NOT_READABLE, output_of, row, tally

_NO_GPU = "no NVIDIA GPU"
_QUERY = "name,memory.total,power.limit,pcie.link.gen.max,pcie.link.width.max,driver_version"
_GPU = re.compile(r"GPU\d+")
_ROUTES = {
    "NV": "NVLink",
    "PIX": "one PCIe bridge",
    "PXB": "several PCIe bridges",
    "PHB": "PCIe and the CPU",
    "NODE": "PCIe and the CPU, within a NUMA node",
    "SYS": "PCIe and the CPU, across NUMA nodes",
}


def nvidia_rows(root: Path) -> tuple[dict[str, str], dict[str, str]]:
    """System rows (driver and CUDA) and hardware rows (GPUs, and the connections of pairs of GPUs)."""
    if shutil.which("nvidia-smi") is None:
        text = NOT_READABLE if (root / "proc/driver/nvidia").exists() else _NO_GPU
        return _system(text, text), _hardware([], text)
    try:
        lines = output_of("nvidia-smi", f"--query-gpu={_QUERY}", "--format=csv,noheader").splitlines()
        gpus = [[_value(word) for word in line.split(",")] for line in lines if line.strip()]
    except OSError:
        gpus = []
    gpus = [words for words in gpus if len(words) == len(_QUERY.split(","))]
    driver = gpus[0][5] if gpus else NOT_READABLE
    return _system(driver, row(_cuda_version)), _hardware(gpus, NOT_READABLE)


def _system(driver: str, cuda: str) -> dict[str, str]:
    return {"nvidia_driver": driver, "cuda_driver_api": cuda}


def _hardware(gpus: list[list[str]], absent: str) -> dict[str, str]:
    names, memories, caps, generations, widths, _ = zip(*gpus, strict=True) if gpus else [()] * 6
    links = [
        f"PCIe {generation}.0 x{width}" if generation.isdigit() and width.isdigit() else NOT_READABLE
        for generation, width in zip(generations, widths, strict=True)
    ]
    return {
        "gpu": tally(names) or absent,
        "gpu_memory": tally(memories) or absent,
        "gpu_memory_total": row(lambda: _total(memories)) if gpus else absent,
        "gpu_power_cap": tally(caps) or absent,
        "gpu_interface": tally(links) or absent,
        "gpu_interconnect": _interconnect(len(gpus)) if gpus else absent,
        "gpu_p2p": _peer_access(len(gpus)) if gpus else absent,
    }


def _value(word: str) -> str:
    """`nvidia-smi` writes [N/A] or [Not Supported] for a value that it cannot read."""
    word = word.strip()
    return word if word and not word.startswith("[") else NOT_READABLE


def _cuda_version() -> str:
    """The newest CUDA that the driver supports, from the heading of the table; newer drivers say `CUDA UMD Version`."""
    match = re.search(r"CUDA(?: UMD)? Version: *([\d.]+)", output_of("nvidia-smi"))
    return match[1] if match else NOT_READABLE


def _total(memories: tuple[str, ...]) -> str:
    return f"{sum(int(memory.removesuffix(' MiB')) for memory in memories) / 2**10:.1f} GiB"


def _interconnect(num_gpus: int) -> str:
    if num_gpus == 1:
        return "one GPU"
    return row(
        lambda: _of_all_pairs([_route(cell) for cell in _pairs(output_of("nvidia-smi", "topo", "-m"), num_gpus)])
    )


def _route(cell: str) -> str:
    return f"{cell} ({_ROUTES.get(cell.rstrip('0123456789'), 'unknown')})"


def _peer_access(num_gpus: int) -> str:
    if num_gpus == 1:
        return "one GPU"
    abilities = {"read": "r", "write": "w", "atomics": "a"}
    return "; ".join(f"{name}: {_p2p(flag, num_gpus)}" for name, flag in abilities.items())


def _p2p(flag: str, num_gpus: int) -> str:
    """OK, or a code such as CNS (chipset not supported), for every ordered pair of GPUs."""
    return row(lambda: _of_all_pairs(_pairs(output_of("nvidia-smi", "topo", "-p2p", flag), num_gpus)))


def _of_all_pairs(cells: list[str]) -> str:
    return f"{cells[0]} on all pairs" if len(set(cells)) == 1 else tally(cells)


def _pairs(matrix: str, num_gpus: int) -> list[str]:
    """The cells off the diagonal. The heading may hold terminal codes; columns after the GPUs are about CPUs."""
    lines = [line.split() for line in re.sub(r"\x1b\[\d*m", "", matrix).splitlines()]
    rows = [words for words in lines if len(words) > num_gpus and _GPU.match(words[0]) and not _GPU.match(words[1])]
    return [cell for words in rows for cell in words[1 : num_gpus + 1] if cell != "X"]
