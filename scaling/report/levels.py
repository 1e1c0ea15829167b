"""The network levels of a cluster as a table: what prices its collectives.

network level     link           bandwidth  each of  chips that share it  hop latency
NVLink of a chip  nvlink          450 GB/s       16                    1       0.6 us
NICs of a node    network verbs   400 GB/s        2                    8       2.7 us
NIC of a chip     network verbs    50 GB/s       16                    1            -
"""

from typing import Any

from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError
from scaling.meshes.levels import NetworkLevel, levels
from scaling.meshes.units import format_rate, format_time
from scaling.report.formatting import columns

KEYS = (  # of the plain data
    *("name", "link", "transport", "units", "pools", "bandwidth", "hop_latency", "own_hops"),
)
HEAD = ("network level", "link", "bandwidth", "each of", "chips that share it", "hop latency", "")


def level_table(cluster: Cluster) -> str:
    """A line per level, from the chip outwards; "" where the links have no figures (`host`)."""
    rows = [_row(level, cluster) for level in _levels(cluster)]
    return "\n".join(columns([HEAD, *rows], left=(0, 1, 6))) if rows else ""


def levels_json(cluster: Cluster) -> list[dict[str, Any]]:
    """The same as plain data: bytes/s and seconds; [] where the links have no figures."""
    return [
        {key: getattr(level, key) for key in KEYS} | {"notes": _notes(level)}
        for level in _levels(cluster)
    ]


def _levels(cluster: Cluster) -> tuple[NetworkLevel, ...]:
    try:
        return levels(cluster)
    except InputError:
        return ()


def _row(level: NetworkLevel, cluster: Cluster) -> tuple[str, ...]:
    hop = format_time(level.hop_latency) if level.own_hops else "-"
    return (
        level.name,
        f"{level.link} {level.transport}".strip(),
        format_rate(level.bandwidth),
        str(level.pools),
        f"{cluster.devices / level.pools:g}",
        hop,
        ", ".join(_notes(level)),
    )


def _notes(level: NetworkLevel) -> list[str]:
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
