"""A cluster and profile with figures multiplied: `nvlink x2`, `peak x0.5`, `latency x0`.

nvlink, pcie, network     bandwidth of all links of the kind, and of what was measured over them
latency                   of all links, and the fixed costs of calling a collective
peak                      FLOP/s of matrix products in every format
memory_bandwidth          of the device memory and its caches
memory                    bytes of the device memory
launch                    the fixed cost of a kernel

The program stays the one that was compiled for the cluster as it is.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from scaling.meshes.accelerator import with_figures
from scaling.meshes.cluster import Cluster, LinkSpec
from scaling.meshes.errors import InputError, check_keys
from scaling.meshes.provenance import SourcedValue, overridden
from scaling.profiles.profile import CollectiveFit, Profile

DIRECT = (("chip", "chip"), ("chip", "nvswitch"))  # parts of links from chip to chip
TEXT = re.compile(r"^\s*(\w+)\s*x\s*([\d.eE+-]+)\s*$")


def changed(cluster: Cluster, profile: Profile, changes: Sequence[str]) -> tuple[Cluster, Profile]:
    """The cluster and the profile with some figures multiplied.

    Args:
        cluster: where.
        profile: how efficient it is.
        changes: such as `network x2`.

    Raises:
        InputError: not of that form, an unknown figure, one that the cluster lacks, or a factor
            that is not positive.
    """
    for text in changes:
        name, factor = _parsed(text)
        cluster, profile = FIGURES[name](cluster, profile, factor)
    return cluster, profile


def check_changes(changes: Sequence[str]) -> None:
    """Raise InputError for what `changed` could not read."""
    for text in changes:
        _parsed(text)


def _parsed(text: str) -> tuple[str, float]:
    found = TEXT.match(text)
    try:
        factor = float(found[2]) if found else -1.0
    except ValueError:
        factor = -1.0
    if found is None or not 0 <= factor < math.inf:
        raise InputError(f"--what-if {text!r}: write a figure and a factor, such as 'network x2'")
    check_keys([found[1]], FIGURES, "--what-if", "figure")
    if factor == 0 and found[1] not in MAY_BE_ZERO:
        raise InputError(f"--what-if {text!r}: the factor must be positive")
    return found[1], factor


def _link(kind: str) -> "Change":
    def change(cluster: Cluster, profile: Profile, factor: float) -> tuple[Cluster, Profile]:
        kinds = [link.kind for link in cluster.links]
        if kind not in kinds:
            raise InputError(f"--what-if {kind}: {cluster.name} has no such links")
        links = tuple(
            replace(j, bandwidth=_times(j.bandwidth, factor)) if j.kind == kind else j
            for j in cluster.links
        )
        measured = tuple(
            _faster(fit, factor) if carrier(cluster, fit.ranks) == kind else fit
            for fit in profile.collectives
        )
        return replace(cluster, links=links), replace(profile, collectives=measured)

    return change


def carrier(cluster: Cluster, ranks: int) -> str:
    """Kind of link over which so many chips of one node talk.

    Direct links, or a switch of them, where they join so many chips; else the way over PCIe.
    """
    for link in cluster.links:
        if link.parts in DIRECT and _joined(link, cluster.parts["chip"]) >= ranks:
            return link.kind
    return "pcie"


def _joined(link: LinkSpec, chips: int) -> int:
    """Size of the largest group of chips that these links alone connect."""
    if link.wiring != "pairs":
        return chips
    group = {chip: {chip} for chip in range(chips)}
    for first, second in link.pairs:
        together = group[first] | group[second]
        group |= dict.fromkeys(together, together)
    return max(map(len, group.values()))


def _faster(fit: CollectiveFit, factor: float) -> CollectiveFit:
    """A measured line with its bandwidth multiplied, as if the links alone bounded it."""
    cache = fit.cache_bandwidth and fit.cache_bandwidth * factor
    return replace(fit, bandwidth=fit.bandwidth * factor, cache_bandwidth=cache)


def _latency(cluster: Cluster, profile: Profile, factor: float) -> tuple[Cluster, Profile]:
    def slower(link: LinkSpec) -> LinkSpec:
        return replace(link, latency=_times(link.latency, factor))

    fabric = cluster.fabric
    if fabric is not None:
        fabric = replace(fabric, hop_latency=_times(fabric.hop_latency, factor))
    torus = cluster.torus
    if torus is not None:
        hop = overridden(factor * torus.hop_latency.value, f"x{factor:g}")
        torus = replace(torus, hop_latency=hop)
    fits = tuple(
        replace(f, alpha=f.alpha * factor, hop_overhead=f.hop_overhead * factor)
        for f in profile.links
    )
    measured = tuple(replace(f, alpha=f.alpha * factor) for f in profile.collectives)
    links = tuple(map(slower, cluster.links))
    cluster = replace(cluster, links=links, fabric=fabric, torus=torus)
    return cluster, replace(profile, links=fits, collectives=measured)


def _peak(cluster: Cluster, profile: Profile, factor: float) -> tuple[Cluster, Profile]:
    """Rates that the chip states, and those that were measured instead."""
    chip = cluster.accelerator
    chip = replace(chip, peaks={dtype: factor * rate for dtype, rate in chip.peaks.items()})
    matmul = tuple(replace(f, peak=f.peak and f.peak * factor) for f in profile.matmul)
    attention = tuple(replace(f, peak=f.peak and f.peak * factor) for f in profile.attention)
    return replace(cluster, accelerator=chip), replace(profile, matmul=matmul, attention=attention)


def _memory_bandwidth(cluster: Cluster, profile: Profile, factor: float) -> tuple[Cluster, Profile]:
    fit = profile.memory
    fit = replace(
        fit,
        bandwidth=fit.bandwidth and fit.bandwidth * factor,
        cache_bandwidth=fit.cache_bandwidth and fit.cache_bandwidth * factor,
    )
    chip = cluster.accelerator
    if chip.memory_bandwidth is not None:
        bandwidth = overridden(factor * chip.memory_bandwidth, f"x{factor:g}")
        chip = with_figures(chip, {"memory_bandwidth": bandwidth})
    return replace(cluster, accelerator=chip), replace(profile, memory=fit)


def _memory(cluster: Cluster, profile: Profile, factor: float) -> tuple[Cluster, Profile]:
    chip = cluster.accelerator
    names = ("memory", "usable_memory")
    figures = {n: overridden(factor * chip.required(n), f"x{factor:g}") for n in names}
    return replace(cluster, accelerator=with_figures(chip, figures)), profile


def _launch(cluster: Cluster, profile: Profile, factor: float) -> tuple[Cluster, Profile]:
    matmul = tuple(replace(f, overhead=f.overhead * factor) for f in profile.matmul)
    attention = tuple(replace(f, overhead=f.overhead * factor) for f in profile.attention)
    memory = replace(profile.memory, overhead=profile.memory.overhead * factor)
    return cluster, replace(profile, matmul=matmul, attention=attention, memory=memory)


def _times(figure: SourcedValue | None, factor: float) -> SourcedValue | None:
    return None if figure is None else overridden(factor * figure.value, f"x{factor:g}")


Change = Callable[[Cluster, Profile, float], tuple[Cluster, Profile]]
FIGURES: dict[str, Change] = {
    "nvlink": _link("nvlink"),
    "pcie": _link("pcie"),
    "network": _link("network"),
    "latency": _latency,
    "peak": _peak,
    "memory_bandwidth": _memory_bandwidth,
    "memory": _memory,
    "launch": _launch,
}
MAY_BE_ZERO = ("latency", "launch")
