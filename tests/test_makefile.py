"""The set-up that `make` does by itself, tried with pretended interpreters that only keep a log.

Each test has a folder with the Makefile, the scripts and a PATH of its own: the few system tools
that they use, and whatever Pythons the test puts there. Most are in the long tier.
"""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SYSTEM_TOOLS = (
    *("make", "sh", "awk", "cat", "cp", "cut", "ln", "ls", "mkdir", "sort", "tail", "touch"),
    *("bash", "dirname", "env", "rm", "uname"),
)
PYTHON_NAMES = ("python3.13", "python3.12", "python3.11", "python3", "python")

# Answers to a version check by its exit status; makes a .venv out of itself; logs all other calls.
PRETENDED_PYTHON = """#!/bin/sh
case "$1 $2" in
  "-c "*GIL*) echo {version} && exit ;;
  "-c "*sys.version_info*) exit {too_old} ;;
  "-c "*devices*) exit {no_gpu} ;;
  "-c "*) exit 0 ;;
  "-m venv") for folder; do :; done; mkdir -p $folder/bin
    for tool in python ruff mypy; do cp "$0" $folder/bin/$tool; done ;;
esac
echo "{name} $*" >> log
case "$*" in *install*) exit {install} ;; esac
"""
BROKEN_SHIM = "#!/bin/sh\necho 'pyenv: python3.13: command not found' >&2\nexit 127\n"
PRETENDED_UV = """#!/bin/sh
echo "uv $*" >> log
case "$1" in venv) mkdir -p .venv/bin && cp bin/fresh .venv/bin/python ;; esac
"""


@dataclass(frozen=True)
class Checkout:
    folder: Path

    def add(self, name: str, script: str) -> None:
        path = self.folder / "bin" / name
        path.unlink(missing_ok=True)  # a link to the tool of this machine, which stays as it is
        path.write_text(script)
        path.chmod(0o755)

    def add_python(self, name: str, **other: object) -> None:
        answers = dict(name=name, version="", too_old=0, no_gpu=1, install=0) | other
        self.add(name, PRETENDED_PYTHON.format(**answers))

    def make(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.run("make", *words)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        drop = ("MAKE", "MFLAGS", "PYTHON", "GPU_PYTHON")
        environment = {k: v for k, v in os.environ.items() if not k.startswith(drop)}
        environment["PATH"] = str(self.folder / "bin")
        environment["PYENV_ROOT"] = str(self.folder / "pyenv")
        return subprocess.run(
            words, cwd=self.folder, env=environment, capture_output=True, text=True
        )

    def log(self) -> list[str]:
        log = self.folder / "log"
        return log.read_text().splitlines() if log.exists() else []

    def installs(self) -> list[str]:
        return [line for line in self.log() if "install" in line]


@pytest.fixture
def checkout(tmp_path) -> Checkout:
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    for folder in ("tools", ".ci"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    (tmp_path / "bin").mkdir()
    for tool in SYSTEM_TOOLS:
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool))
    return Checkout(tmp_path)


def test_make_alone_lists_every_target(checkout):
    listed = {line.split()[1] for line in checkout.make().stdout.splitlines()}
    targets = "help demo test test-newest test-old-cpu test-all smoke browser screenshots docs"
    others = "pyodide site lint format host-check validate bench parity foreign gpu release clean"
    assert listed == {*targets.split(), *others.split()}


def test_first_python_that_runs_makes_the_environment(checkout):
    checkout.add("python3.13", BROKEN_SHIM)
    checkout.add_python("python3.12", too_old=1)
    checkout.add_python("python3.11")
    checkout.add_python("python3")
    assert checkout.make("test").returncode == 0
    assert checkout.log()[0] == "python3.11 -m venv --clear .venv"
    assert "-m pip install" in checkout.log()[1] and checkout.log()[1].endswith(".[dev]")
    assert "-m pytest" in checkout.log()[2]


def test_ci_tests_first_in_an_environment_that_nothing_else_has_touched(checkout):
    checkout.add_python("python3")
    checkout.add("uname", "#!/bin/sh\necho Linux x86_64\n")
    (checkout.folder / ".venv-ci/bin").mkdir(parents=True)  # of an earlier run
    (checkout.folder / ".venv-ci/bin/python").write_text("#!/bin/sh\necho used >> log\n")
    done = checkout.run("bash", ".ci/run")
    assert done.returncode == 0, done.stderr
    made, installed, tested, *others = checkout.log()
    assert made == "python3 -m venv --clear .venv-ci"
    assert installed.endswith("--editable .[dev]") and "-m pytest" in tested
    smoke = others[-2:]
    assert others[:-2] == ["python3 format --check .", "python3 check .", "python3 "]
    assert smoke[0].endswith(".[dev,deviceless]") and "-m deviceless" in smoke[1]


