"""Fit the constants of each software on published training runs, and leave sources out in turn.

    python -m experiments.published.fit_software [SOFTWARE ...] [--write]      about 5 minutes

At most six constants a software (`scaling.analytic.software`). Least squares of log errors over the
part `fit`, robust (soft L1), with a weak pull towards the assumed values, so that a constant that
the runs do not move stays where it was. A host that is ahead of its device has no
gradient: the search begins at the launch among `LAUNCHES` that fits best with the others assumed.
Of a large source `MOST` rows are taken, by hash, and every row weighs less the more its source has.

Leaving a source out: the constants are fitted on the rows of all others of that software, then its
rows are priced (`software_fits.json`, which `make validate` scores). The central 90 % of these
errors, of rows that may be fitted, are the range of a prediction for that software; those of all
software together where it has fewer than `FEWEST` sources.
"""

import argparse
import hashlib
import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares

import scaling.analytic
from experiments.published.sweeps import Tried, timed
from experiments.published.training import FOLDER, Measured, measured_runs, memory_runs, part_of
from scaling.analytic.program import analytic_program, flash_rate
from scaling.analytic.software import traits_of
from scaling.api.calibrate import load_profile
from scaling.meshes.bandwidths import MeasuredCall
from scaling.meshes.cluster import Cluster
from scaling.profiles.profile import Profile
from scaling.program.ir import Program
from scaling.run import read_run
from scaling.simulate.columns import price_all
from scaling.simulate.resolve import Target, target
from scaling.simulate.step import Priced, price

FITS = FOLDER / "software_fits.json"
HABITS = Path(scaling.analytic.__path__[0]) / "data/software.toml"
Constants = Mapping[str, float]

# Values of constants that no run moves. PyTorch's host takes 5.5 to 9 us for an operation
# (experiments/eager_layer.py); the other values are this project's guesses.
ASSUMED = {
    "launch": 8e-6, "traffic": 1.4, "products": 0.95, "attention": 0.9, "hidden_tensor": 0.5,
    "hidden_weights": 0.8, "collective": 2.5e-4, "crossing": 2.5e-4,
}  # fmt: skip
LEAST = {"launch": 1e-6, "traffic": 0.8, "products": 0.5, "attention": 0.3, "collective": 1e-6}
LEAST |= {"crossing": 1e-6}
LARGEST = {"launch": 1e-4, "traffic": 5.0, "collective": 1e-3, "crossing": 1e-3}
SHARES = ("hidden_tensor", "hidden_weights")
LAUNCHES = (8e-6, 1.6e-5, 3.2e-5, 6.4e-5)  # s, first the assumed one, which wins a tie
# Others are facts: nothing overlaps in vTrain's configurations, whose attention is not fused;
# Megatron's recipes overlap all that they can, with cuDNN's attention. Searched, these three went
# to 1 in every fit. nanotron's attention is FlashAttention-2, its gradients of plain replicas are
# summed beside the last backward pass; no run of it is so narrow that a kernel's launch counts.
SEARCHED = {
    "deepspeed": ("launch", "traffic", "products"),
    "pytorch-fsdp": ("launch", "traffic", "products", "attention", "hidden_weights"),
    "megatron": ("launch", "traffic", "products"),
    "nanotron": ("traffic", "products", "collective", "crossing", "hidden_tensor"),
}
MOST = 40  # rows of one source
PULL = 0.1  # of a constant towards its assumed value, in units of a row's relative error
ROBUST = 0.1  # relative error from which on a row weighs less
ROUNDS = 6  # evaluations of the gradient
CENTRAL = (0.05, 0.95)  # quantiles: what lies between is in range
FEWEST = 2  # sources
SWEPT = "nanotron"  # whose runs are of many sizes: few devices are left out, and many
SIZES, MANY = ("8 to 32 GPUs", "64 to 256 GPUs"), 64


@lru_cache
def profile_for(cluster: Cluster, measured: tuple[MeasuredCall, ...]) -> Profile:
    """One for all runs of a cluster."""
    return load_profile(cluster, measured=measured)[0]


