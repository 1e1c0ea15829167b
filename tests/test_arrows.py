"""The arrows of the design, read from the sources: who may import whom, and who needs no JAX.

    meshes  <-  models  <-  scaling  <-  experiments

and inside scaling, from what is pure data to what uses everything:

    program  <-  cost, timeline, memory, compiled  <-  price  <-  all else

A module that imports without JAX starts in a fraction of a second and loads in a browser.
"""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
OURS = ("meshes", "models", "scaling", "experiments")
MAY_NOT_IMPORT = {
    "meshes": {"models", "scaling", "experiments"},
    "models": {"scaling", "experiments"},
    "scaling": {"experiments"},
    "experiments": set(),
}
# Inside scaling: what a module or package may import of it, beside itself.
FLOORS = {
    "scaling.program": set(),
    "scaling.program_file": {"scaling.program"},
    "scaling.cost": {"scaling.program"},
    "scaling.streams": {"scaling.program"},
    "scaling.timeline": {"scaling.program", "scaling.streams"},
    "scaling.memory": {"scaling.program"},
    "scaling.calls": {"scaling.program", "scaling.memory", "scaling.cost"},
    "scaling.compiled": {"scaling.program", "scaling.program_file"},
    "scaling.price": {
        *("scaling.program", "scaling.memory", "scaling.timeline"),
        *("scaling.cost", "scaling.calls"),
    },
}
# These compile the trainer's own step, or with its options, and price what they compiled.
ABOVE_THEIR_PACKAGE = {
    "scaling.compiled.lower",
    "scaling.compiled.step",
    "scaling.compiled.running",
}
JAX_FAMILY = {"jax", "jaxlib", "flax", "optax", "chex", "orbax", "grain"}

# Modules and packages that import without JAX, beside all of meshes but devices.
JAX_FREE = (
    *("models.config", "models.presets", "models.huggingface", "models.accounting"),
    *(
        "scaling.run",
        "scaling.recipes",
        "scaling.cli",
        "scaling.verbs",
        "scaling.targets",
        "scaling.what_if",
    ),
    *("scaling.program", "scaling.program_file", "scaling.timeline", "scaling.streams"),
    *("scaling.memory", "scaling.calls"),
    *("scaling.cost", "scaling.price", "scaling.predict", "scaling.expected", "scaling.surprises"),
    *("scaling.testbed", "scaling.commands.testbed"),
    *("scaling.compiled.step", "scaling.compiled.read", "scaling.compiled.cache"),
)


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def name_of(path: Path) -> str:
    """The dotted module name, `meshes.shape` for meshes/shape.py."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> set[str]:
    """Every module that the file imports, at its top or inside a function, as dotted names."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: write absolute imports"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def roots(path: Path) -> set[str]:
    """The top-level packages that the file imports."""
    return {name.split(".")[0] for name in imports(path)}


def calls(path: Path) -> Iterator[str]:
    """The last name of everything the file calls: `Mesh` for `jax.sharding.Mesh(...)`."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield node.func.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id


def run_python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs `code` in a fresh interpreter that finds the packages of this checkout first."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)


def test_the_packages_are_there_to_be_checked():
    """A renamed folder must not turn the checks below into checks of nothing."""
    assert all(sources(folder) for folder in OURS)


@pytest.mark.parametrize("path", sources(*OURS), ids=name_of)
def test_arrows_point_one_way(path):
    wrong = roots(path) & MAY_NOT_IMPORT[path.relative_to(ROOT).parts[0]]
    assert not wrong, f"{name_of(path)} imports {sorted(wrong)}"


def is_in(name: str, packages: set[str]) -> bool:
    """Whether it is one of the modules, or in one of the packages, or a name in one of them."""
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def reaching_up(floor: str) -> dict[str, set[str]]:
    """Modules of a floor -> what they import of scaling that is not below it."""
    place = ROOT / floor.replace(".", "/")
    paths = sorted(place.rglob("*.py")) or [place.with_suffix(".py")]
    allowed = {floor, *FLOORS[floor]}
    found = {
        name_of(path): {n for n in imports(path) if is_in(n, {"scaling"}) and not is_in(n, allowed)}
        for path in paths
    }
    return {name: wrong for name, wrong in found.items() if wrong}


@pytest.mark.parametrize("floor", FLOORS)
def test_arrows_inside_scaling_point_one_way(floor):
    wrong = {n: found for n, found in reaching_up(floor).items() if n not in ABOVE_THEIR_PACKAGE}
    assert not wrong


def test_no_module_is_named_as_an_exception_that_is_none():
    assert {name for floor in FLOORS for name in reaching_up(floor)} == ABOVE_THEIR_PACKAGE


@pytest.mark.parametrize("path", sources("meshes"), ids=name_of)
def test_in_meshes_only_devices_knows_jax(path):
    if name_of(path) != "meshes.devices":
        assert not roots(path) & JAX_FAMILY


def jax_free_modules() -> list[str]:
    """The modules named above, and every module of a package named there."""
    names = [name_of(p) for p in sources("meshes") if name_of(p) != "meshes.devices"]
    for name in JAX_FREE:
        names += [name, *map(name_of, sources(name.replace(".", "/")))]
    return sorted(set(names))


@pytest.mark.parametrize("name", jax_free_modules())
def test_imports_without_jax(name):
    code = (
        "import importlib, sys\n"
        "importlib.import_module(sys.argv[1])\n"
        f"print(sorted({JAX_FAMILY!r} & set(sys.modules)))"
    )
    result = run_python(code, name)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "[]", f"{name} needs {result.stdout.strip()} to be imported"


@pytest.mark.parametrize("path", sources(*OURS), ids=name_of)
def test_only_the_checkpoint_adapter_knows_orbax(path):
    assert ("orbax" in roots(path)) == (name_of(path) == "scaling.train.checkpoint")


@pytest.mark.parametrize("path", sources(*OURS), ids=name_of)
def test_only_devices_makes_jax_meshes(path):
    makers = {
        "Mesh",
        "AbstractMesh",
        "make_mesh",
        "create_device_mesh",
        "create_hybrid_device_mesh",
    }
    made = makers & set(calls(path))
    assert not made or name_of(path) == "meshes.devices", f"{name_of(path)} calls {sorted(made)}"


# Raises when one of our modules, at any depth below the entry point, imports a package that the
# GPU measurement may not count on. Only our own imports are judged: flax itself needs rich.
GUARD = """
import builtins, runpy, sys
allowed = {"jax", "numpy", "flax", "optax", "chex", *sys.stdlib_module_names}
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
    result = run_python(GUARD + "import experiments.gpu.throughput")
    assert result.returncode == 0, result.stderr[-2000:]


def test_the_import_guard_notices_what_it_should(tmp_path):
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments/__init__.py").touch()
    (tmp_path / "experiments/careless.py").write_text("import json, numpy\nimport tyro\n")
    code = "import sys\nsys.path.insert(0, sys.argv[1])\n" + GUARD + "import experiments.careless"
    result = run_python(code, str(tmp_path))
    assert "experiments imports tyro" in result.stderr


@pytest.mark.slow
def test_the_gpu_measurement_runs_on_little(tmp_path):
    """The same for imports inside functions: a tiny measurement on the CPU, start to end."""
    run = "runpy.run_module('experiments.gpu.throughput', run_name='__main__', alter_sys=False)"
    result = run_python(GUARD + run, "--tiny", "--out", str(tmp_path))
    assert result.returncode == 0, result.stderr[-2000:]
    assert list(tmp_path.rglob("*.json"))


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
