"""What a user gets: the wheel, installed in an empty environment, at work in an empty directory.

The fast tier reads the wheel, the long tier installs it. To save a gigabyte of downloads the
environment holds the wheel alone and a `.pth` file that adds the site-packages of the running one,
for the dependencies. Python does not read the `.pth` files of a folder added that way, so the
editable install of this checkout stays out, and the packages come from nowhere but the wheel.
"""

import os
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import scaling
from tools.release import Environment, build, new_environment, try_commands

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    return build("wheel", tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Environment:
    """The wheel alone, and the dependencies of the running environment."""
    environment = new_environment(tmp_path_factory.mktemp("installed"))
    environment.install("--no-deps", "--no-index", wheel)
    borrowed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (environment.site_packages / "borrowed.pth").write_text("\n".join(sorted(borrowed)))
    return environment


@pytest.mark.slow
def test_installed_wheel_works_in_an_empty_directory(installed):
    try_commands(installed, scaling.__version__)


def test_wheel_holds_one_package_its_start_the_whole_catalogue_and_all_models(wheel):
    tables = [path for folder in ("meshes", "models") for path in (ROOT / folder).rglob("*.toml")]
    expected = {f"scaling/{path.relative_to(ROOT)}" for path in tables}
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


def other_project(folder: Path, files: str = "scaling/__init__.py,,") -> Path:
    """A folder with another project's package of our name, and its metadata."""
    for place in ("scaling", "scaling-0.2.3.dist-info"):
        (folder / place).mkdir(parents=True)
    (folder / "scaling/__init__.py").write_text("MINE = False\n")
    (folder / "scaling-0.2.3.dist-info/RECORD").write_text(files + "\n")
    return folder


def start(*path: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The installed command `scaling --version` with these folders, and ours only if among them."""
    code = "import os, sys, jax_scaling; given = os.environ['PYTHONPATH'].split(os.pathsep); "
    code += "sys.path = [p for p in sys.path if p in given or not p.endswith('tools/path')]; "
    code += "sys.argv[1:] = ['--version']; jax_scaling.command()"
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


@pytest.mark.parametrize(("init", "said"), [("MINE = False", "warning: "), (None, "error: ")])
def test_where_our_first_file_was_replaced_or_removed_one_line_says_so(tmp_path, init, said):
    """By the other project: it came later, or went again."""
    site = other_project(tmp_path / "site") if init else tmp_path / "site"
    (site / "scaling").mkdir(parents=True, exist_ok=True)
    for part in (ROOT / "scaling").iterdir():
        if part.name != "__init__.py":
            (site / "scaling" / part.name).symlink_to(part)
    done = start(site, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(said) and line.endswith(
        "install jax-scaling again (pip's --force-reinstall)"
    )


def test_where_ours_can_run_beside_the_other_it_does_with_a_warning(tmp_path):
    done = start(ROOT / "tools/path", other_project(tmp_path / "site"), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"scaling {scaling.__version__}\n")
    (line,) = done.stderr.splitlines()
    assert line.startswith("warning: ")


@pytest.mark.parametrize(
    "files", ["_scaling.pth,,", "scaling/__init__.py,,\nscaling/cli/main.py,,"]
)
def test_ours_under_its_name_before_0_7_is_no_other_project(files, tmp_path):
    done = start(ROOT / "tools/path", other_project(tmp_path / "site", files), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
