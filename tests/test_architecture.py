"""The house keeps its one-way property: each room imports only what the table allows, and stays importable alone."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "focusmem"
GROUND_FLOOR = {
    "errors",
    "files",
    "intervals",
    "plotting",
    "progress",
    "seeds",
    "settings",
    "templates",
    "thinking",
    "worker_processes",
}

# Which other rooms a room may import. Rooms not built yet are listed too: the table is the plan.
MAY_IMPORT: dict[str, set[str]] = {
    "schemas": set(),
    "clients": set(),
    "browser": {"clients"},  # a grounding model is asked through the same client as a policy or a judge
    "bank": set(),
    "evidence": set(),
    "reports": set(),
    "model": set(),
    "judges": {"clients"},
    "suites": {"judges", "browser"},
    "training": {"evidence", "model"},
    "agent": {"browser", "bank", "evidence", "model", "clients"},
    "data": {"bank", "evidence", "model", "training", "clients", "judges", "agent"},
    "baselines": {"agent", "bank", "evidence", "model", "training", "clients"},
    "evaluation": {"browser", "agent", "judges", "suites", "bank"},
    "diagnostics": {"bank", "evidence", "model", "training", "agent", "baselines", "evaluation", "judges"},
    "serving": {"agent", "bank", "evidence", "model"},
}
EVERYTHING = {"recipes", "cli"}
# The laboratory is a suite, a source of data and a policy: it may use every room but these.
MAY_IMPORT["lab"] = {*MAY_IMPORT, "reports"} - {"serving"}
# The one embedder we ship is a backbone; everything else in the bank knows only the seam in that file.
# The package itself hands out `focusmem.Memory`, once it is asked for.
FILES_MAY_IMPORT: dict[str, set[str]] = {"bank/embedder.py": {"model"}, "__init__.py": {"agent"}}

# What the GPU host has: rooms that run there may import nothing larger.
LIGHT_PACKAGES = {
    "accelerate", "matplotlib", "numpy", "PIL", "pydantic", "pydantic_core", "rich", "safetensors", "tokenizers",
    "torch", "typer",
}  # fmt: skip
ROOMS_ON_THE_GPU_HOST = {"schemas", "clients", "evidence", "model", "training", "agent", "evaluation", "lab"}
TORCH_ROOMS = {"model", "training", "baselines", "diagnostics", "serving", "lab", "recipes", "cli"}
TORCH_FILES = {"bank/embedder.py", "agent/api.py"}
OPENAI_PACKAGES = {"openai", "httpx2", "httpcore2"}
TRITON_FILES = {"model/ragged_attention.py"}
ZIM_FILES = {"lab/world/zim.py"}
TRANSFORMERS_FILES = {"model/backbone.py"}
LANCEDB_FILES = {"bank/vectors.py"}
OPENAI_FILES = {"clients/openai_api.py"}  # loaded when a client is made


MAX_FUNCTION_LINES = 60
MODULES = {
    ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in SOURCE.rglob("*.py")
}


def loaded_imports(path: Path) -> set[str]:
    """Our modules that are loaded together with this one."""
    names: set[str] = set()
    body = ast.parse(path.read_text()).body
    for node in body:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module or ""}
    return {name for name in names if name in MODULES}


def imports_of(path: Path) -> set[str]:
    """Dotted names of all modules a file imports, wherever in the file."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.add(node.module or "")
            names |= {f"{node.module}.{alias.name}" for alias in node.names if node.module == "focusmem"}
    return names


def files() -> list[tuple[str, str, set[str]]]:
    """Room (empty for the ground floor), path within the package, imports."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        inside = path.relative_to(SOURCE)
        found.append((inside.parts[0] if len(inside.parts) > 1 else "", inside.as_posix(), imports_of(path)))
    return found


def rooms_in(imports: set[str]) -> set[str]:
    return {name.split(".")[1] for name in imports if name.startswith("focusmem.")}


def test_rooms_import_only_what_the_table_allows():
    wrong = []
    for room, path, imports in files():
        used = rooms_in(imports) - {room} - GROUND_FLOOR
        allowed = MAY_IMPORT.get(room, set()) | FILES_MAY_IMPORT.get(path, set()) | ({"schemas"} if room else set())
        if room not in EVERYTHING and used - allowed:
            wrong.append(f"{path} imports {sorted(used - allowed)}")
    assert wrong == []


def test_the_ground_floor_stands_on_nothing_of_ours():
    wrong = []
    for room, path, imports in files():
        if not room and rooms_in(imports) - GROUND_FLOOR - FILES_MAY_IMPORT.get(path, set()):
            wrong.append(path)
    assert wrong == []


def test_every_room_is_in_the_table_and_says_what_it_is_for():
    for folder in {path.parent for path in SOURCE.rglob("*.py")} - {SOURCE}:
        room = folder.relative_to(SOURCE).parts[0]
        assert room in set(MAY_IMPORT) | EVERYTHING, room
        docstring = ast.get_docstring(ast.parse((SOURCE / room / "__init__.py").read_text())) or ""
        assert len(docstring.splitlines()) == 3, f"{room}/__init__.py: three lines, in, out, does not know"


def test_heavy_libraries_stay_where_they_belong():
    wrong = []
    for room, path, imports in files():
        packages = {name.split(".")[0] for name in imports}
        if "torch" in packages and room not in TORCH_ROOMS and path not in TORCH_FILES:
            wrong.append(f"{path} imports torch")
        if "transformers" in packages and path not in TRANSFORMERS_FILES:
            wrong.append(f"{path} imports transformers")
        if "lancedb" in packages and path not in LANCEDB_FILES:
            wrong.append(f"{path} imports lancedb")
        is_openai = path in OPENAI_FILES
        if packages & OPENAI_PACKAGES and not is_openai:
            wrong.append(f"{path} imports the openai package")
        if room in ROOMS_ON_THE_GPU_HOST:
            packages -= OPENAI_PACKAGES if is_openai else set()
            packages -= {"triton"} if path in TRITON_FILES else set()  # comes with torch where there is a GPU
            packages -= {"libzim"} if path in ZIM_FILES else set()  # one command needs it, and says so
            outside = packages - LIGHT_PACKAGES - {"focusmem", "transformers", ""} - set(sys.stdlib_module_names)
            wrong += [f"{path} imports {name}" for name in outside]
    assert wrong == []


def test_no_function_is_longer_than_a_screen():
    long = []
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                num_lines = (node.end_lineno or 0) - node.lineno + 1
                long += [f"{path}: {node.name} has {num_lines} lines"] if num_lines > MAX_FUNCTION_LINES else []
    assert long == []


def test_no_import_goes_in_a_circle():
    """Imports that run when a module is loaded; those inside functions and for type checkers do not count."""
    graph = {name: loaded_imports(path) for name, path in MODULES.items()}
    done: set[str] = set()

    def visit(name: str, above: tuple[str, ...]) -> None:
        assert name not in above, " -> ".join((*above[above.index(name) :], name))
        if name not in done:
            for other in sorted(graph[name]):
                visit(other, (*above, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def test_source_is_plain_ascii():
    for path in SOURCE.rglob("*.py"):
        assert path.read_bytes().isascii(), path


@pytest.mark.parametrize(
    "module",
    ["focusmem", "focusmem.schemas", "focusmem.evidence", "focusmem.bank", "focusmem.reports", "focusmem.cli.main"],
)
def test_light_rooms_load_neither_torch_nor_lancedb(module):
    code = f"import sys, {module}; sys.exit(bool({{'torch', 'lancedb'}} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