def published() -> tuple[Measured, ...]:
    """All rows of other software."""
    return *measured_runs(), *timed()


@lru_cache(maxsize=4096)
def _where(id: str) -> tuple[Target, Profile]:
    row = next(row for row in (*published(), *memory_runs()) if row.id == id)
    run = read_run(row.run, id)
    where = target(run)
    return where, profile_for(where.cluster, run.cluster.measured if run.cluster else ())


def placed(row: Measured, constants: Constants | None = None) -> tuple[Program, Cluster, Profile]:
    """The closed form of a run, and where it is priced; `constants` replace those shipped."""
    where, profile = _where(row.id)
    run, chip = where.run, where.cluster.accelerator
    traits = traits_of(run.software)
    if constants is not None:
        traits = replace(traits, **constants)  # type: ignore[arg-type]
    flash = flash_rate(run, chip.compute_capability)
    node = where.cluster.devices_per_node
    program = analytic_program(run, where.mesh, flash=flash, traits=traits, node=node)
    return program, where.cluster, profile


def priced(row: Measured, constants: Constants | None = None) -> Priced:
    """The price of a run's closed form."""
    return price(*placed(row, constants))


def log_errors(rows: Sequence[Measured], constants: Constants) -> np.ndarray:
    """log(predicted / measured) of each row."""
    every = price_all(placed(row, constants) for row in rows)
    times = [float(one.timeline.total) for one, _ in every]
    return np.log(np.array(times) / [row.step_time for row in rows])


def sample(rows: Sequence[Measured]) -> list[Measured]:
    """At most `MOST` rows of each source, by hash."""
    by_source = defaultdict(list)
    for row in sorted(rows, key=lambda row: hashlib.sha256(row.id.encode()).digest()):
        by_source[row.source].append(row)
    return [row for own in by_source.values() for row in own[:MOST]]


def fitted(software: str, rows: Sequence[Measured]) -> dict[str, float]:
    """The constants that fit the rows best, searched from the assumed ones; these without rows."""
    names, chosen = SEARCHED[software], sample(rows)
    start = np.array([ASSUMED[name] for name in names])
    if not chosen:
        return dict(zip(names, start.tolist(), strict=True))
    count = Counter(row.source for row in chosen)
    weight = np.array([np.sqrt(_weight(count[row.source])) for row in chosen])
    is_share = np.array([name in SHARES for name in names])

    def residuals(x: np.ndarray) -> np.ndarray:
        errors = weight * log_errors(chosen, dict(zip(names, x, strict=True)))
        moved = np.where(is_share, x - start, np.log(x / start))
        return np.concatenate([errors, PULL * moved])

    def cost(x: np.ndarray) -> float:
        return float(np.sum(np.sqrt(1 + (residuals(x) / ROBUST) ** 2)))  # soft L1

    launches = LAUNCHES if "launch" in names else LAUNCHES[:1]
    start_at = [np.where(np.array(names) == "launch", launch, start) for launch in launches]
    low = [LEAST.get(name, 0.0) for name in names]
    high = [LARGEST.get(name, 1.0) for name in names]
    found = least_squares(
        residuals, np.clip(min(start_at, key=cost), low, np.array(high) * (1 - 1e-6)),
        bounds=(low, high),
        x_scale=np.maximum(start, 1e-9), diff_step=0.02, loss="soft_l1", f_scale=ROBUST,
        max_nfev=ROUNDS,
    )  # fmt: skip
    return {name: float(f"{x:.3g}") for name, x in zip(names, found.x, strict=True)}


def fits_of(software: str) -> dict[str, Any]:
    """The constants on all rows that may be fitted, and those with each source left out."""
    own = [row for row in published() if software_of(row) == software]
    may = [row for row in own if part_of(row) == "fit"]
    constants = fitted(software, may)
    without: dict[str, dict[str, float]] = {}
    for source in sorted({row.source for row in own}):
        rest = [row for row in may if row.source != source]
        without[source] = fitted(software, rest) if len(rest) < len(may) else constants
        print(f"{software} without {source}: {without[source]}", flush=True)
    found: dict[str, Any] = {"constants": constants, "without": without, "rows": len(sample(may))}
    if software == SWEPT:
        sizes = {size: [r for r in may if size_of(r) != size] for size in SIZES}
        found["without_size"] = {size: fitted(software, rest) for size, rest in sizes.items()}
    return found


