"""What a user gets: the wheel, installed in an empty environment, at work in an empty directory.

The fast tier reads the wheel, the long tier installs it. To save a gigabyte of downloads the
environment holds the wheel alone and a `.pth` file that adds the site-packages of the running one,
for the dependencies. Python does not read the `.pth` files of a folder added that way, so the
editable install of this checkout stays out, and the packages come from nowhere but the wheel.
"""

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

import scaling

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def run(*command: object, cwd: Path) -> str:
    """Standard output of a command that succeeds, run without this checkout on its path."""
    hidden = {"PYTHONPATH", "VIRTUAL_ENV"}
    environment = {k: v for k, v in os.environ.items() if k not in hidden}
    words = [str(word) for word in command]
    result = subprocess.run(
        words, capture_output=True, text=True, cwd=cwd, env=environment, timeout=900
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def build(kind: str, folder: Path) -> Path:
    """The built `wheel` or `sdist`; the build tool is the one of the running environment."""
    run(
        sys.executable, "-m", "build", f"--{kind}", "--no-isolation", "-o", folder, ROOT, cwd=folder
    )
    (built,) = folder.iterdir()
    return built


@dataclass(frozen=True)
class Environment:
    """A virtual environment with the wheel in it, and an empty directory to work in."""

    folder: Path
    work: Path

    @property
    def bin(self) -> Path:
        return self.folder / "bin"

    @property
    def site_packages(self) -> Path:
        return Path(sysconfig.get_path("purelib", "venv", vars={"base": str(self.folder)}))

    def run(self, *command: object) -> str:
        return run(self.bin / str(command[0]), *command[1:], cwd=self.work)


def new_environment(folder: Path) -> Environment:
    environment = Environment(folder / "environment", folder / "work")
    venv.create(environment.folder, symlinks=True)
    environment.work.mkdir()
    return environment


def pip_install(environment: Environment, *arguments: object) -> None:
    python = environment.bin / "python"
    run(
        sys.executable, "-m", "pip", "--python", python, "install", *arguments, cwd=environment.work
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    return build("wheel", tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Environment:
    """The wheel alone, and the dependencies of the running environment."""
    environment = new_environment(tmp_path_factory.mktemp("installed"))
    pip_install(environment, "--no-deps", "--no-index", wheel)
    borrowed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (environment.site_packages / "borrowed.pth").write_text("\n".join(sorted(borrowed)))
    return environment


def assert_it_works(environment: Environment) -> None:
    """Help, the catalogue and a short training, from the wheel's own files."""
    assert "train" in environment.run("scaling", "--help")
    code = "import json, scaling, scaling.meshes, scaling.models as models; "
    code += "print(json.dumps([p.__file__ for p in (scaling, scaling.meshes, models)]))"
    for file in json.loads(environment.run("python", "-c", code)):
        assert Path(file).is_relative_to(environment.site_packages)
    environment.run(
        *("scaling", "train", "tiny", "--mesh", "data=2", "--devices", "2"),
        *("--steps", "2", "--run-dir", "run"),
    )
    lines = (environment.work / "run/metrics.jsonl").read_text().splitlines()
    assert {1, 2} <= {json.loads(line)["step"] for line in lines}


@pytest.mark.slow
def test_installed_wheel_works_in_an_empty_directory(installed):
    assert_it_works(installed)


@pytest.mark.slow
def test_wheel_with_real_dependencies_works_in_an_empty_directory(wheel, tmp_path):
    environment = new_environment(tmp_path)
    pip_install(environment, "--quiet", wheel)
    assert_it_works(environment)


def test_wheel_holds_one_package_its_start_and_the_whole_catalogue(wheel):
    catalog = (ROOT / "meshes/catalog").rglob("*.toml")
    expected = {f"scaling/{path.relative_to(ROOT)}" for path in catalog}
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        script = archive.getinfo("scaling/compile/no_assembler/bin/ptxas")
    assert script.external_attr >> 16 & 0o111, "XLA runs it"
    assert expected and expected <= names
    tops = {name.split("/")[0] for name in names}
    info = f"jax_scaling-{scaling.__version__}.dist-info"
    assert tops == {"scaling", "jax_scaling.py", info}


@pytest.mark.slow
def test_source_distribution_holds_the_tests(tmp_path):
    with tarfile.open(build("sdist", tmp_path)) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"tests/conftest.py", "Makefile", "LICENSE", "meshes/shape.py"} <= names


def test_an_installation_in_a_browser_fetches_nothing():
    assert not [d for d in PROJECT["dependencies"] if "sys_platform != 'emscripten'" not in d]


def test_changelog_has_the_version():
    assert f"## [{scaling.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def other_project(folder: Path, files: str = "scaling/__init__.py,,") -> Path:
    """A folder with another project's package of our name, and its metadata."""
    for place in ("scaling", "scaling-0.2.3.dist-info"):
        (folder / place).mkdir(parents=True)
    (folder / "scaling/__init__.py").write_text("MINE = False\n")
    (folder / "scaling-0.2.3.dist-info/RECORD").write_text(files + "\n")
    return folder


def start(*path: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The installed command `scaling --version`, with these folders first on the path."""
    code = "import sys, jax_scaling; sys.argv[1:] = ['--version']; jax_scaling.command()"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path))}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=cwd, capture_output=True, text=True
    )


def test_another_project_in_our_place_is_named_in_one_line(tmp_path):
    other = other_project(tmp_path / "site")
    done = start(other, ROOT / "tools/path", cwd=tmp_path)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2 and not done.stdout
    assert f"{other}/scaling-0.2.3.dist-info is another project" in line
    assert "pip uninstall scaling" in line


def test_where_ours_can_run_beside_the_other_it_does_with_a_warning(tmp_path):
    done = start(ROOT / "tools/path", other_project(tmp_path / "site"), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"scaling {scaling.__version__}\n")
    (line,) = done.stderr.splitlines()
    assert line.startswith("warning: ")


@pytest.mark.parametrize("files", ["_scaling.pth,,", "scaling/__init__.py,,\nscaling/cli/main.py,,"])
def test_ours_under_its_name_before_0_2_is_no_other_project(files, tmp_path):
    done = start(ROOT / "tools/path", other_project(tmp_path / "site", files), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
