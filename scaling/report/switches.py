"""The switches of a cluster, layer by layer, and its bisection: as a table and as plain data.

switches  how many  ports of one  down  up     a port  all of them
nvswitch       512            64    36   0    25 GB/s     819 TB/s
leaf            32            64    32  32    50 GB/s     102 TB/s
spine           16            64    64   0    50 GB/s    51.2 TB/s
bisection: 25.6 TB/s from half of the devices to the other
"""

from typing import Any

from scaling.meshes.bisection import bisection_bandwidth
from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError
from scaling.meshes.switch_counts import SwitchLayer, switch_layers
from scaling.meshes.units import format_rate
from scaling.report.formatting import columns

HEAD = ("switches", "how many", "ports of one", "down", "up", "a port", "all of them")


def switch_table(cluster: Cluster) -> str:
    """A line per layer of switches, and the bisection; "" where neither is known."""
    rows = [_row(layer) for layer in switch_layers(cluster)]
    lines = columns([HEAD, *rows], left=(0,)) if rows else []
    if (half := _bisection(cluster)) is not None:
        lines.append(f"bisection: {format_rate(half)} from half of the devices to the other")
    return "\n".join(lines)


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
        "bisection_bandwidth": _bisection(cluster),
    }


def _bisection(cluster: Cluster) -> float | None:
    try:
        return bisection_bandwidth(cluster)
    except InputError:  # links without figures
        return None


def _row(layer: SwitchLayer) -> tuple[str, ...]:
    ports = "-" if layer.ports is None else str(layer.ports)
    rates = (layer.port_bandwidth, layer.bandwidth)
    port, all_ = ("-" if rate is None else format_rate(rate) for rate in rates)
    return layer.name, str(layer.count), ports, str(layer.down), str(layer.up), port, all_
