"""Programs of the foreign collection priced under several versions of jax, and the table of it.

    python -m experiments.jax_versions --out experiments/results        all, 10 minutes
    python -m experiments.jax_versions --versions 0.9.2 0.12.0.1 --programs gpt_fsdp

Each version has an environment of its own, which is made first (2.3 GB on disk). $PYTHON is 3.12 or
newer, which jax 0.11 asks for; where uv is installed it takes the place of pip.
"""

import argparse
import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import date
from pathlib import Path

from experiments.foreign.__main__ import priced_by, read
from experiments.foreign.result import Priced
from experiments.gpu.machine import git_commit
from scaling.report.formatting import columns

VERSIONS = ("0.8.0", "0.8.3", "0.9.2", "0.10.2", "0.11.2", "0.12.0.1")
NEWEST = "0.12.0.1"  # beside which step times and products of the others stand
PROGRAMS = ("gpt_fsdp", "remat_scan", "pipeline_ppermute", "ring_attention")
# Packages of the extra `deviceless`, and those that this project imports
DEVICELESS = ("jax[cuda12-local]=={0}", "jax-cuda12-plugin=={0}", "nvidia-cudnn-cu12>=9.8")
LIBRARIES = ("nvidia-cuda-nvcc-cu12>=12.9", "nvidia-cuda-runtime-cu12>=12.9")
OURS = ("flax", "optax", "chex", "numpy", "rich", "scipy")
ROWS = "rows.json"
HEADS = ["jax", "priced", "memory: ours over the plan", "step over newest", "FLOPs over newest"]


def make(folder: Path, version: str) -> Path:
    """The interpreter of a version's environment, which is made where it is not there."""
    python = folder / version / "bin" / "python"
    if not python.exists():
        base = os.environ.get("PYTHON", "python3.12")
        subprocess.run([base, "-m", "venv", str(folder / version)], check=True)
        packages = [name.format(version) for name in (*DEVICELESS, *LIBRARIES, *OURS)]
        uv = ["uv", "pip", "install", "--python", str(python)]
        pip = uv if shutil.which("uv") else [str(python), "-m", "pip", "install"]
        subprocess.run([*pip, "--quiet", *packages], check=True)
    return python


def table(found: Mapping[str, Sequence[Priced]]) -> str:
    """One line for each version: worst ratios over its programs, by how far they are from 1."""
    newest = {row.name: row for row in found.get(NEWEST, ()) if not row.error}
    lines = [HEADS]
    for version, rows in found.items():
        made = [row for row in rows if not row.error]
        beside = [(row, newest[row.name]) for row in made if row.name in newest]
        ratios: list[list[float]] = [
            [row.peak_ratio for row in made if row.peak_ratio],
            [row.time / other.time for row, other in beside],
            [row.flops / other.flops for row, other in beside if other.flops],
        ]
        errors = [row.error for row in rows if row.error]
        words = [_span(of) for of in ratios] if made else [_reason(errors), "", ""]
        lines.append([version, f"{len(made)} of {len(rows)}", *words])
    return "\n".join(columns(lines, left=(0, 2)))


def _reason(errors: Sequence[str]) -> str:
    """The beginning of the first message."""
    return errors[0].partition(": ")[2].partition(":")[0] if errors else ""


def _span(ratios: Sequence[float]) -> str:
    """`1.000`, or `0.998 to 1.067`."""
    ends = [f"{end(ratios):.3f}" for end in (min, max)] if ratios else [""]
    return " to ".join(dict.fromkeys(ends))


def main(arguments: Iterable[str] | None = None) -> None:
    """Price the programs under each version and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--versions", nargs="+", default=VERSIONS, metavar="VERSION")
    parser.add_argument("--programs", nargs="+", default=PROGRAMS, metavar="NAME")
    parser.add_argument("--environments", type=Path, default=Path(".venv-jax"), metavar="FOLDER")
    parser.add_argument("--out", type=Path, help="folder of the results")
    args = parser.parse_args(None if arguments is None else list(arguments))
    folder = args.out and args.out / f"{date.today().isoformat()}-jax-versions"
    found = read_rows(folder / ROWS) if folder else {}
    for version in args.versions:
        python = make(args.environments, version)
        found[version] = [priced_by(str(python), name) for name in args.programs]
        print(table({version: found[version]}).splitlines()[-1], flush=True)
        if folder:
            write(found, folder)
    print(f"\n{table(found)}")


def read_rows(file: Path) -> dict[str, list[Priced]]:
    """Version -> its rows, of an earlier run; {} where there is none."""
    document = json.loads(file.read_text()) if file.exists() else {"versions": {}}
    return {version: list(map(read, rows)) for version, rows in document["versions"].items()}


def write(found: Mapping[str, Sequence[Priced]], folder: Path) -> None:
    """Write the rows and the page."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = {
        version: [asdict(row) for row in of] for version, of in sorted(found.items(), key=_order)
    }
    document = {"commit": git_commit() or "not known", "versions": rows}
    (folder / ROWS).write_text(json.dumps(document, indent=1) + "\n")
    names = [row.name for row in next(iter(found.values()))]
    words = table(dict(sorted(found.items(), key=_order)))
    (folder / "README.md").write_text(f"{page(words, names)}\n")


def _order(item: tuple[str, object]) -> tuple[int, ...]:
    return tuple(map(int, item[0].split(".")))


def page(words: str, programs: Sequence[str]) -> str:
    """The table with how it was made."""
    return (
        f"# Versions of jax\n\nMade by `python -m experiments.jax_versions --out "
        f"experiments/results` of {', '.join(programs)}, each under each version, in an "
        f"environment of its own. Nothing was run on a GPU.\n\n```text\n{words}\n```"
    )


if __name__ == "__main__":
    main()
