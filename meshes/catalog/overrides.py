"""Figures of a catalogue cluster that one run states otherwise.

node_network_bandwidth   bytes/s of one node, all its NICs together, one direction
gpus_per_node            devices of a node that are used; links inside the node stay
memory                   bytes of one device; the usable part keeps its share
memory_bandwidth         bytes/s of one device's memory
nvlink_domain_nodes      nodes that share one NVLink domain
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from scaling.meshes.accelerator import with_figures
from scaling.meshes.catalog.entries import UNITS
from scaling.meshes.cluster import Cluster, network_link
from scaling.meshes.errors import InputError, check_keys, whole_number
from scaling.meshes.provenance import SourcedValue, overridden
from scaling.meshes.units import parse_quantity


def parse_overrides(items: Iterable[str]) -> dict[str, float]:
    """Overrides from `key=value` texts: `node_network_bandwidth=400Gb/s`, `memory=40GB`."""
    overrides: dict[str, float] = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals:
            raise InputError(f"--override {item!r}: write key=value, for example memory=40GB")
        check_keys([key], KEYS, "--override")
        if key in overrides:
            raise InputError(f"--override: key {key!r} is given twice")
        try:
            overrides[key] = parse_quantity(value, UNITS.get(key, ""))
        except InputError as error:
            raise InputError(f"--override {item}: {error}") from None
    return overrides


def apply_overrides(cluster: Cluster, overrides: Mapping[str, float], host: Cluster) -> Cluster:
    """The cluster with overridden figures, whose source becomes "override".

    `host` is the cluster as the file has it.
    """
    check_keys(overrides, KEYS, "cluster overrides")
    for key, value in overrides.items():
        if not value > 0:
            raise InputError(f"override {key}={value:g} must be positive")
    for key, apply in KEYS.items():  # in this order: a network share depends on the GPUs used
        if key in overrides:
            cluster = apply(cluster, overrides[key], host)
    return cluster


def _gpus_per_node(cluster: Cluster, value: float, host: Cluster) -> Cluster:
    gpus = whole_number("override gpus_per_node", value)
    if cluster.virtual_devices:
        return replace(cluster, devices_per_node=gpus, parts={**cluster.parts, "chip": gpus})
    if gpus > host.devices_per_node:
        raise InputError(
            f"override gpus_per_node={gpus}: a node of {cluster.name} has {host.devices_per_node}"
        )
    return replace(cluster, devices_per_node=gpus)


def _node_network_bandwidth(cluster: Cluster, value: float, host: Cluster) -> Cluster:
    link = network_link(cluster)
    if link is None:
        raise InputError(f"override node_network_bandwidth: {cluster.name} has no network")
    share = overridden(value / (cluster.nics * link.count), f"{value:g} bytes/s per node")
    changed = replace(link, bandwidth=share)
    return replace(cluster, links=tuple(changed if j is link else j for j in cluster.links))


def _memory(cluster: Cluster, value: float, host: Cluster) -> Cluster:
    chip, usable = cluster.accelerator, overridden(value)
    if chip.memory and chip.usable_memory:
        share = chip.usable_memory / chip.memory
        usable = overridden(value * share, f"{share:.1%}, as in the catalogue")
    return _with_chip_figures(cluster, {"memory": overridden(value), "usable_memory": usable})


def _memory_bandwidth(cluster: Cluster, value: float, host: Cluster) -> Cluster:
    return _with_chip_figures(cluster, {"memory_bandwidth": overridden(value)})


def _nvlink_domain_nodes(cluster: Cluster, value: float, host: Cluster) -> Cluster:
    nodes = whole_number("override nvlink_domain_nodes", value)
    if host.domain_nodes == 1:
        raise InputError(f"override nvlink_domain_nodes: no NVLink joins {cluster.name} nodes")
    if nodes > host.domain_nodes or cluster.nodes % nodes:
        raise InputError(
            f"override nvlink_domain_nodes={nodes} must divide the {cluster.nodes} nodes of "
            f"the run and be at most {host.domain_nodes}"
        )
    return replace(cluster, domain_nodes=nodes)


def _with_chip_figures(cluster: Cluster, figures: Mapping[str, SourcedValue]) -> Cluster:
    return replace(cluster, accelerator=with_figures(cluster.accelerator, figures))


KEYS: dict[str, Callable[[Cluster, float, Cluster], Cluster]] = {
    "gpus_per_node": _gpus_per_node,
    "node_network_bandwidth": _node_network_bandwidth,
    "memory": _memory,
    "memory_bandwidth": _memory_bandwidth,
    "nvlink_domain_nodes": _nvlink_domain_nodes,
}
