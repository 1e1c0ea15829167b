"""Fits the links between hosts of a testbed, and writes scaling/profiles/data/host_links.json.

    python -m experiments.gloo.fit

    seconds = hops x hop overhead + bytes over the busiest link / (its rate x efficiency)

Two figures for each kind of collective, least squares of relative errors on the links of 1 Gbit/s
and 200 Mbit/s (results/2026-11-21-testbed); the errors in the file are those on links of 350 and
500 Mbit/s, which nothing was fitted on. `experiments.gloo.time` has gloo's messages one by one.
"""

import json
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, get_args

import numpy as np
from scipy.optimize import least_squares

from experiments.gloo.messages import groups_over
from experiments.published.ship_links import link_text
from scaling.calibration.regression import scored
from scaling.collectives.cost import collective_time
from scaling.meshes import catalog
from scaling.profiles.io import LinkFile, ideal
from scaling.profiles.profile import Evidence, LinkFit
from scaling.program.ir import CollectiveKind

RESULTS = Path("experiments/results")
FIT = ("2026-11-21-testbed",)
HELD_OUT = ("2026-11-21-testbed-held-out", "2026-11-21-testbed-check")
OUT = Path("scaling/profiles/data/host_links.json")
SMALL = 2**10  # bytes of the sweep's latency points, which repeat until all processes are awake
ALGORITHMS = {"all-to-all": "pairwise", "permute": "pairwise"}  # else "ring"
SOURCE = "experiments.gloo.fit on results/2026-11-21-testbed, two cores"


def points(folders: tuple[str, ...]) -> list[dict[str, Any]]:
    """Measured collectives of these results, without those of 1 KiB."""
    found = []
    for folder in folders:
        data = json.loads((RESULTS / folder / "results.json").read_text(encoding="utf-8"))
        found += [p.get("point", p) for p in data["points"]]
    return [p for p in found if p["bytes"] > SMALL]


def work(point: dict[str, Any]) -> tuple[float, float, float]:
    """(hops, seconds at line rate, seconds measured) of one collective."""
    kind = point["kind"]
    figures = {"gpus_per_node": point["devices"], "node_network_bandwidth": point["bandwidth"]}
    cluster = catalog.load("host", point["hosts"], figures)
    groups = np.array(groups_over(point["axis"], point["hosts"], point["devices"]))
    algorithm = ALGORITHMS.get(kind, "ring")
    cost = lambda profile: (
        collective_time(kind, point["bytes"], groups, cluster, profile, algorithm).time
    )
    wire = cost(ideal())
    one = tuple(replace(fit, hop_overhead=1.0) for fit in ideal().links)
    hops = cost(replace(ideal(), links=one)) - wire
    return float(hops), float(wire), median(point["seconds"])


def fit(kind: CollectiveKind) -> LinkFit:
    """The fit of one kind of collective, with its errors on the links that are held out."""
    of_kind = lambda folders: np.array([work(p) for p in points(folders) if p["kind"] == kind]).T
    hops, wire, seconds = of_kind(FIT)
    predicted = lambda x, hops, wire: hops * np.exp(x[0]) + wire / np.exp(x[1])
    off = lambda x: np.log(predicted(x, hops, wire) / seconds)
    solution = least_squares(off, np.log([1e-3, 0.8]), loss="soft_l1").x
    hops, wire, seconds = of_kind(HELD_OUT)
    errors = predicted(solution, hops, wire) / seconds
    evidence = scored(Evidence(SOURCE, "2026-11-22", "calibrated"), errors, np.ones_like(errors))
    p90 = float(np.expm1(np.quantile(np.abs(np.log(errors)), 0.9)))
    hop, efficiency = (float(value) for value in np.exp(solution))
    return LinkFit(
        kind,
        "network",
        efficiency,
        replace(evidence, error_p90=p90, latency_p90=p90),
        hop_overhead=hop,
        algorithm=ALGORITHMS.get(kind, "ring"),
    )


def main() -> None:
    """Fit every kind, write the file, print the figures."""
    kinds = [kind for kind in get_args(CollectiveKind) if kind != "broadcast"]
    fits = [fit(kind) for kind in kinds]
    assumed = Evidence("assumed as an all-gather: not measured", "2026-11-22", "datasheet")
    fits.append(replace(fits[kinds.index("all-gather")], kind="broadcast", evidence=assumed))
    file = LinkFile("python -m experiments.gloo.fit", between=tuple(fits))
    OUT.write_text(link_text(file), encoding="utf-8")
    for one in fits[:-1]:
        known = one.evidence
        print(
            f"{one.kind:15} efficiency {one.efficiency:.3f}, hop {one.hop_overhead * 1e3:.2f} ms; "
            f"held out: n {known.samples}, median error {known.median_error:.1%}, "
            f"mean {known.mean_error:.1%}, worst {known.max_error:.1%}"
        )


if __name__ == "__main__":
    main()
