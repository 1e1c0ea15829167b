"""Python for a browser, as far as it can be had here: `make pyodide` writes it to build/pyodide.

Pyodide itself comes from npm. Wheels that it was built with (numpy, and what marimo needs) are on
its CDN alone; each is taken from there, held against the lock file's hash, and where that fails the
lock file names the CDN, so that a browser with a network takes it from there. marimo's lessons have
a lock file of marimo's own.

    python -m experiments.site.runtime [--out build/pyodide]     says what was had and what was not
"""

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.error import URLError
from urllib.parse import urljoin, urlsplit
from urllib.request import urlopen

ROOT = Path(__file__).parents[2]
CDN = "https://cdn.jsdelivr.net/pyodide/v314.0.0/full/"  # of the version that marimo's pages load
CORE = (  # what a browser loads of the npm package
    *("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip"),
    "pyodide-lock.json",
)
LOCK, LESSONS_LOCK = "pyodide-lock.json", "marimo-lock.json"
MARIMO_LOCK = "https://wasm.marimo.app/pyodide-lock.json?v={marimo}&pyodide=v{pyodide}"
LESSONS = (  # packages that marimo's page loads before a lesson, and those that lessons need
    *("micropip", "msgspec", "marimo-base", "markdown", "pymdown-extensions", "narwhals"),
    *("packaging", "numpy", "scipy"),
)
PATIENCE = 20.0  # s that a host may be silent
Get = Callable[[str], bytes]


def get(address: str) -> bytes:
    """Return what a host sends; OSError where it sends nothing."""
    with urlopen(address, timeout=PATIENCE) as answer:
        return answer.read()


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


def take_core(out: Path) -> str:
    """Write Pyodide's own files from npm; returns why not, "" where they are there."""
    if all((out / name).is_file() for name in CORE):
        return ""
    name = f"pyodide@{pyodide_version()}"
    with TemporaryDirectory() as folder:
        try:
            command = ["npm", "pack", "--silent", name]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        except FileNotFoundError:
            return f"{name}: npm is not installed here"
        if done.returncode:
            return f"{name}: npm does not have it: {done.stderr.strip()[-200:]}"
        (packed,) = Path(folder).glob("*.tgz")
        with tarfile.open(packed) as archive:
            archive.extractall(folder, filter="data")
        out.mkdir(parents=True, exist_ok=True)
        for file in CORE:
            (out / file).write_bytes((Path(folder) / "package" / file).read_bytes())
    return ""


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


def take_wheels(
    lock: Mapping[str, Any], base: str, names: Sequence[str], out: Path, get: Get = get
) -> tuple[dict[str, Any], list[str]]:
    """Write wheels of a lock file; return it with the places of all, and the wheels not had.

    Args:
        base: address that the lock file's names are relative to.
        names: of packages, whose dependencies are taken too.
    """
    packages = {name: dict(package) for name, package in lock["packages"].items()}
    missing = []
    for name in closure(packages, names):
        address = urljoin(base, packages[name]["file_name"])
        file = out / Path(urlsplit(address).path).name
        try:
            data = file.read_bytes() if file.is_file() else get(address)
        except (URLError, OSError):
            missing.append(address)
            continue
        if hashlib.sha256(data).hexdigest() != packages[name]["sha256"]:
            raise SystemExit(f"{address} is not what the lock file says: another sha256")
        file.write_bytes(data)
        packages[name]["file_name"] = file.name
    for package in packages.values():
        if not (out / package["file_name"]).is_file():
            package["file_name"] = urljoin(base, package["file_name"])
    return {**lock, "packages": packages}, missing


def take(out: Path, get: Get = get) -> list[str]:
    """Write all that can be had; return a line for each thing that cannot."""
    if problem := take_core(out):
        return [problem]
    lock = json.loads((out / LOCK).read_text(encoding="utf-8"))
    found, missing = take_wheels(lock, CDN, ("numpy",), out, get)
    (out / LOCK).write_text(json.dumps(found), encoding="utf-8")
    address = MARIMO_LOCK.format(marimo=version("marimo"), pyodide=pyodide_version())
    try:
        marimo = json.loads(get(address))
    except (URLError, OSError):
        return [*missing, address]
    found, more = take_wheels(marimo, CDN, LESSONS, out, get)
    (out / LESSONS_LOCK).write_text(json.dumps(found), encoding="utf-8")
    return [*missing, *more]


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
    for address in missing:
        print(f"not to be had here: {address}")
    if (out / LOCK).is_file():
        print(f"{out}: Pyodide {pyodide_version()}, {sum(1 for _ in out.glob('*.whl'))} wheels")
        for what, names in (("the explorer", ("numpy",)), ("lessons", None)):
            hosts = ", ".join(hosts_of(out, names)) or "no other host"
            print(f"{what}: loaded from {hosts}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
