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
from typing import Any

from scaling.meshes.accelerator import with_figures
from scaling.meshes.cluster import Cluster, LinkSpec
from scaling.meshes.errors import InputError, check_keys
from scaling.meshes.provenance import SourcedValue, overridden
from scaling.profiles.profile import Profile

DIRECT = (("chip", "chip"), ("chip", "nvswitch"))  # parts of links from chip to chip
TEXT = re.compile(r"^\s*(\w+)\s*x\s*([\d.eE+-]+)\s*$")


def changed(cluster: Cluster, profile: Profile, changes: Sequence[str]) -> tuple[Cluster, Profile]:
    """The cluster and the profile with the figures of `changes` multiplied.

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
            _times(link, factor, "bandwidth") if link.kind == kind else link
            for link in cluster.links
        )
        measured = tuple(  # as if the links alone bounded it
            _times(f, factor, "bandwidth", "cache_bandwidth")
            if carrier(cluster, f.ranks) == kind
            else f
            for f in profile.collectives
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


def _latency(cluster: Cluster, profile: Profile, factor: float) -> tuple[Cluster, Profile]:
    cluster = replace(
        cluster,
        links=tuple(_times(link, factor, "latency") for link in cluster.links),
        fabric=_times(cluster.fabric, factor, "hop_latency"),
        torus=_times(cluster.torus, factor, "hop_latency"),
    )
    fits = tuple(_times(fit, factor, "alpha", "hop_overhead") for fit in profile.links)
    measured = tuple(_times(fit, factor, "alpha") for fit in profile.collectives)
    return cluster, replace(profile, links=fits, collectives=measured)


def _peak(cluster: Cluster, profile: Profile, factor: float) -> tuple[Cluster, Profile]:
    """Rates that the chip states, and those that were measured instead."""
    chip = cluster.accelerator
    chip = replace(chip, peaks={dtype: factor * rate for dtype, rate in chip.peaks.items()})
    matmul = tuple(_times(fit, factor, "peak") for fit in profile.matmul)
    attention = tuple(_times(fit, factor, "peak") for fit in profile.attention)
    return replace(cluster, accelerator=chip), replace(profile, matmul=matmul, attention=attention)


def _memory_bandwidth(cluster: Cluster, profile: Profile, factor: float) -> tuple[Cluster, Profile]:
    fit, chip = _times(profile.memory, factor, "bandwidth", "cache_bandwidth"), cluster.accelerator
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
    matmul = tuple(_times(fit, factor, "overhead") for fit in profile.matmul)
    attention = tuple(_times(fit, factor, "overhead") for fit in profile.attention)
    memory = _times(profile.memory, factor, "overhead")
    return cluster, replace(profile, matmul=matmul, attention=attention, memory=memory)


def _times(item: Any, factor: float, *names: str) -> Any:
    """A link, fit, ... with these figures multiplied; those that are None stay so."""
    figures = {}
    for name in names:
        figure = getattr(item, name, None)
        if isinstance(figure, SourcedValue):
            figures[name] = overridden(factor * figure.value, f"x{factor:g}")
        elif figure is not None:
            figures[name] = factor * figure
    return replace(item, **figures) if figures else item


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
