"""The network levels of a cluster, which price its collectives, and its switches, as tables.

network level     link           bandwidth  each of  chips that share it  hop latency
NVLink of a chip  nvlink          450 GB/s       16                    1       0.6 us
NICs of a node    network verbs   400 GB/s        2                    8       2.7 us
NIC of a chip     network verbs    50 GB/s       16                    1            -

switches  how many  ports of one  down  up     a port  all of them
nvswitch       512            64    36   0    25 GB/s     819 TB/s
leaf            32            64    32  32    50 GB/s     102 TB/s
spine           16            64    64   0    50 GB/s    51.2 TB/s
bisection: 25.6 TB/s from half of the devices to the other
"""

from scaling.meshes.bisection import bisection_bandwidth
from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError
from scaling.meshes.levels import NetworkLevel, levels
from scaling.meshes.switch_counts import switch_layers
from scaling.meshes.units import format_rate, format_time
from scaling.report.formatting import table_lines

HEAD = ("network level", "link", "bandwidth", "each of", "chips that share it", "hop latency", "")
SWITCH_HEAD = ("switches", "how many", "ports of one", "down", "up", "a port", "all of them")


def level_table(cluster: Cluster) -> str:
    """A line per level, from the chip outwards; "" where the links have no figures (`host`)."""
    rows = [
        (
            level.name,
            f"{level.link} {level.transport}".strip(),
            format_rate(level.bandwidth),
            str(level.pools),
            f"{cluster.devices / level.pools:g}",
            format_time(level.hop_latency) if level.own_hops else "-",
            ", ".join(level_notes(level)),
        )
        for level in known_levels(cluster)
    ]
    return "\n".join(table_lines(HEAD, rows, left=(0, 1, 6)))


def known_levels(cluster: Cluster) -> tuple[NetworkLevel, ...]:
    """The levels; () where the links have no figures."""
    try:
        return levels(cluster)
    except InputError:
        return ()


def level_notes(level: NetworkLevel) -> list[str]:
    """Notes on what the columns leave out."""
    notes = {
        "hops count elsewhere": not level.own_hops,
        "to each of the others a part": level.peers > 0,
        "one link of a pair; groups use rings of them": bool(level.pair_links),
        "one link of a torus": level.grid is not None,
        "of groups without such a ring": level.without_rings,
        "through host memory": level.staged,
        "point to point only": level.point_to_point,
        "switches can reduce": level.can_reduce,
    }
    return [note for note, holds in notes.items() if holds]


def switch_table(cluster: Cluster) -> str:
    """A line per layer of switches, and the bisection; "" where neither is known."""
    rate = lambda value: "-" if value is None else format_rate(value)
    rows = [
        (
            layer.name,
            str(layer.count),
            "-" if layer.ports is None else str(layer.ports),
            str(layer.down),
            str(layer.up),
            rate(layer.port_bandwidth),
            rate(layer.bandwidth),
        )
        for layer in switch_layers(cluster)
    ]
    lines = table_lines(SWITCH_HEAD, rows)
    if (half := bisection(cluster)) is not None:
        lines.append(f"bisection: {format_rate(half)} from half of the devices to the other")
    return "\n".join(lines)


def bisection(cluster: Cluster) -> float | None:
    """Bytes/s from half of the devices to the other, one way; None: not known."""
    try:
        return bisection_bandwidth(cluster)
    except InputError:  # links without figures
        return None
