import os
import stat
import subprocess
import sys

import pytest

from focusmem.schemas import dump_record, parse_record
from focusmem.schemas import environment as collecting
from focusmem.schemas.environment import PACKAGES, collect_environment
from focusmem.schemas.machine import NOT_READABLE
from focusmem.schemas.run import Environment

SYSTEM_ROWS = {"operating_system", "kernel", "nvidia_driver", "cuda_driver_api", "cuda", "cudnn"}
HARDWARE_ROWS = {
    "machine", "cpu_model", "cpu_sockets", "cpu_cores", "cpu_threads", "cpu_threads_usable", "cpu_frequency",
    "cpu_cache", "numa_nodes", "memory", "swap", "gpu", "gpu_memory", "gpu_memory_total", "gpu_power_cap",
    "gpu_interface", "gpu_interconnect", "gpu_p2p",
}  # fmt: skip

# The server of the paper, as its files and its driver would show it: two sockets of 32 cores with two threads each.
NUM_SOCKETS, NUM_CORES, NUM_NODES = 2, 32, 4
NUM_THREADS = 2 * NUM_SOCKETS * NUM_CORES
CACHES = [("1", "Data", "48K"), ("1", "Instruction", "32K"), ("2", "Unified", "2048K"), ("3", "Unified", "163840K")]

NVIDIA_SMI = r"""#!/bin/sh
matrix() {
    printf '\t\033[4mGPU0\tGPU1\tGPU2\tGPU3\tGPU4\tGPU5\tGPU6\tGPU7\tCPU Affinity\033[0m\n'
    for row in 0 1 2 3 4 5 6 7; do
        printf ' GPU%s' $row
        for column in 0 1 2 3 4 5 6 7; do
            if [ $row = $column ]; then printf '\t X '; else printf '\t%s' $1; fi
        done
        printf '%s\n' "$2"
    done
    printf '\nLegend:\n\n  X    = Self\n  NS   = Not supported\n'
}
case "$*" in
    --query-gpu=*) for gpu in 0 1 2 3 4 5 6 7; do
        echo "NVIDIA RTX PRO 6000 Blackwell Server Edition, 97887 MiB, 600.00 W, 5, 16, 580.105.08"; done ;;
    "") echo "| NVIDIA-SMI 580.105.08    Driver Version: 580.105.08    CUDA Version: 13.0     |" ;;
    "topo -m") matrix NODE "$(printf '\t0-31,64-95\t0\t\tN/A')" ;;
    "topo -p2p a") matrix NS ;;
    "topo -p2p "*) matrix OK ;;
    *) exit 2 ;;
esac
"""


@pytest.fixture(autouse=True)
def _asked_afresh():
    """No answer of another test, and none left for one: here `git` may be hidden."""
    collecting._code.cache_clear()
    yield
    collecting._code.cache_clear()


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def make_server(root):
    write(root / "etc/os-release", 'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 22.04 LTS"')
    write(root / "proc/sys/kernel/osrelease", "5.15.0-25-generic")
    write(root / "proc/meminfo", "MemTotal:       1056440320 kB\nSwapTotal:      71303168 kB")
    model = "processor\t: {0}\nmodel name\t: Intel(R) Xeon(R) Gold 6530\ncpu MHz\t\t: 800.000\n"
    write(root / "proc/cpuinfo", "\n".join(model.format(thread) for thread in range(NUM_THREADS)))
    for thread in range(NUM_THREADS):
        core = thread % (NUM_SOCKETS * NUM_CORES)
        socket = core // NUM_CORES
        siblings = f"{core},{core + NUM_SOCKETS * NUM_CORES}"
        folder = root / f"sys/devices/system/cpu/cpu{thread}"
        write(folder / "topology/physical_package_id", socket)
        write(folder / "topology/core_id", core % 16)  # numbers repeat on another die
        write(folder / "topology/thread_siblings_list", siblings)
        write(folder / "cpufreq/cpuinfo_max_freq", 4_000_000)
        for number, (level, kind, size) in enumerate(CACHES):
            shared = f"socket {socket}" if level == "3" else siblings
            values = {"level": level, "type": kind, "size": size, "shared_cpu_list": shared}
            for name, value in values.items():
                write(folder / f"cache/index{number}/{name}", value)
    for node in range(NUM_NODES):
        folder = root / f"sys/devices/system/node/node{node}"
        write(folder / "meminfo", f"Node {node} MemTotal:       264110080 kB")
        write(folder / "cpulist", f"{16 * node}-{16 * node + 15},{64 + 16 * node}-{79 + 16 * node}")


