"""The environment of a run, read from the machine: the rows of the paper's tables of software and hardware (Appendix
E), and other facts that figures depend on.
"""

import functools
import importlib.metadata
import importlib.util
import platform
import re
import sys
from pathlib import Path

from focusmem.schemas.machine import NOT_READABLE, memory_rows, output_of, processor_rows, row, text_of
from focusmem.schemas.nvidia import nvidia_rows
from focusmem.schemas.run import Environment

PACKAGES = (
    "torch",
    "transformers",
    "vllm",
    "accelerate",
    "tokenizers",
    "safetensors",
    "triton",
    "peft",
    "lancedb",
    "pyarrow",
    "filelock",
    "numpy",
    "pillow",
    "pydantic",
    "matplotlib",
    "typer",
    "playwright",
    "openai",
    "ray",
)
_NOT_INSTALLED = "not installed"
_NO_CUDA = "none: torch is built without it"


def collect_environment(
    seeds: dict[str, int],
    hardware: dict[str, str] | None = None,
    *,
    system: dict[str, str] | None = None,
    root: Path = Path("/"),
) -> Environment:
    """Commit, packages, system and machine. A value that cannot be read is `not readable`; nothing is raised.

    `hardware` and `system` add what only the caller knows, such as the chosen accelerator or the browser's version.
    `root` is the folder that contains proc, sys and etc.
    """
    commit, has_changes = _code()
    machine = _machine(root)
    return Environment(
        commit=commit,
        has_uncommitted_changes=has_changes,
        packages=_packages(),
        system={**machine.system, **_torch_rows(), **(system or {})},
        hardware={**machine.hardware, **(hardware or {})},
        seeds=seeds,
    )


@functools.cache
def _machine(root: Path) -> Environment:
    """The facts that do not change while a process runs. They are cached, because querying every GPU takes seconds."""
    driver, gpus = nvidia_rows(root)
    system = {"operating_system": row(lambda: _system_name(root)), "kernel": row(lambda: _kernel(root)), **driver}
    processor = processor_rows(root)
    return Environment(
        system=system, hardware={"machine": platform.machine(), **processor, **memory_rows(root), **gpus}
    )


def _system_name(root: Path) -> str:
    match = re.search(r'^PRETTY_NAME="?([^"\n]+)', text_of(root / "etc/os-release"), re.MULTILINE)
    return match[1] if match else NOT_READABLE


def _kernel(root: Path) -> str:
    return f"Linux {text_of(root / 'proc/sys/kernel/osrelease')}"


@functools.cache
def _packages() -> dict[str, str]:
    return {"python": platform.python_version(), **{name: _version(name) for name in ("focusmem", *PACKAGES)}}


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package) or NOT_READABLE
    except importlib.metadata.PackageNotFoundError:
        return _NOT_INSTALLED


def _torch_rows() -> dict[str, str]:
    """The CUDA that torch was built for, and its cuDNN. torch is not imported for this: that takes seconds."""
    cuda = row(_cuda_of_torch)
    return {"cuda": cuda, "cudnn": cuda if cuda == _NO_CUDA else row(_cudnn)}


def _cuda_of_torch() -> str:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return _NOT_INSTALLED
    versions = (Path(spec.origin).parent / "version.py").read_text()
    match = re.search(r"^cuda\b.*= *(?:'([\d.]+)'|None)", versions, re.MULTILINE)
    assert match is not None, "torch/version.py has changed"
    return match[1] or _NO_CUDA


def _cudnn() -> str:
    if "torch" in sys.modules:
        return str(sys.modules["torch"].backends.cudnn.version() or NOT_READABLE)
    wheels = [one.version for one in importlib.metadata.distributions() if one.name.startswith("nvidia-cudnn")]
    return wheels[0] if wheels else NOT_READABLE


@functools.cache
def _code() -> tuple[str | None, bool | None]:
    """The commit of the checkout that this code lies in, and whether files differ from it; None outside of one."""
    folder = Path(__file__).parent
    try:
        # An installed copy may lie below someone else's checkout, which does not track it.
        output_of("git", "ls-files", "--error-unmatch", Path(__file__).name, folder=folder)
        commit = output_of("git", "rev-parse", "HEAD", folder=folder).strip()
        return commit, bool(output_of("git", "status", "--porcelain", folder=folder).strip())
    except OSError:
        return None, None