def size_of(row: Measured | Tried) -> str:
    """Which of `SIZES` its devices are."""
    return SIZES[math.prod(row.run["mesh"].values()) >= MANY]


def ranges(fits: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[float, float]]:
    """Measured over predicted time, the central part for each software; see the module."""
    may = [row for row in published() if part_of(row) == "fit"]
    rows = {source: [r for r in may if r.source == source] for source in {r.source for r in may}}
    errors = {
        software: [
            log_errors(sample(rows[source]), constants)
            for source, constants in found["without"].items()
            if source in rows
        ]
        for software, found in fits.items()
    }
    every = [own for found in errors.values() for own in found]
    return {name: central(own if len(own) >= FEWEST else every) for name, own in errors.items()}


def _weight(rows: int) -> float:
    """Weight of each row's squared error in a source of so many."""
    return rows**-0.5


def central(errors: Sequence[np.ndarray]) -> tuple[float, float]:
    """Measured over predicted time at the ends of the central 90 %, from log errors by source.

    Rows weigh as in the fit. The prediction itself is always in between.
    """
    measured = -np.concatenate(errors)
    weight = np.concatenate([np.full(len(own), _weight(len(own))) for own in errors])
    order = np.argsort(measured)
    below = (np.cumsum(weight[order]) - weight[order] / 2) / weight.sum()
    least, most = np.exp(np.interp(CENTRAL, below, measured[order]))
    return float(f"{min(least, 1.0):.3g}"), float(f"{max(most, 1.0):.3g}")


def software_of(row: Measured) -> str:
    """The software whose constants a row has."""
    return str(row.run["software"])


def ship(fits: Mapping[str, dict[str, Any]]) -> None:
    """Write the constants into software.toml."""
    text = HABITS.read_text(encoding="utf-8")
    for name, found in fits.items():
        for software in (name, "nemo") if name == "megatron" else (name,):
            text = _with_constants(text, software, found)
    HABITS.write_text(text, encoding="utf-8")


def _with_constants(text: str, software: str, found: dict[str, Any]) -> str:
    head, table = text.split(f"[{software}]\n")
    table, bracket, rest = table.partition("\n[")
    sources = ", ".join(found["without"])
    values = found["constants"] | {"range": list(found["range"])}
    for key, value in values.items():
        table = re.sub(rf"(?m)^{key} = .*$", f"{key} = {value}", table)
    evidence = (
        f"fitted on {found['rows']} runs (experiments/published/fit_software.py) of {sources}"
    )
    table = re.sub(r"(?m)^evidence = .*$", f'evidence = "{evidence}"', table)
    return f"{head}[{software}]\n{table}{bracket}{rest}"


def known_fits() -> dict[str, dict[str, Any]]:
    """The fits that were written, by software."""
    return json.loads(FITS.read_text(encoding="utf-8")) if FITS.exists() else {}


def main(arguments: list[str] | None = None) -> None:
    """Fit, print, and with --write ship the constants."""
    parser = argparse.ArgumentParser(prog="python -m experiments.published.fit_software")
    parser.add_argument("software", nargs="*", default=list(SEARCHED), help="default: all")
    parser.add_argument("--write", action="store_true", help="ship them")
    options = parser.parse_args(arguments)
    for software in options.software:
        found = fits_of(software)
        print(software, {k: v for k, v in found.items() if k != "without"}, flush=True)
        if options.write:
            fits = {**known_fits(), software: found}
            fits = {name: fits[name] | {"range": r} for name, r in ranges(fits).items()}
            FITS.write_text(json.dumps(fits, indent=1) + "\n", encoding="utf-8")
            ship(fits)


if __name__ == "__main__":
    main()
