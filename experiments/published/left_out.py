"""Figures of all links, fitted on everything, on the development parts, and without each system.

    python -m experiments.published.left_out        writes figures.json; ten minutes on two cores

A system is what one owner measured on one cluster: all its machines are left out together, under
whatever name, size of group or collective. Whole generations of chips are left out as well, and all
that crosses more than two nodes. The search starts anew for each.
"""

import json
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from typing import Any

from experiments.published.collectives import (
    FOLDER,
    Case,
    cases,
    cases_of,
    part_of_system,
    system_cases,
)
from experiments.published.figures import GENERATIONS
from experiments.published.fit import fitted
from experiments.published.series import series_of
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
    return [*cases_of("fit"), *(c for c in system_cases() if part_of_system(c.machine) == "fit")]


@lru_cache(maxsize=1)
def known_figures() -> dict[str, Any]:
    """The document: figures by what they were fitted on."""
    return json.loads(FIGURES.read_text(encoding="utf-8"))


def _fit(rows: Sequence[Case]) -> dict[str, float]:
    return {name: float(f"{value:.4g}") for name, value in fitted(series_of(rows)).items()}


def main() -> None:
    """Fit all of them and write the document."""
    rows = everything()
    chips = {case.cluster: catalog.load(case.cluster).accelerator.name for case in rows}
    systems = list(dict.fromkeys(system_of(case.machine) for case in rows))
    tasks = [rows, development()]
    tasks += [[case for case in rows if system_of(case.machine) != name] for name in systems]
    tasks += [[c for c in rows if chips[c.cluster] not in own] for own in GENERATIONS.values()]
    tasks.append([case for case in rows if case.nodes <= 2])
    with ProcessPoolExecutor(WORKERS) as pool:
        everywhere, developed, *without, two_nodes = pool.map(_fit, tasks)
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
    main()
