"""The arrows of the design, read from the sources: who may import whom, and who needs no JAX.

A module that imports without JAX starts in a fraction of a second and loads in a browser.
"""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

import scaling as sc

ROOT = Path(__file__).resolve().parents[1]
OURS = ("meshes", "models", "scaling", "experiments")  # folders; links to them are not followed

# Every room, and the rooms that it may import. A room is a module or package of `scaling`; the
# folders meshes/ and models/ are scaling.meshes and scaling.models.
PRICING = {"program", "profiles", "collectives", "simulate"}
ROOMS: dict[str, set[str]] = {
    "meshes": set(),
    "models": {"meshes"},
    "run": {"meshes", "models"},
    "program": {"meshes"},
    "hlo": {"meshes", "program"},
    "profiles": {"meshes", "program"},
    "collectives": {"meshes", "program", "profiles"},
    "simulate": {"meshes", "models", "run", *PRICING},
    "analytic": {"meshes", "models", "run", "program"},
    "planning": {"meshes", "models", "run", *PRICING, "analytic"},
    "compile": {"meshes", "program", "hlo"},
    "training": {"meshes", "models", "run", *PRICING, "hlo", "compile"},
    "calibration": {"meshes", "models", "run", *PRICING, "hlo", "compile", "training"},
    "comparing": {"meshes", "models", "run", *PRICING, "hlo", "analytic"},
    "testbed": {"meshes"},
    "questions": {"meshes", "models", "run", *PRICING, "analytic"},
    "pictures": {"meshes", "models", *PRICING, "questions"},
    "report": {
        "meshes",
        "models",
        "run",
        *PRICING,
        "training",
        "comparing",
        "planning",
        "pictures",
    },
    # The faces, one above the other. The package itself loads what it names when that is used.
    "__init__": {"meshes"},
    "api": {
        *("meshes", "models", "run", *PRICING, "hlo", "analytic", "planning", "compile"),
        *("training", "calibration", "comparing", "questions", "pictures", "report"),
    },
    "course": {
        *("meshes", "models", "run", *PRICING, "hlo", "analytic", "testbed", "calibration"),
        *("comparing", "questions", "pictures", "report", "api", "__init__"),
    },
    "learn": {"meshes", "api", "course"},
    "cli": {
        *("meshes", "run", *PRICING, "compile", "training", "testbed", "comparing", "questions"),
        *("pictures", "report", "api", "course", "learn", "__init__"),
    },
    "__main__": {"cli"},
}
JAX_FAMILY = {"jax", "jaxlib", "flax", "optax", "chex", "orbax", "grain"}
# Rooms that import without JAX, whole; and the modules of other rooms that do.
JAX_FREE_ROOMS = {
    *("meshes", "run", "program", "hlo", "profiles", "collectives", "simulate", "analytic"),
    *("planning", "comparing", "pictures", "report", "testbed", "questions"),
}
OF_DEVICES = {"scaling.meshes.devices", "scaling.meshes.absent_memory"}
NEEDS_JAX = {*OF_DEVICES, "scaling.report.shardings"}  # in those rooms
JAX_FREE = {
    *("scaling", "scaling.api", "scaling.cli", "scaling.course.web", "scaling.course.explorer"),
    "scaling.learn",
    *(
        "scaling.course.quizzes",
        "scaling.course.puzzles",
        "scaling.course.ladder",
        "scaling.course.sweeps",
        "scaling.course.finder",
    ),
    *("scaling.models.config", "scaling.models.presets", "scaling.models.huggingface.read"),
    *("scaling.models.accounting", "scaling.models.lora", "scaling.models.pipeline.schedule"),
    *("scaling.training.program", "scaling.compile.cache"),
}


@cache
def sources(*folders: str) -> tuple[Path, ...]:
    """The Python files below the folders; links are not followed."""
    found = [
        Path(place) / file
        for folder in folders
        for place, _, files in os.walk(ROOT / folder)
        for file in files
        if file.endswith(".py")
    ]
    return tuple(sorted(found))


def name_of(path: Path) -> str:
    """The dotted module name, `scaling.meshes.shape` for meshes/shape.py."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    if parts[0] in ("meshes", "models"):
        parts = ("scaling", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def statements(block: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The statements of a block and of all blocks in them, without expressions: those are most."""
    for node in block:
        yield node
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, field, ())
            yield from statements(inner if isinstance(inner, list) else ())