def offer(folder, monkeypatch, script):
    """Make a script the only `nvidia-smi` of this process."""
    program = folder / "bin" / "nvidia-smi"
    write(program, script)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")


def test_reads_every_row_of_the_papers_server(tmp_path, monkeypatch):
    make_server(tmp_path)
    offer(tmp_path, monkeypatch, NVIDIA_SMI)
    found = collect_environment({}, root=tmp_path)
    expected = {
        "operating_system": "Ubuntu 22.04 LTS",
        "kernel": "Linux 5.15.0-25-generic",
        "nvidia_driver": "580.105.08",
        "cuda_driver_api": "13.0",
    }
    assert {name: found.system[name] for name in expected} == expected
    unknown = {"machine", "cpu_threads_usable"}  # of this machine, whatever the files say
    assert {name: text for name, text in found.hardware.items() if name not in unknown} == {
        "cpu_model": "Intel(R) Xeon(R) Gold 6530",
        "cpu_sockets": "2",
        "cpu_cores": "64",
        "cpu_threads": "128",
        "cpu_frequency": "up to 4.00 GHz",
        "cpu_cache": "L1d 3 MiB, L1i 2 MiB, L2 128 MiB, L3 320 MiB",
        "numa_nodes": "4 x 251.9 GiB and 32 threads",
        "memory": "1007.5 GiB",
        "swap": "68.0 GiB",
        "gpu": "8 x NVIDIA RTX PRO 6000 Blackwell Server Edition",
        "gpu_memory": "8 x 97887 MiB",
        "gpu_memory_total": "764.7 GiB",
        "gpu_power_cap": "8 x 600.00 W",
        "gpu_interface": "8 x PCIe 5.0 x16",
        "gpu_interconnect": "NODE (PCIe and the CPU, within a NUMA node) on all pairs",
        "gpu_p2p": "read: OK on all pairs; write: OK on all pairs; atomics: NS on all pairs",
    }


def test_gpus_that_differ_are_counted_apart(tmp_path, monkeypatch):
    lines = [
        "A, 10 MiB, [N/A], 4, 16, 595.1",
        "A, 10 MiB, 90.00 W, 4, [N/A], 595.1",
        "B, 20 MiB, 90.00 W, 4, 16, 595.1",
    ]
    matrix = r"\tGPU0\tGPU1\tGPU2\nGPU0\tX\tNV12\tSYS\nGPU1\tNV12\tX\tSYS\nGPU2\tSYS\tSYS\tX\n"
    queried = r"\n".join(lines) + r"\n"
    script = f"""#!/bin/sh
case "$*" in
    --query-gpu=*) printf '{queried}' ;;
    "") echo "| NVIDIA-SMI 610.43.02   KMD Version: 610.43.02   CUDA UMD Version: 13.3 |" ;;
    topo*) printf '{matrix}' ;;
esac
"""
    offer(tmp_path, monkeypatch, script)
    found = collect_environment({}, root=tmp_path)
    assert found.system["cuda_driver_api"] == "13.3"
    gpus = {name: text for name, text in found.hardware.items() if name.startswith("gpu")}
    pairs = "2 x NV12, 4 x SYS"
    assert gpus == {
        "gpu": "2 x A, 1 x B",
        "gpu_memory": "2 x 10 MiB, 1 x 20 MiB",
        "gpu_memory_total": "0.0 GiB",
        "gpu_power_cap": f"1 x {NOT_READABLE}, 2 x 90.00 W",
        "gpu_interface": f"2 x PCIe 4.0 x16, 1 x {NOT_READABLE}",
        "gpu_interconnect": "2 x NV12 (NVLink), 4 x SYS (PCIe and the CPU, across NUMA nodes)",
        "gpu_p2p": f"read: {pairs}; write: {pairs}; atomics: {pairs}",
    }