@pytest.mark.slow
@pytest.mark.parametrize("words", [(), ("PYTHON=python3",)])
def test_no_new_enough_python_is_an_error_that_says_how_to_name_one(checkout, words):
    for name in PYTHON_NAMES:
        checkout.add_python(name, too_old=1)
    result = checkout.make("demo", *words)
    assert result.returncode != 0
    assert "No Python 3.11 or newer" in result.stderr and "PYTHON=/path/to" in result.stderr
    assert not checkout.log()


@pytest.mark.slow
def test_uv_on_the_path_is_used(checkout):
    checkout.add_python("python3.12")
    checkout.add_python("fresh")
    checkout.add("uv", PRETENDED_UV)
    assert checkout.make("test").returncode == 0
    assert checkout.log()[0] == "uv venv --quiet --python python3.12 .venv"
    assert checkout.log()[1].startswith("uv pip install")


@pytest.mark.slow
def test_changed_pyproject_is_installed_again(checkout):
    checkout.add_python("python3")
    checkout.make("test")
    checkout.make("bench")
    assert len(checkout.installs()) == 1
    later = (checkout.folder / ".venv/.ready-dev").stat().st_mtime + 10
    os.utime(checkout.folder / "pyproject.toml", (later, later))
    checkout.make("test")
    assert len(checkout.installs()) == 2
    assert sum("-m venv" in line for line in checkout.log()) == 1


@pytest.mark.slow
def test_parity_has_an_environment_of_its_own(checkout):
    checkout.add_python("python3")
    assert checkout.make("parity", "PARITY_ARGS=--seeds 1").returncode == 0
    assert checkout.log()[0] == "python3 -m venv --clear .venv-parity"
    assert checkout.installs()[0].endswith(".[parity]")
    assert checkout.log()[-1] == "python3 -m experiments.parity --seeds 1"
    assert not (checkout.folder / ".venv").exists()


@pytest.mark.slow
def test_failed_install_says_what_to_do_and_is_tried_again(checkout):
    checkout.add_python("python3", install=1)
    result = checkout.make("test")
    assert result.returncode != 0
    assert "Without a network" in result.stderr and "pip download" in result.stderr
    assert not any("pytest" in line for line in checkout.log())
    checkout.make("test")
    assert len(checkout.installs()) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("system", "extras", "tests"),
    [
        ("Linux x86_64", ".[dev,deviceless]", "not gpu and not browser"),
        ("Darwin arm64", ".[dev]", "not gpu and not deviceless and not browser"),
    ],
)
def test_long_tier_compiles_for_gpus_on_linux_x86_64(checkout, system, extras, tests):
    checkout.add_python("python3")
    checkout.add("uname", f"#!/bin/sh\necho {system}\n")
    assert checkout.make("test-all").returncode == 0
    assert checkout.installs()[0].endswith(extras)
    _, long, old_cpu, fast = [line for line in checkout.log() if " pip " not in line]
    assert f"-m {tests} --hypothesis" in long and old_cpu.endswith(" tools/old_cpu.py")
    assert "-m pytest" in fast and " -m " not in fast.partition("pytest")[2]


def test_the_newest_python_of_path_and_pyenv_has_an_environment_of_its_own(checkout):
    checkout.add_python("python3.11")
    checkout.add_python("python3.12", version="3 12 python3.12")
    (checkout.folder / "pyenv/versions/3.14/bin").mkdir(parents=True)
    checkout.add_python(
        "../pyenv/versions/3.14/bin/python3", version="3 14 pyenv/versions/3.14/bin/python3"
    )
    assert checkout.make("test-newest").returncode == 0
    assert "3.14/bin/python3 -m venv --clear .venv-newest" in checkout.log()[0]
    assert "-m pytest" in checkout.log()[-1] and "gpu" not in checkout.log()[-1]
    assert not (checkout.folder / ".venv").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("version", "why"), [("", "No Python 3.12"), ("3 13 python3", "of .venv")])
def test_a_second_environment_is_made_for_a_newer_python_alone(checkout, version, why):
    checkout.add_python("python3", version=version)
    result = checkout.make("test-all")
    assert result.returncode == 0 and why in result.stderr
    assert not (checkout.folder / ".venv-newest").exists()


@pytest.mark.slow
def test_gpu_takes_the_first_python_that_sees_one(checkout):
    checkout.add_python("python3")
    checkout.add_python("jax", no_gpu=0)
    assert checkout.make("gpu", "GPU_PYTHON=jax").returncode == 0
    assert checkout.log() == ["jax -m experiments.gpu --out experiments/results"]