@cache
def imports(path: Path) -> frozenset[str]:
    """Every module that the file imports, at its top or inside a function, as dotted names.

    Those of the package itself are without what it tells type checkers of names it loads later.
    """
    found, body = set(), ast.parse(text_of(path)).body
    if name_of(path) == "scaling":
        body = [node for node in body if not isinstance(node, ast.If)]
    for node in statements(body):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: write absolute imports"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


def roots(path: Path) -> set[str]:
    """The top-level packages that the file imports."""
    return {name.split(".")[0] for name in imports(path)}


def room_of(name: str) -> str:
    """`simulate` for `scaling.simulate.step`; "__init__" for `scaling` itself."""
    return (name.split(".") + ["__init__"])[1]


def calls(path: Path) -> set[str]:
    """The last names of everything the file calls: `Mesh` for `jax.sharding.Mesh(...)`."""
    called = [
        node.func for node in ast.walk(ast.parse(text_of(path))) if isinstance(node, ast.Call)
    ]
    return {f.attr for f in called if isinstance(f, ast.Attribute)} | {
        f.id for f in called if isinstance(f, ast.Name)
    }


def run_python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs `code` in a fresh interpreter that finds the packages of this checkout first."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)


def test_every_room_is_there_and_has_its_arrows():
    """A renamed folder must not turn the checks below into checks of nothing."""
    found = {room_of(name_of(path)) for path in sources("meshes", "models", "scaling")}
    assert found == set(ROOMS)
    assert len([p for p in (ROOT / "scaling").glob("*.py") if p.name != "__init__.py"]) <= 5


def test_the_arrows_have_no_circle():
    left = dict(ROOMS)
    while left:
        lowest = {room for room, below in left.items() if not below & set(left) - {room}}
        assert lowest, f"{sorted(left)} import one another"
        left = {room: below for room, below in left.items() if room not in lowest}


def test_arrows_between_rooms_point_down():
    wrong = {}
    for path in sources("meshes", "models", "scaling"):
        room = room_of(name_of(path))
        used = {room_of(n) for n in imports(path) if n.split(".")[0] == "scaling"}
        if used - ROOMS[room] - {room}:
            wrong[name_of(path)] = sorted(used - ROOMS[room] - {room})
    assert not wrong


def test_the_package_names_modules_of_the_api_and_below():
    """`sc.learn` alone reaches the course."""
    rooms = {room_of(module) for name, module in sc._MODULES.items() if name not in dir(sc.learn)}
    assert rooms <= {"api", *ROOMS["api"]}


def test_modules_import_one_another_without_a_circle():
    paths = {name_of(path): path for path in sources("meshes", "models", "scaling")}
    left = {}
    for name, path in paths.items():
        found = {n if n in paths else n.rpartition(".")[0] for n in imports(path)}
        left[name] = found & set(paths) - {name, "scaling"}
    while left:
        lowest = {name for name, below in left.items() if not below & set(left)}
        assert lowest, f"{sorted(left)} import one another, or what does"
        left = {name: below for name, below in left.items() if name not in lowest}


def test_nothing_imports_the_experiments_or_our_folders_by_their_own_names():
    wrong = {name_of(p): roots(p) & {"meshes", "models"} for p in sources(*OURS, "tests")}
    assert not {name: found for name, found in wrong.items() if found}
    product = sources("meshes", "models", "scaling")
    assert not [name_of(p) for p in product if roots(p) & {"experiments", "tests"}]


def test_in_meshes_only_devices_and_their_memories_know_jax():
    users = {name_of(path) for path in sources("meshes") if roots(path) & JAX_FAMILY}
    assert users == OF_DEVICES


def jax_free_modules() -> list[str]:
    """The modules named above, every module of a package named there, and of the rooms."""
    names = [name_of(path) for path in sources("meshes", "models", "scaling")]
    free = [n for n in names if room_of(n) in JAX_FREE_ROOMS and n not in NEEDS_JAX]
    return sorted(
        {
            *free,
            *(
                n
                for n in names
                for top in JAX_FREE
                if n == top or (top != "scaling" and n.startswith(f"{top}."))
            ),
        }
    )