@pytest.mark.parametrize("script", ["#!/bin/sh\nexit 9", "#!/bin/sh\necho unexpected", "not a program"])
def test_a_driver_that_does_not_answer_is_not_readable(tmp_path, monkeypatch, script):
    offer(tmp_path, monkeypatch, script)
    found = collect_environment({}, root=tmp_path)
    assert found.system["nvidia_driver"] == found.system["cuda_driver_api"] == NOT_READABLE
    assert {text for name, text in found.hardware.items() if name.startswith("gpu")} == {NOT_READABLE}


def test_a_machine_that_tells_nothing_has_every_row(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    found = collect_environment({}, root=tmp_path)
    assert set(found.system) == SYSTEM_ROWS
    assert set(found.hardware) == HARDWARE_ROWS
    assert found.system["kernel"] == found.hardware["cpu_cores"] == found.hardware["memory"] == NOT_READABLE
    assert found.hardware["gpu"] == "no NVIDIA GPU"


def test_damaged_files_are_not_readable(tmp_path, monkeypatch):
    make_server(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    for path in list(tmp_path.rglob("*")):
        if path.is_file():
            path.write_bytes(b"\xff\x00 7 kB: -\n")
    found = collect_environment({}, root=tmp_path)
    for name in ("cpu_model", "cpu_frequency", "cpu_cache", "numa_nodes", "memory", "swap"):
        assert found.hardware[name] == NOT_READABLE, name
    assert parse_record(Environment, dump_record(found), "environment") == found


def test_topology_comes_from_cpuinfo_where_sys_is_hidden(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    block = "physical id\t: {0}\ncore id\t\t: {1}\ncpu MHz\t\t: 2596.098\n"
    write(tmp_path / "proc/cpuinfo", "\n".join(block.format(n // 4, n // 2) for n in range(8)))
    hardware = collect_environment({}, root=tmp_path).hardware
    assert (hardware["cpu_sockets"], hardware["cpu_cores"], hardware["cpu_threads"]) == ("2", "4", "8")
    assert hardware["cpu_frequency"] == "2.60 GHz at the time"


def test_tells_where_it_ran_and_can_be_stored():
    found = collect_environment({"tasks": 3}, {"accelerator": "none"}, system={"browser": "Chromium 140"})
    assert found.seeds == {"tasks": 3}
    assert set(found.system) == SYSTEM_ROWS | {"browser"}
    assert set(found.hardware) == HARDWARE_ROWS | {"accelerator"}
    assert set(found.packages) == {"python", "focusmem", *PACKAGES}
    assert found.packages["numpy"][0].isdigit()
    assert parse_record(Environment, dump_record(found), "environment") == found


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc and /sys")
def test_this_machine_tells_what_linux_always_does():
    hardware = collect_environment({}).hardware
    assert int(hardware["cpu_threads_usable"]) == len(os.sched_getaffinity(0))
    assert hardware["memory"].endswith(" GiB")
    assert float(hardware["memory"].split()[0]) > 0


def test_a_second_question_asks_the_machine_nothing(tmp_path, monkeypatch):
    first = collect_environment({"a": 1})
    monkeypatch.setattr(collecting, "nvidia_rows", lambda root: pytest.fail("asked again"))
    monkeypatch.setattr(collecting, "output_of", lambda *words, **where: pytest.fail("asked again"))
    assert collect_environment({"a": 1}) == first


def test_a_copy_below_a_strangers_checkout_has_no_commit(tmp_path, monkeypatch):
    monkeypatch.setattr(collecting, "__file__", str(tmp_path / "site-packages" / "environment.py"))
    (tmp_path / "site-packages").mkdir()
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    for words in (
        ["init", "-q"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "a"],
    ):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    found = collect_environment({})
    assert (found.commit, found.has_uncommitted_changes) == (None, None)
