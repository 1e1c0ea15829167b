"""Programs of others, priced for GPUs that are not here, and held against a count by hand.

    make foreign                                              all, 15 minutes on two cores, no GPU
    python -m experiments.foreign resnet50_pmap lora          two of them
    python -m experiments.foreign --out experiments/results   with the page and its JSON

Each program is a file of `programs/`: code as its author would write it, WORK counted by hand, and
`price`, the lines that a user adds. It runs in a process of its own, with an empty cache.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from datetime import date
from pathlib import Path
from typing import Any

from experiments.foreign import before
from experiments.foreign.one import MARK, names, needs
from experiments.foreign.result import ABSENT, Priced
from experiments.foreign.table import page, table
from experiments.gpu.machine import git_commit
from scaling.meshes.errors import InputError, check_keys
from scaling.program.versions import compiler_versions

LIMIT = 600.0  # s; one program may take as long on a busy machine


def run(name: str, environments: Path) -> Priced:
    """Price a program in a process of its own, in the environment that it needs."""
    package = needs(name)
    python = str(environments / package / "bin" / "python") if package else sys.executable
    if not Path(python).exists():
        return Priced(name, name, 0, 0.0, error=f"{ABSENT} {environments / package}")
    return priced_by(python, name)


def priced_by(python: str, name: str) -> Priced:
    """Price a program in a process of that interpreter."""
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as cache:
        command = [python, "-m", "experiments.foreign.one", name]
        where = {**os.environ, "JAX_PLATFORMS": "cpu", "SCALING_CACHE": cache}
        try:
            done = subprocess.run(command, env=where, capture_output=True, text=True, timeout=LIMIT)
        except subprocess.TimeoutExpired:
            return Priced(name, name, 0, LIMIT, error=f"no answer after {LIMIT:g} s")
    said = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    if said:
        return read(json.loads(said[-1].removeprefix(MARK)))
    last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    return Priced(name, name, 0, time.perf_counter() - begun, error=last)


def read(row: Mapping[str, Any]) -> Priced:
    """Return a result that was written as JSON."""
    known = {field.name for field in fields(Priced)}
    values: dict[str, Any] = {
        name: tuple(v) if isinstance(v, list) else v for name, v in row.items()
    }
    return Priced(**{name: value for name, value in values.items() if name in known})


def write(rows: Iterable[Priced], folder: Path, commit: str) -> None:
    """Write `foreign.json` and the page; rows of an earlier run of the same folder stay."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "foreign.json"
    kept = {}
    if file.exists():
        kept = {row["name"]: read(row) for row in json.loads(file.read_text())["programs"]}
    kept |= {row.name: row for row in rows}
    ordered = [kept[name] for name in sorted(kept)]
    versions = compiler_versions()
    programs = [{**asdict(row), "judgement": row.judgement} for row in ordered]
    document = {"commit": commit, "versions": versions, "programs": programs}
    file.write_text(json.dumps(document, indent=1) + "\n")
    file = folder / "before.json"
    earlier = before.part(json.loads(file.read_text()), ordered) if file.exists() else ""
    (folder / "README.md").write_text(page(ordered, commit, versions, earlier))


def main(arguments: Iterable[str] | None = None) -> None:
    """Price the programs one after the other and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs; none: all")
    parser.add_argument("--out", type=Path, help="folder of the results")
    parser.add_argument(
        "--environments", type=Path, default=Path(".venv-foreign"), metavar="FOLDER",
        help="environments of the programs that need packages of their own (environments.sh)",
    )  # fmt: skip
    args = parser.parse_args(None if arguments is None else list(arguments))
    try:
        check_keys(args.names, names(), "experiments.foreign", "program")
    except InputError as error:
        parser.error(str(error))
    rows, commit = [], git_commit() or "not known"
    for name in args.names or names():
        rows.append(run(name, args.environments))
        print(table(rows[-1:]).splitlines()[-1], flush=True)
        if args.out:
            write(rows, args.out / f"{date.today().isoformat()}-foreign", commit)
    print(f"\n{table(rows)}")


if __name__ == "__main__":
    main()
