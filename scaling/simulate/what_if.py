"""A cluster and profile with figures changed: `nvlink x2`, `latency x0`, `network=100Gb/s`.

nvlink, xgmi, ici, pcie   bandwidth of all links of the kind, and of what was measured over them;
network                   as a value that of one link of a chip, and of one NIC
latency                   of all links, and the fixed costs of calling a collective
oversubscription          bandwidth into the leaf switches over that of their uplinks; 1 in most
                          clusters of the catalogue, so that x2 halves what leaves a leaf group
peak                      FLOP/s of matrix products in every format
clock                     of the cores: peaks and vector units; not what power sustains anyway
power                     limit of the board: what long products sustain follows it (`power`)
memory_bandwidth          of the device memory and its caches
memory                    bytes of the device memory
launch                    the fixed cost of a kernel, and what the host of other software takes to
                          issue an operation

Bandwidths, `memory`, `power` and `oversubscription` may be given as values.

`latency x0`, `launch x0` and infinite rates (`network xinf`) leave nothing of what they price.
Otherwise the program stays the one that was made for the cluster as it is.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from scaling.meshes.accelerator import Accelerator, with_figures
from scaling.meshes.cluster import Cluster, LinkSpec
from scaling.meshes.errors import InputError, check_keys, reworded
from scaling.meshes.provenance import SourcedValue, overridden
from scaling.meshes.units import Unit, format_rate, parse_quantity
from scaling.profiles.power import rate_under
from scaling.profiles.profile import Profile
from scaling.program.ir import Collective, Kernel, Operation, Program, with_operations

T = TypeVar("T", Cluster, Profile)
DIRECT = (("chip", "chip"), ("chip", "nvswitch"))  # parts of links from chip to chip
TEXT = re.compile(r"^\s*(\w+)\s*(?:x\s*(inf|[\d.eE+-]+)|=\s*(.+?))\s*$")

Names = Mapping[str, tuple[str, ...]]  # part of a cluster or a profile -> what is multiplied there
PRODUCTS = ("matmul", "grouped", "attention")  # fits of a profile
LINKS = ("nvlink", "xgmi", "ici", "pcie", "network")
OF_LINKS: tuple[Names, Names] = (
    {"links": ("bandwidth",)},
    {"collectives": ("bandwidth", "cache_bandwidth")},  # as if the links alone bounded it
)
FIGURES: Mapping[str, tuple[Names, Names]] = {
    **dict.fromkeys(LINKS, OF_LINKS),
    "ici": ({"torus": ("bandwidth",)}, OF_LINKS[1]),
    "latency": (
        {"links": ("latency",), "fabric": ("hop_latency",), "torus": ("hop_latency",)},
        {"links": ("alpha", "hop_overhead", "member_overhead"), "collectives": ("alpha",)},
    ),
    "peak": ({"accelerator": ("peaks",)}, dict.fromkeys(PRODUCTS, ("peak",))),
    "clock": (
        {"accelerator": ("peaks", "clock")},
        dict.fromkeys(PRODUCTS, ("peak",)) | {"vector": ("flops", "transcendentals")},
    ),
    "power": ({"accelerator": ("power",)}, {}),
    "memory_bandwidth": (
        {"accelerator": ("memory_bandwidth",)},
        {"memory": ("bandwidth", "cache_bandwidth")},
    ),
    "memory": ({"accelerator": ("memory", "usable_memory")}, {}),
    "launch": ({}, dict.fromkeys((*PRODUCTS, "memory"), ("overhead",))),
    "oversubscription": ({"fabric": ("leaf_oversubscription",)}, {}),
}
# What may be given as a value, and its unit.
VALUED: Mapping[str, Unit] = {
    **dict.fromkeys((*LINKS, "memory_bandwidth"), "B/s"),
    "memory": "B",
    "power": "W",
    "oversubscription": "",
}
# A smaller one is better; of all others a larger one.
COSTS = ("latency", "launch", "oversubscription")
LARGEST = 1e12  # factor; far from where sums of seconds lose digits, or products are infinite


def changed(cluster: Cluster, profile: Profile, changes: Sequence[str]) -> tuple[Cluster, Profile]:
    """The cluster and the profile with the figures of `changes` multiplied.

    Raises:
        InputError: not of that form, an unknown figure, one that the cluster lacks, or a factor
            with which nothing would ever end.
    """
    for text in changes:
        name, factor, value = _parsed(text)
        of_cluster, of_profile = FIGURES[name]
        if name in ("memory", "power"):
            cluster.accelerator.required(name)
        kind = name if name in LINKS else ""
        if not has_figure(cluster, name):
            there = ", ".join(link for link in LINKS if has_figure(cluster, link)) or "none"
            raise InputError(
                f"--what-if {name}: {cluster.name} has no such links; kinds that it has: {there}"
            )
        if value is not None:
            factor = value / _figure(cluster, name)
            _check_factor(text, name, factor)
        if name == "clock":  # power sustains no part of an infinite one
            factor = min(factor, LARGEST)
        is_of = lambda link, kind=kind: not kind or link.kind == kind
        went_over = lambda fit, c=cluster, kind=kind: not kind or carrier(c, fit.ranks) == kind
        cluster = _multiplied(cluster, of_cluster, factor, is_of)
        profile = _multiplied(profile, of_profile, factor, went_over)
        if name == "power":
            profile = _sustaining(profile, float(rate_under(factor)))
        elif name == "clock":  # power sustains the same rate
            profile = _sustaining(profile, 1 / factor)
    return cluster, profile


def _sustaining(profile: Profile, factor: float) -> Profile:
    """The profile whose long products sustain `factor` times the share of the peak, if they can."""
    limited = lambda fit: replace(fit, sustained=fit.sustained * factor)
    matmul, grouped = (tuple(map(limited, fits)) for fits in (profile.matmul, profile.grouped))
    return replace(profile, matmul=matmul, grouped=grouped)


def has_figure(cluster: Cluster, name: str) -> bool:
    """True unless a figure is of links or uplinks that the cluster does not state."""
    if name == "oversubscription":
        return cluster.fabric is not None and cluster.fabric.leaf_oversubscription is not None
    if name == "ici":
        return cluster.torus is not None
    return name not in LINKS or name in [link.kind for link in cluster.links]


def changed_program(program: Program, changes: Sequence[str]) -> Program:
    """The program with the seconds that its host takes for each operation times those of `launch`.

    Raises:
        InputError: as `check_changes`.
    """
    factor = math.prod(n for name, n, _ in map(_parsed, changes) if name == "launch")
    if factor == 1:
        return program

    def issued(step: Operation) -> Operation:
        if isinstance(step, Kernel | Collective):
            return replace(step, issue=factor * step.issue)
        return step

    return with_operations(program, issued)


def check_changes(changes: Sequence[str]) -> None:
    """Raise InputError for what `changed` could not read."""
    for text in changes:
        _parsed(text)


def figure_name(change: str) -> str:
    """Return the figure that a change is of."""
    return _parsed(change)[0]


def _parsed(text: str) -> tuple[str, float, float | None]:
    """Return the figure, the factor, and instead of a factor the value, if one is given."""
    match = TEXT.match(text)
    name, times, value = match.groups() if match else ("", None, None)
    if match:
        check_keys([name], FIGURES, "--what-if", "figure")
    if value is not None and name in VALUED:
        with reworded(f"--what-if {text!r}: "):
            return name, 1.0, parse_quantity(value, VALUED[name])
    try:
        factor = float(times or -1.0)
    except ValueError:
        factor = -1.0
    if not factor >= 0:
        form = " or a value, such as 'network x2' or 'network=100Gb/s'"
        if name in FIGURES and name not in VALUED:
            form = f", such as '{name} x2'"
        raise InputError(f"--what-if {text!r}: write a figure and a factor{form}")
    _check_factor(text, name, factor)
    return name, factor, None


def _check_factor(text: str, name: str, factor: float) -> None:
    best = 0.0 if name in COSTS else math.inf
    if factor != best and not 1 / LARGEST <= factor <= LARGEST:
        raise InputError(
            f"--what-if {text!r}: use a factor from {1 / LARGEST:g} to {LARGEST:g}, "
            f"or {best:g}: the best that {name} can be"
        )


def _figure(cluster: Cluster, name: str) -> float:
    """Return the value that a figure has: of links that of all wires between two parts.

    Raises:
        InputError: nobody states it, or links of one kind have several.
    """
    if name in ("memory", "memory_bandwidth", "power"):
        return cluster.accelerator.required(name)
    if name == "oversubscription":
        assert cluster.fabric is not None and cluster.fabric.leaf_oversubscription is not None
        return cluster.fabric.leaf_oversubscription.value
    if name == "ici":
        assert cluster.torus is not None  # by `has_figure`
        return cluster.torus.bandwidth.value
    rates = {link.total_bandwidth for link in cluster.links if link.kind == name}
    stated = sorted(rate for rate in rates if rate is not None)
    if len(stated) != 1:
        several = " and ".join(map(format_rate, stated)) or "an unknown rate"
        raise InputError(
            f"--what-if {name}: links of {cluster.name} have {several}: write a factor, '{name} x2'"
        )
    return stated[0]


def _multiplied(owner: T, parts: Names, factor: float, applies: Callable[[Any], bool]) -> T:
    """A cluster or profile with figures of its parts multiplied; a part may be a tuple of some."""
    changed: dict[str, Any] = {}
    for part, names in parts.items():
        item = getattr(owner, part)
        if isinstance(item, tuple):
            changed[part] = tuple(_times(x, factor, names) if applies(x) else x for x in item)
        elif item is not None:
            changed[part] = _times(item, factor, names)
    return replace(owner, **changed)


def _times(item: Any, factor: float, names: Sequence[str]) -> Any:
    """A link, chip, fit, ... with these figures multiplied; those that are None stay so."""
    figures: dict[str, Any] = {}
    for name in names:
        figure = getattr(item, name)
        if isinstance(figure, Mapping):
            figures[name] = {key: factor * value for key, value in figure.items()}
        elif isinstance(figure, SourcedValue):
            figures[name] = overridden(factor * figure.value, f"x{factor:g}")
        elif figure is not None:
            figures[name] = factor * figure
    if isinstance(item, Accelerator) and "peaks" not in names:  # whose figures have sources apart
        sourced = {name: overridden(value, f"x{factor:g}") for name, value in figures.items()}
        return with_figures(item, sourced)
    return replace(item, **figures)


def carrier(cluster: Cluster, ranks: int) -> str:
    """Kind of link over which so many chips of one node talk.

    Direct links, or a switch of them, where they join so many chips; else the way over PCIe.
    """
    if cluster.torus is not None:
        return "ici"
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
