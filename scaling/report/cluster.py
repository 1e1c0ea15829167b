"""A cluster in text: a tree of its levels with link speeds and its figures with sources.

dgx-h100  NVIDIA DGX H100 in a SuperPOD, 2 nodes x 8 h100-sxm = 16 devices
|- chip    989 TFLOP/s bf16, 80 GiB (84.9 GB usable) at 3.35 TB/s
|- node    8 chip, 1 nvswitch, 8 pcie_switch, 2 socket, 2 memory, 8 nic
|  |- chip - nvswitch      nvlink   18 x 25 GB/s = 450 GB/s, 0.3 us
...
"""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from scaling.meshes.accelerator import Accelerator
from scaling.meshes.cluster import Cluster, LinkSpec, level_nodes, torus_link, torus_shape
from scaling.meshes.provenance import SourcedValue
from scaling.meshes.torus import shape_text, wraparound
from scaling.meshes.units import format_rate, format_size, format_time
from scaling.report.levels import level_table, switch_table

T = TypeVar("T")
STEMS = {"├─": "│  ", "└─": "   "}  # of a branch, and of the lines below it
UNMEASURED = "not measured yet (scaling calibrate)"
# Marks behind a source that was not read itself (meshes/provenance.py).
MARKS = {
    "text": "",
    "quoted": " [as quoted elsewhere]",
    "computed": " [computed]",
    "memory": " [from memory, not checked]",
}


def page(cluster: Cluster) -> str:
    """Return the page of `scaling cluster show`: tree, levels, switches, figures, addresses."""
    parts = (part(cluster) for part in (tree, level_table, switch_table, sources, addresses))
    return "\n\n".join(filter(None, parts))


def tree(cluster: Cluster) -> str:
    """The levels of the cluster, from the chip outwards, each with its parts and link speeds."""
    inside = [_link_line(link) for link in cluster.links if "leaf" not in link.parts]
    inside += numbering(cluster)
    branches = [
        ("chip", _chip_line(cluster.accelerator), []),
        ("node", _node_line(cluster), inside),
        *_fabric_branches(cluster),
    ]
    size = f"{_count(cluster.nodes, 'node')} x {cluster.devices_per_node}"
    lines = [
        f"{cluster.name}  {cluster.title}, {size} {cluster.accelerator.name} "
        f"= {cluster.devices} devices"
    ]
    for branch, stem in _branched(branches):
        name, text, leaves = branch
        lines.append(f"{stem} {name:<7} {text}")
        lines += [f"{STEMS[stem]}{twig} {leaf}" for leaf, twig in _branched(leaves)]
    return "\n".join(lines)


def numbering(cluster: Cluster) -> list[str]:
    """A line with the host's own numbers of the devices, where they differ from ours."""
    if not cluster.machine_numbers:
        return []
    own = " ".join(map(str, cluster.machine_numbers))
    return [f"devices 0 to {len(cluster.machine_numbers) - 1} are the host's {own}"]


def _branched(children: Sequence[T]) -> Iterator[tuple[T, str]]:
    """The children of a branch, each with its stem; the last one's ends there."""
    return zip(children, ["├─"] * (len(children) - 1) + ["└─"], strict=False)


def sources(cluster: Cluster) -> str:
    """Every figure of the cluster and its chip, one line each: name, value, source, date, note."""
    lines = []
    for name, figure in figures(cluster):
        date = f" ({figure.date})" if figure.date else ""
        note = f"; {figure.note}" if figure.note else ""
        lines.append(
            f"{name:<38} {format_figure(name, figure.value):>14}  "
            f"{figure.source}{date}{MARKS[figure.seen]}{note}"
        )
    return "\n".join(lines) or f"{cluster.name} has no figures yet; run `scaling calibrate`"


def addresses(cluster: Cluster) -> str:
    """Where the sources of its figures are, two lines each: title, address; each source once."""
    urls = {figure.source: figure.url for _, figure in figures(cluster) if figure.url}
    return "\n".join(f"{title}\n    {url}" for title, url in urls.items())


def figures(cluster: Cluster) -> Iterator[tuple[str, SourcedValue]]:
    """(name, figure) of everything that the cluster states."""
    yield "chips per node and wiring", cluster.layout
    for name, figure in cluster.accelerator.figures.items():
        yield f"{cluster.accelerator.name}: {name}", figure
    for name in ("nvswitch_chips", "nvswitch_ports", "host_memory"):
        if (figure := getattr(cluster, name)) is not None:
            yield name.replace("_", " "), figure
    for link in cluster.links:
        alike = [j for j in cluster.links if (j.kind, j.parts) == (link.kind, link.parts)]
        bundle = f" x{link.count}" if len(alike) > 1 else ""  # of several sizes: which one
        for name, value in (("bandwidth", link.bandwidth), ("latency", link.latency)):
            if value is not None:
                yield f"{link.kind} {' - '.join(link.parts)}{bundle}: {name}", value
    if cluster.torus is not None:
        yield "ici chip - chip: bandwidth", cluster.torus.bandwidth
        yield "ici chip - chip: latency", cluster.torus.hop_latency
    for name, value in vars(cluster.fabric).items() if cluster.fabric else ():
        if isinstance(value, SourcedValue):
            yield f"fabric: {name}", value


