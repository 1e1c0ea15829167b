"""Where are XLA's own estimates right? Small programs, counted by hand, for a GPU that is not here.

python -m experiments.xla_estimates                             all, a minute, no GPU
python -m experiments.xla_estimates scan lookup                 two of them
python -m experiments.xla_estimates --out experiments/results   with the page and its JSON
"""

import argparse
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # before jax is imported: no GPU is needed

from experiments.gpu.machine import git_commit
from experiments.xla_estimates.case import Row
from experiments.xla_estimates.measure import measured
from experiments.xla_estimates.programs import cases
from experiments.xla_estimates.table import page, tables
from scaling.meshes.errors import InputError, check_keys
from scaling.program.versions import compiler_versions


def write(rows: Sequence[Row], folder: Path) -> None:
    """Write `rows.json` and the page."""
    folder.mkdir(parents=True, exist_ok=True)
    commit, versions = git_commit() or "not known", compiler_versions()
    document = {"commit": commit, "versions": versions, "rows": [asdict(row) for row in rows]}
    (folder / "rows.json").write_text(json.dumps(document, indent=1) + "\n")
    (folder / "README.md").write_text(page(rows, commit, versions))


def read(folder: Path) -> list[Row]:
    """Return the rows that `write` wrote."""
    found: Iterable[Mapping[str, Any]] = json.loads((folder / "rows.json").read_text())["rows"]
    return [Row(**row) for row in found]


def main(arguments: Iterable[str] | None = None) -> None:
    """Compile the programs and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs; none: all")
    parser.add_argument("--out", type=Path, help="folder of the results")
    args = parser.parse_args(None if arguments is None else list(arguments))
    known = {case.name: case for case in cases()}
    try:
        check_keys(args.names, known, "experiments.xla_estimates", "program")
    except InputError as error:
        parser.error(str(error))
    rows = [measured(known[name]) for name in args.names or known]
    print(tables(rows))
    if args.out:
        write(rows, args.out / f"{date.today().isoformat()}-xla-estimates")


if __name__ == "__main__":
    main()
