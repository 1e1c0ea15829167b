"""A cluster as plain data, what `scaling cluster show --json` prints: SI units, with sources."""

from typing import Any

from scaling.meshes.cluster import Cluster, level_nodes, torus_shape
from scaling.meshes.switch_counts import switch_layers
from scaling.meshes.torus import wraparound
from scaling.report.cluster import figures
from scaling.report.levels import bisection, known_levels, level_notes

FIRST = "name", "title", "nodes", "devices_per_node", "devices"
KEYS = "name", "link", "transport", "units", "pools", "bandwidth", "hop_latency", "own_hops"


def as_json(cluster: Cluster) -> dict[str, Any]:
    """The cluster as plain data: SI units, every figure with its source."""
    torus = cluster.torus
    return {
        **{key: getattr(cluster, key) for key in FIRST},
        "accelerator": cluster.accelerator.name,
        "cpu": cluster.cpu,
        "peer_access": cluster.peer_access,
        "machine_numbers": list(cluster.machine_numbers),
        "parts": dict(cluster.parts),
        "nics_per_node": cluster.nics,
        "node_network_bandwidth": cluster.node_network_bandwidth,
        "levels": level_nodes(cluster),
        "network_levels": levels_json(cluster),
        "links": [
            {
                "parts": list(link.parts),
                "kind": link.kind,
                "count": link.count,
                "bandwidth": link.total_bandwidth,
                "latency": link.latency.value if link.latency else None,
            }
            for link in cluster.links
        ],
        "has_nvls": cluster.has_nvls,
        "transport": "" if cluster.fabric is None else cluster.fabric.transport,
        "has_sharp": cluster.fabric is not None and cluster.fabric.has_sharp,
        **switches_json(cluster),
        "torus": torus
        and {
            "slice": list(torus_shape(cluster)),
            "wraparound": list(wraparound(torus, torus_shape(cluster))),
            "bandwidth": torus.bandwidth.value,
            "hop_latency": torus.hop_latency.value,
            "pod": {
                "shape": list(torus.shape),
                "devices": torus.chips,
                "nodes": torus.chips // cluster.devices_per_node,
            },
        },
        "figures": {name: vars(figure) for name, figure in figures(cluster)},
    }


def levels_json(cluster: Cluster) -> list[dict[str, Any]]:
    """The network levels: bytes/s and seconds; [] where the links have no figures."""
    return [
        {key: getattr(level, key) for key in KEYS} | {"notes": level_notes(level)}
        for level in known_levels(cluster)
    ]


def switches_json(cluster: Cluster) -> dict[str, Any]:
    """`switches` of every layer, `switch_layers` with their ports, `bisection_bandwidth` one way.

    bytes/s; None where a figure is not known.
    """
    layers = switch_layers(cluster)
    return {
        "switches": {layer.name: layer.count for layer in layers},
        "switch_layers": {
            layer.name: {key: value for key, value in vars(layer).items() if key != "name"}
            | {"bandwidth": layer.bandwidth}
            for layer in layers
        },
        "bisection_bandwidth": bisection(cluster),
    }
