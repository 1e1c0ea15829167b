"""Pictures of predictions beside what others measured."""

import scaling as sc
from experiments.published.collectives import Case, cases
from experiments.published.validate import held_out, scatter_points
from scaling.meshes.units import parse_sweep
from scaling.pictures import curves
from scaling.pictures.curves import scatter
from scaling.pictures.shapes import Picture

SWEEP = "64KiB:8GiB"


def validation() -> Picture:
    """Training steps that no constant was fitted on."""
    return scatter(scatter_points(held_out()), "Training steps that nothing was fitted on")


def bandwidth() -> Picture:
    """All-reduces over the eight GPUs of a DGX H100; some of the points were fitted on."""
    sizes = parse_sweep(SWEEP)
    prices = [sc.price_collective("all-reduce", size, "dgx-h100") for size in sizes]
    factor = prices[0].bus_bandwidth * prices[0].time / prices[0].bytes
    measured: dict[str, list[tuple[float, float]]] = {}
    for case in filter(_is_wanted, cases()):
        if sizes[0] <= case.bytes <= sizes[-1]:
            points = measured.setdefault(case.machine, [])
            points.append((case.bytes, factor * case.bytes / case.time))
    return curves.bandwidth(prices, "All-reduce over the 8 H100 of a node", measured)


def _is_wanted(case: Case) -> bool:
    where = (case.kind, case.cluster, case.nodes, case.ranks, case.groups, case.algorithm)
    return where == ("all-reduce", "dgx-h100", 1, 8, 1, "auto") and not case.overrides
