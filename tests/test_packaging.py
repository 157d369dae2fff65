"""What `pip install focusmem` brings: every file, and every package that the main job needs."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "focusmem"
NAMES = {"PIL": "pillow"}
COMES_ALONG = {
    "httpcore2": "openai",
    "httpx2": "openai",
    "pyarrow": "lancedb",
    "pydantic_core": "pydantic",
    "triton": "torch",
}
"""Packages that we import and leave to another one to require."""
BESIDE = {"browsergym"}
"""Installed by hand without its dependencies, because it requires an old Playwright; `docs/suites.md` says how."""


def files_below(folder: Path) -> set[str]:
    paths = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(folder.parent).as_posix() for path in paths}


def test_every_package_that_is_imported_is_required():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = [line for name, lines in project["optional-dependencies"].items() if name != "dev" for line in lines]
    required = {re.split(r"[^\w-]", line)[0] for line in [*project["dependencies"], *optional]}
    imported = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add((node.module or "").split(".")[0])
    imported -= {"focusmem", *sys.stdlib_module_names}
    assert {NAMES.get(name, name) for name in imported} - required - set(COMES_ALONG) - BESIDE == set()
    assert set(COMES_ALONG.values()) <= required


def test_memory_is_listed():
    code = "import focusmem, sys; assert 'Memory' in dir(focusmem); assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy: the build leaves folders beside what it builds."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    shutil.copytree(PACKAGE, source / "src" / "focusmem", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", out, source)
    [path] = out.glob("focusmem-*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A new environment with the wheel alone; the packages that it requires are borrowed from this one."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    pip("--python", folder / "bin" / "python", "install", "--no-deps", wheel)
    [site] = folder.glob("lib/python*/site-packages")
    (site / "borrowed.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return folder


def pip(*words) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--no-input", "--quiet", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def run(installed, folder, *words) -> str:
    """A program of the environment, in an empty folder and without this repository in reach."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment["OMP_NUM_THREADS"] = "1"
    done = subprocess.run(
        [installed / "bin" / words[0], *words[1:]],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_package(wheel):
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
        [metadata] = [packed.read(name).decode() for name in names if name.endswith(".dist-info/METADATA")]
    assert {name for name in names if name.startswith("focusmem/")} == files_below(PACKAGE)
    for package in ("lancedb", "playwright", "filelock"):
        assert re.search(rf"^Requires-Dist: {package}[^;]*$", metadata, re.MULTILINE), "not an extra"


@pytest.mark.slow
def test_the_wheel_works_in_any_folder(installed, tmp_path):
    [package] = installed.glob("lib/python*/site-packages/focusmem")
    before = {name: (package.parent / name).stat().st_mtime_ns for name in files_below(package)}
    code = "import focusmem; from focusmem import Memory; print(focusmem.__file__)"
    assert Path(run(installed, tmp_path, "python", "-c", code).strip()) == package / "__init__.py"
    told = run(installed, tmp_path, "focusmem", "demo", "--tasks", "1", "--browser", "raster", "--json")
    assert len(json.loads(told)["tasks"]) == 1
    words = ("run", "lab", "--memory", "none", "--tasks", "1", "--out", "run", "--json")
    assert json.loads(run(installed, tmp_path, "focusmem", *words))["num_errors"] == 0
    assert {name: (package.parent / name).stat().st_mtime_ns for name in files_below(package)} == before, "read only"
