"""Builds what is released, and tries it as a user would: `make release`.

    dist/jax_scaling-VERSION-py3-none-any.whl    predicts, trains, asks a quiz where it is installed
    dist/jax_scaling-VERSION.tar.gz              from which the same wheel can be built
    dist/notes-VERSION.md                        the version's section of CHANGELOG.md

It is tried in a fresh environment and an empty folder, without this checkout; dependencies come
from the package index. Nothing is uploaded.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
UNRELEASED = "Unreleased"
HEADING = re.compile(r"^## \[(.+?)\](?: - (\d{4}-\d\d-\d\d))?$", re.MULTILINE)


@dataclass(frozen=True)
class Section:
    """What changed in a version; the date is empty where none is stated."""

    version: str
    date: str
    text: str


def sections(changelog: str) -> list[Section]:
    """Return the versions of a changelog, in its order."""
    _, *parts = HEADING.split(changelog)
    return [
        Section(version, date or "", text.strip())
        for version, date, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    ]


def notes(changelog: str, version: str) -> str:
    """Return the notes of a version; SystemExit where it has no dated section."""
    for section in sections(changelog):
        if section.version == version and section.date:
            return f"# jax-scaling {version}, {section.date}\n\n{section.text}\n"
    raise SystemExit(f"CHANGELOG.md has no section `## [{version}] - YYYY-MM-DD`: write it first")


def run(*command: object, cwd: Path) -> str:
    """Return what a command prints, which runs without this checkout on its path.

    Raises:
        RuntimeError: it failed; with all that it printed.
    """
    hidden = ("PYTHONPATH", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, cwd=cwd, env=environment)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}\n{done.stdout}{done.stderr}")
    return done.stdout


def build(kind: str, folder: Path, source: Path = ROOT) -> Path:
    """Build the `wheel` or `sdist` into an empty folder, by the tool of this environment."""
    folder.mkdir(parents=True, exist_ok=True)
    python = (sys.executable, "-m", "build")
    run(*python, f"--{kind}", "--no-isolation", "-o", folder, source, cwd=folder)
    (built,) = folder.iterdir()
    return built


def contents(wheel: Path) -> dict[str, bytes]:
    """Return the files of a wheel by their names."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@dataclass(frozen=True)
class Environment:
    """A virtual environment, and an empty directory to work in."""

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

    def install(self, *arguments: object) -> None:
        pip = (sys.executable, "-m", "pip", "--python", self.bin / "python")
        run(*pip, "install", "--quiet", *arguments, cwd=self.work)


def new_environment(folder: Path) -> Environment:
    environment = Environment(folder / "environment", folder / "work")
    venv.create(environment.folder, symlinks=True)
    environment.work.mkdir()
    return environment


def try_commands(environment: Environment, version: str) -> None:
    """Predict, train and ask in the empty directory, from the wheel's own files."""
    assert environment.run("scaling", "--version").split() == ["scaling", version]
    code = "import json, scaling, scaling.meshes, scaling.models as models; "
    code += "print(json.dumps([p.__file__ for p in (scaling, scaling.meshes, models)]))"
    for file in json.loads(environment.run("python", "-c", code)):
        assert Path(file).is_relative_to(environment.site_packages), file
    words = ("scaling", "predict", "llama3-8b", "--cluster", "dgx-h100", "--source", "analytic")
    assert json.loads(environment.run(*words, "--json"))["step_time"] > 0
    environment.run(
        *("scaling", "train", "tiny", "--mesh", "data=2", "--devices", "2"),
        *("--steps", "2", "--run-dir", "run"),
    )
    lines = (environment.work / "run/metrics.jsonl").read_text().splitlines()
    assert {1, 2} <= {json.loads(line)["step"] for line in lines}
    verdict = environment.run("scaling", "learn", "quiz", "gpu-q2.3", "--guess", "2.1")
    assert "your guess 2.1" in verdict, verdict


def main() -> None:
    """Build, try, and fill dist/."""
    wheel_name = r"jax_scaling-(.+)-py3-none-any\.whl"
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    with TemporaryDirectory() as place:
        folder = Path(place)
        wheel, sdist = build("wheel", folder / "wheel"), build("sdist", folder / "sdist")
        version = re.fullmatch(wheel_name, wheel.name)[1]  # type: ignore[index]
        text = notes(changelog, version)
        # Build a wheel from a source distribution alone.
        with tarfile.open(sdist) as archive:
            archive.extractall(folder / "source", filter="data")
        (source,) = (folder / "source").iterdir()
        if contents(build("wheel", folder / "again", source)) != contents(wheel):
            raise SystemExit(f"{sdist.name} builds another wheel than the checkout")
        print(f"Trying {wheel.name} in a fresh environment", file=sys.stderr)
        environment = new_environment(folder)
        environment.install(wheel)
        try_commands(environment, version)
        dist = ROOT / "dist"
        dist.mkdir(exist_ok=True)
        made = [Path(shutil.copy(file, dist)) for file in (wheel, sdist)]
        made.append(dist / f"notes-{version}.md")
        made[-1].write_text(text, encoding="utf-8")
    for section in sections(changelog):
        if section.version == UNRELEASED and section.text:
            print(f"warning: what stands under [{UNRELEASED}] is in no notes", file=sys.stderr)
    print(*(file.relative_to(ROOT) for file in made), sep="\n")


if __name__ == "__main__":
    main()
