"""Figures of a catalogue cluster, or of a chip, that one run or question states otherwise.

node_network_bandwidth   bytes/s of one node, all its NICs together, one direction
nic_bandwidth            bytes/s of one NIC, one direction; instead of node_network_bandwidth
gpus_per_node            devices of a node that are used; links inside the node stay
memory                   bytes of one device; the usable part keeps its share
memory_bandwidth         bytes/s of one device's memory
host_memory              bytes of one host's memory
nvlink_domain_nodes      nodes that share one NVLink domain
link_bandwidth           bytes/s of a chip's NVLink or xGMI to a switch, or to all others together,
                         one direction; of one physical link between pairs of chips, or of a torus
peak_bf16, peak_fp8 ..   dense FLOP/s of one device

Every figure of a chip can be stated otherwise in a question about it: clock=1.59GHz.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from scaling.meshes.accelerator import FIGURE_NAMES, Accelerator, with_figures
from scaling.meshes.catalog.figures import PEAKS, figure
from scaling.meshes.cluster import Cluster, network_link
from scaling.meshes.errors import InputError, check_keys, check_range, reworded, whole_number
from scaling.meshes.provenance import overridden
from scaling.meshes.rings import FAST
from scaling.meshes.units import parse_quantity

# What is taken for the rate of one NIC.
OF_ONE_NIC = ("nic", "nics", "network", "network_bandwidth", "bandwidth")
RATES = (1.0, 1e24)  # bytes/s and FLOP/s beyond any machine, whose quotients are still floats
RANGE = (1e-9, 1e24)  # of any figure of a chip; products and quotients of them stay finite


def parse_overrides(items: Iterable[str]) -> dict[str, float]:
    """Overrides from `key=value` texts: `node_network_bandwidth=400Gb/s`, `memory=40GB`."""
    items = list(items)
    for key in (item.partition("=")[0] for item in items if "=" in item):
        if key in OF_ONE_NIC:
            raise InputError(
                f"--override: unknown key {key!r}; did you mean 'nic_bandwidth', the rate of one "
                "NIC, or 'node_network_bandwidth', that of all NICs of a node together? (8 of "
                "400Gb/s are 3200Gb/s)"
            )
    return _parsed(items, KEYS, "memory=40GB")


def override_chip(chip: Accelerator, items: Iterable[str]) -> Accelerator:
    """The chip with the figures of `key=value` texts, whose source becomes "override".

    Raises:
        InputError: no such key (the nearest is named), one that is given twice, or no number of
            its unit.
    """
    stated = {}
    for key, value in _parsed(items, (*PEAKS, *FIGURE_NAMES), "peak_bf16=400e12").items():
        check_range(f"--override {key}", value, *RANGE)
        whole = figure(key).whole
        stated[key] = overridden(whole_number(f"--override {key}", value) if whole else value)
    return with_figures(chip, stated)


def _parsed(items: Iterable[str], keys: Collection[str], example: str) -> dict[str, float]:
    """Keys and numbers of `key=value` texts; InputError where one is not of `keys` or wrong."""
    values: dict[str, float] = {}
    for item in items:
        key, equals, text = item.partition("=")
        if not equals:
            raise InputError(f"--override {item!r}: write key=value, for example {example}")
        check_keys([key], keys, "--override")
        if key in values:
            raise InputError(f"--override: key {key!r} is given twice")
        with reworded(f"--override {item}: "):
            values[key] = parse_quantity(text, figure(key).unit)
    return values


def apply_overrides(cluster: Cluster, overrides: Mapping[str, float], host: Cluster) -> Cluster:
    """The cluster with overridden figures, whose source becomes "override".

    `host` is the cluster as the file has it.
    """
    check_keys(overrides, KEYS, "cluster overrides")
    if {"nic_bandwidth", "node_network_bandwidth"} <= set(overrides):
        raise InputError("override nic_bandwidth and node_network_bandwidth: give one of them")
    for key, value in overrides.items():
        if not value > 0:
            raise InputError(f"override {key}={value:g} must be positive")
    for key, apply in KEYS.items():  # in this order: a network share depends on the GPUs used
        if key in overrides:
            cluster = apply(cluster, key, overrides[key], host)
    return cluster


def _gpus_per_node(cluster: Cluster, key: str, value: float, host: Cluster) -> Cluster:
    gpus = whole_number(f"override {key}", value)
    if cluster.virtual_devices:
        return replace(cluster, devices_per_node=gpus, parts={**cluster.parts, "chip": gpus})
    if gpus > host.devices_per_node:
        raise InputError(
            f"override {key}={gpus}: a node of {cluster.name} has {host.devices_per_node}"
        )
    return replace(cluster, devices_per_node=gpus)


def _network(cluster: Cluster, key: str, value: float, host: Cluster) -> Cluster:
    link = network_link(cluster)
    if link is None:
        raise InputError(f"override {key}: {cluster.name} has no network")
    per_node = value * cluster.nics if key == "nic_bandwidth" else value
    share = overridden(per_node / (cluster.nics * link.count), f"{per_node:g} bytes/s per node")
    changed = replace(link, bandwidth=share)
    return replace(cluster, links=tuple(changed if j is link else j for j in cluster.links))


def _memory(cluster: Cluster, key: str, value: float, host: Cluster) -> Cluster:
    chip, usable = cluster.accelerator, overridden(value)
    if chip.memory and chip.usable_memory:
        share = chip.usable_memory / chip.memory
        usable = overridden(value * share, f"{share:.1%}, as in the catalogue")
    figures = {"memory": overridden(value), "usable_memory": usable}
    return replace(cluster, accelerator=with_figures(chip, figures))


def _chip_figure(cluster: Cluster, key: str, value: float, host: Cluster) -> Cluster:
    if key in PEAKS:
        check_range(f"override {key}", value, *RATES)
    chip = with_figures(cluster.accelerator, {key: overridden(value)})
    return replace(cluster, accelerator=chip)


def _domain_nodes(cluster: Cluster, key: str, value: float, host: Cluster) -> Cluster:
    nodes = whole_number(f"override {key}", value)
    if host.domain_nodes == 1:
        raise InputError(f"override {key}: no NVLink joins {cluster.name} nodes")
    if nodes > host.domain_nodes or cluster.nodes % nodes:
        raise InputError(
            f"override {key}={nodes} must divide the {cluster.nodes} nodes of the run and be at "
            f"most {host.domain_nodes}"
        )
    return replace(cluster, domain_nodes=nodes)


def _link_bandwidth(cluster: Cluster, key: str, value: float, host: Cluster) -> Cluster:
    check_range(f"override {key}", value, *RATES)
    if cluster.torus is not None:
        return replace(cluster, torus=replace(cluster.torus, bandwidth=overridden(value)))
    if not any(link.kind in FAST for link in cluster.links):
        raise InputError(f"override {key}: chips of {cluster.name} have no links to each other")
    changed = []
    for link in cluster.links:
        if link.kind in FAST:
            others = max(1, cluster.devices_per_node - 1) if link.wiring == "all" else 1
            wires = 1 if link.wiring == "pairs" else link.count * others
            share = overridden(value / wires, f"{value:g} bytes/s over {wires} links")
            link = replace(link, bandwidth=share)
        changed.append(link)
    return replace(cluster, links=tuple(changed))


KEYS: dict[str, Callable[[Cluster, str, float, Cluster], Cluster]] = {
    "gpus_per_node": _gpus_per_node,
    "node_network_bandwidth": _network,
    "nic_bandwidth": _network,
    "memory": _memory,
    "memory_bandwidth": _chip_figure,
    "host_memory": lambda cluster, key, value, host: replace(
        cluster, host_memory=overridden(value)
    ),
    "nvlink_domain_nodes": _domain_nodes,
    "link_bandwidth": _link_bandwidth,
    **dict.fromkeys(PEAKS, _chip_figure),
}