def test_imports_without_jax():
    """One interpreter imports them in turn and names the first after which jax is there."""
    code = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    importlib.import_module(name)\n"
        f"    heavy = {JAX_FAMILY!r} & set(sys.modules)\n"
        "    if heavy: sys.exit(f'{name} brings {sorted(heavy)}')\n"
    )
    result = run_python(code, *jax_free_modules())
    assert result.returncode == 0, result.stderr


def test_only_the_checkpoint_adapter_knows_orbax():
    users = {name_of(path) for path in sources(*OURS) if "orbax" in roots(path)}
    folder = "scaling.training.checkpoint"
    assert users == {f"{folder}.checkpoints", f"{folder}.read"}


def test_only_devices_makes_jax_meshes():
    makers = {"Mesh", "AbstractMesh", "make_mesh", "create_device_mesh"}
    makers |= {"create_hybrid_device_mesh"}
    named = re.compile("|".join(sorted(makers)))
    users = {name_of(p) for p in sources(*OURS) if named.search(text_of(p)) and calls(p) & makers}
    theirs = "experiments.foreign.programs."  # code as others write it
    assert {name for name in users if not name.startswith(theirs)} == {"scaling.meshes.devices"}


# Raises when one of our modules, at any depth below the entry point, imports a package that the
# GPU measurement may not count on; jax itself requires numpy and scipy. Only our own imports are
# judged: flax itself needs rich. What functions import is judged by test_gpu.py's whole run.
GUARD = """
import builtins, runpy, sys
allowed = {"jax", "numpy", "scipy", "flax", "optax", "chex", *sys.stdlib_module_names}
ours = {"meshes", "models", "scaling", "experiments"}
real = builtins.__import__
def guarded(name, globals=None, locals=None, fromlist=(), level=0):
    importer = (globals or {}).get("__package__") or ""
    if importer.split(".")[0] in ours and level == 0 and name.split(".")[0] not in allowed | ours:
        raise ImportError(f"{importer} imports {name}")
    return real(name, globals, locals, fromlist, level)
builtins.__import__ = guarded
"""


def test_the_gpu_measurement_imports_little():
    """It runs on machines where nothing can be installed: JAX, its closest kin and no more."""
    result = run_python(GUARD + "import experiments.gpu.__main__, experiments.gpu.worker")
    assert result.returncode == 0, result.stderr[-2000:]


def test_the_import_guard_notices_what_it_should(tmp_path):
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments/__init__.py").touch()
    (tmp_path / "experiments/careless.py").write_text("import json, numpy\nimport rich\n")
    code = "import sys\nsys.path.insert(0, sys.argv[1])\n" + GUARD + "import experiments.careless"
    result = run_python(code, str(tmp_path))
    assert "experiments imports rich" in result.stderr


# Absolute paths that exist on every Linux machine; anything else is one person's own machine.
SYSTEM_FOLDERS = {"bin", "dev", "etc", "opt", "path", "proc", "run", "sys", "tmp", "usr", "var"}
ABSOLUTE_PATH = re.compile(r"""(?:^|[\s"'=(`:])/([a-z_]+)/[\w.]""", re.MULTILINE)
TEXT = {".py", ".toml", ".json", ".jsonl", ".md", ".sh", ".yaml", ".yml", ".txt", ".csv", ""}


def text_files() -> list[Path]:
    """What is published: the folders of the project and the files beside them."""
    folders = [ROOT / name for name in (*OURS, "tests", "tools", "docs", ".ci")]
    found = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    found += [path for path in ROOT.iterdir() if path.is_file() and path.name != ".git"]
    return [p for p in found if p.suffix in TEXT and "__pycache__" not in p.parts]


def test_no_file_names_a_path_of_somebodys_own_machine():
    strangers = {}
    for path in text_files():
        folders = set(ABSOLUTE_PATH.findall(path.read_text("utf-8", "ignore"))) - SYSTEM_FOLDERS
        if folders:
            strangers[str(path.relative_to(ROOT))] = sorted(folders)
    assert not strangers


@pytest.mark.parametrize(
    ("text", "folders"),
    [
        ("see `/opt/notes.md`", ["opt"]),
        ('{"path": "/usr/me/run"}', ["usr"]),
        ("https://host/page, and/or, 3 GB/s, a / b, tests/meshes", []),
    ],
)
def test_what_counts_as_an_absolute_path(text, folders):
    assert ABSOLUTE_PATH.findall(text) == folders
