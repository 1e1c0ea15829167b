"""Figures of all links, fitted on everything, on the development parts, and without each system.

    python -m experiments.published.left_out                    writes figures.json; ten minutes
    python -m experiments.published.left_out pcie host          of these figures anew, the others
                                                                as they were; a minute

A system is what one owner measured on one cluster: all its machines are left out together, under
whatever name, size of group or collective. Whole generations of chips are left out as well, and all
that crosses more than two nodes. The search starts anew for each.
"""

import json
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from typing import Any

from experiments.published.collectives import (
    FOLDER,
    Case,
    cases,
    cases_of,
    system_cases,
)
from experiments.published.figures import GENERATIONS, NAMES, Figures
from experiments.published.fit import fitted
from experiments.published.series import series_of
from experiments.published.split import part_of_key
from scaling.meshes import catalog

FIGURES = FOLDER / "figures.json"
WORKERS = 2
# Names of machines that are parts of one system, by how they begin.
ONE_SYSTEM = ("OCI GB200", "OCI BM.GPU.H100.8", "ml-engineering H200", "GCP A4X Max")


def system_of(machine: str) -> str:
    """The system that a machine is part of."""
    return next((name for name in ONE_SYSTEM if machine.startswith(name)), machine)


def everything() -> list[Case]:
    """All published cases."""
    return [*cases(), *system_cases()]


def development() -> list[Case]:
    """The measurements that both splits allow to fit on."""
    return [*cases_of("fit"), *(c for c in system_cases() if part_of_key(c.machine) == "fit")]


@lru_cache(maxsize=1)
def known_figures() -> dict[str, Any]:
    """The document: figures by what they were fitted on."""
    return json.loads(FIGURES.read_text(encoding="utf-8"))


def _fit(rows: Sequence[Case], known: Figures, names: Sequence[str]) -> dict[str, float]:
    found = fitted(series_of(rows), known=known, names=names)
    return {name: float(f"{value:.4g}") for name, value in found.items()}


def main(figures: Sequence[str]) -> None:
    """Fit all of them, or those that begin with these names, and write the document."""
    names = [name for name in NAMES if not figures or name.partition(":")[0] in figures]
    rows = everything()
    chips = {case.cluster: catalog.load(case.cluster).accelerator.name for case in rows}
    systems = list(dict.fromkeys(system_of(case.machine) for case in rows))
    tasks = [rows, development()]
    tasks += [[case for case in rows if system_of(case.machine) != name] for name in systems]
    tasks += [[c for c in rows if chips[c.cluster] not in own] for own in GENERATIONS.values()]
    tasks.append([case for case in rows if case.nodes <= 2])
    old = known_figures() if figures else {}
    known = [old.get("all", {}), old.get("development", {})]
    known += [old.get("without", {}).get(name, known[0]) for name in systems]
    known += [old.get("without_generation", {}).get(name, known[0]) for name in GENERATIONS]
    known.append(old.get("two_nodes", {}))
    with ProcessPoolExecutor(WORKERS) as pool:
        fits = pool.map(_fit, tasks, known, [names] * len(tasks))
        everywhere, developed, *without, two_nodes = fits
    document = {
        "made_by": "python -m experiments.published.left_out",
        "all": everywhere,
        "development": developed,
        "two_nodes": two_nodes,
        "without": dict(zip(systems, without, strict=False)),
        "without_generation": dict(zip(GENERATIONS, without[len(systems) :], strict=True)),
    }
    FIGURES.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