UNITS = {  # of figures whose name holds one of the words
    ("peak",): lambda value: format_rate(value, "FLOP/s"),
    ("bandwidth",): format_rate,
    ("latency", "_time"): format_time,
    ("clock",): lambda value: format_rate(value, "Hz"),
    ("memory", "l2_cache", "vector_registers"): format_size,
    ("capability",): lambda value: f"{value:.1f}",
}


def format_figure(name: str, value: float) -> str:
    """A figure with the unit that its name implies."""
    shown = [show for words, show in UNITS.items() if any(word in name for word in words)]
    return shown[0](value) if shown else f"{value:g}"


def _count(number: int, name: str) -> str:
    return f"{number} {name}{'s' * (number > 1)}"


def _chip_line(chip: Accelerator) -> str:
    dtype = chip.usual_format
    if dtype is None or chip.memory is None or chip.memory_bandwidth is None:
        return UNMEASURED
    usable = f" ({format_size(chip.usable_memory)} usable)" if chip.usable_memory else ""
    rate, memory = format_rate(chip.peak(dtype), "FLOP/s"), format_size(chip.memory)
    return f"{rate} {dtype}, {memory}{usable} at {format_rate(chip.memory_bandwidth)}"


def _node_line(cluster: Cluster) -> str:
    parts = ", ".join(f"{count} {kind}" for kind, count in cluster.parts.items())
    unused = cluster.parts["chip"] - cluster.devices_per_node
    used = f"; {cluster.devices_per_node} chip and {cluster.nics} nic used" if unused else ""
    reduces = "; the switch can reduce" if cluster.has_nvls else ""
    staged = "" if cluster.peer_access else "; no peer access: through host memory"
    return parts + used + reduces + staged


def _link_line(link: LinkSpec) -> str:
    speed = UNMEASURED
    if link.bandwidth is not None and link.total_bandwidth is not None and link.latency is not None:
        many = f"{link.count} x {format_rate(link.bandwidth.value)} = " if link.count > 1 else ""
        speed = f"{many}{format_rate(link.total_bandwidth)}, {format_time(link.latency.value)}"
    text = f"{' - '.join(link.parts):<22} {link.kind:<8} {speed}"
    return f"{text}, {len(link.pairs)} pairs" if len(link.pairs) > 1 else text


Branch = tuple[str, str, list[str]]  # name, text, lines of its parts


def _fabric_branches(cluster: Cluster) -> Iterator[Branch]:
    fabric, torus = cluster.fabric, cluster.torus
    if torus is not None:
        shape = torus_shape(cluster)
        closed = [i for i, joined in enumerate(wraparound(torus, shape)) if joined]
        rings = f"wraparound in dimensions {closed}" if closed else "no wraparound links"
        text = (
            f"{_count(cluster.domain_nodes, 'node')} in a slice of {shape_text(shape)} chips, "
            f"{rings}; a pod is {shape_text(torus.shape)}, "
            f"{torus.chips // cluster.devices_per_node} nodes"
        )
        yield "domain", text, [_link_line(torus_link(torus))]
    elif cluster.domain_nodes > 1:
        yield "domain", f"{cluster.domain_nodes} nodes share the NVSwitch", []
    if fabric is None:
        return
    network = [_link_line(link) for link in cluster.links if "leaf" in link.parts]
    wiring = "one leaf per rail" if fabric.rails else "one leaf"
    reduces = "; its switches can reduce" if fabric.has_sharp else ""
    other = f"; {fabric.transport}" if fabric.transport != "verbs" else ""
    text = f"up to {fabric.leaf_nodes.value:g} nodes, {wiring}{reduces}{other}"
    yield "leaf", text, network
    # bandwidth that one node has above the leaves, when all of them send at once
    above = fabric.leaf_oversubscription.value if fabric.leaf_oversubscription else 1.0
    latency = format_time(fabric.hop_latency.value) if fabric.hop_latency else UNMEASURED
    rate = format_rate(cluster.node_network_bandwidth / above)
    units, hop = level_nodes(cluster), [f"{rate} per node, {latency} per hop"]
    layers = ("spine", fabric.leaf_oversubscription), ("core", fabric.spine_oversubscription)
    for layer, oversubscription in layers:
        if layer in units:
            ratio = oversubscription.value if oversubscription else 1.0
            wide = "full bisection" if ratio == 1 else f"{ratio:g}:1 oversubscribed"
            yield layer, f"{units[layer]} nodes, {wide}", hop
