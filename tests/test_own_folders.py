"""A user's folders `models` and `meshes` do not hide ours, nor ours theirs.

Tried with what an installation puts on the path: the folder of an editable one (fast), and an
editable installation, `pip install .` and the wheel, each in an environment of its own (slow).
"""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
OURS = "from scaling.models.config import ModelConfig; from scaling.meshes import catalog"
THEIRS = "import models, meshes"
USED = "catalog.load('dgx-h100'); assert (models.MINE, meshes.MINE) == (1, 2), models"


def run(python: Path, code: str, folder: Path, path: str = "") -> str:
    """Standard output and error of `code`, run in `folder` without this checkout on the path."""
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    if path:
        environment["PYTHONPATH"] = path
    command = [str(python), "-c", code]
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture
def project(tmp_path) -> Path:
    """A user's folder with packages of the same names, and an empty one beside it."""
    for value, name in enumerate(("models", "meshes"), start=1):
        (tmp_path / "project" / name).mkdir(parents=True)
        (tmp_path / "project" / name / "__init__.py").write_text(f"MINE = {value}\n")
    (tmp_path / "empty").mkdir()
    return tmp_path / "project"


def check(python: Path, project: Path, path: str = "") -> None:
    """Ours and theirs side by side, in either order; and no `models` where the user has none."""
    for first, second in ((OURS, THEIRS), (THEIRS, OURS)):
        run(python, f"{first}\n{second}\n{USED}", project, path)
    absent = "import importlib.util as u; print(u.find_spec('models'), u.find_spec('meshes'))"
    assert run(python, absent, project.parent / "empty", path) == "None None\n"


def test_the_folder_of_an_editable_installation_holds_nothing_else(project):
    check(Path(sys.executable), project, str(ROOT / "tools" / "path"))


@pytest.mark.slow
@pytest.mark.parametrize("how", ["--editable", "folder", "wheel"])
def test_no_installation_puts_models_or_meshes_on_the_path(how, project, tmp_path):
    environment = tmp_path / "environment"
    venv.create(environment, symlinks=True)
    python = environment / "bin" / "python"
    what = ["--editable", str(ROOT)] if how == "--editable" else [str(ROOT)]
    if how == "wheel":
        build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", str(tmp_path)]
        subprocess.run([*build, str(ROOT)], check=True, capture_output=True)
        what = [str(next(tmp_path.glob("*.whl")))]
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps"]
    hatchling = os.environ | {"PYTHONPATH": sysconfig.get_path("purelib")}
    command = [*pip, "--no-build-isolation", *what]
    subprocess.run(command, check=True, capture_output=True, env=hatchling)
    site = Path(sysconfig.get_path("purelib", "venv", vars={"base": str(environment)}))
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib"))
    check(python, project)


@pytest.mark.slow
def test_a_type_checker_resolves_the_linked_packages(project):
    user = project / "mine.py"
    user.write_text("from scaling.models.config import ModelConfig\nx: int = ModelConfig\n")
    environment = os.environ | {"MYPYPATH": str(ROOT / "tools" / "path")}
    command = [sys.executable, "-m", "mypy", "--follow-imports=silent", str(user)]
    result = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True)
    assert 'has type "type[ModelConfig]"' in result.stdout, result.stdout
