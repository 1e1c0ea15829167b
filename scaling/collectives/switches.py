"""Bytes through the switches of every level, where each unit passes on only what others lack.

A switch joins children: the chips of a node, the nodes of a leaf group. Per group of n members and
V bytes, m of them in a child or in the whole unit, which sends `up` and receives `down`:

    all-gather      up V m/n           down V (1 - m/n)      0 where m = n
    reduce-scatter  up V (1 - m/n)     down V m/n
    all-reduce      both
    all-to-all      up = down = V m (n - m)/n                V that one member sends
    broadcast       up V of the root's child                 down V of every other

    bytes in = sum of the children's up + the unit's down      bytes out = the other way round

An all-gather over M nodes of N brings V into the switch of a node and N V out of it, and V into the
switch above and V (M - 1) out ("How to Scale Your Model", gpus.md, quiz 4 question 1, 2026-06).
Switches that share their traffic evenly count as one: the NVSwitches of a node, a group of leaves.
"""

from dataclasses import dataclass

import numpy as np

from scaling.collectives.contention import pairs_of
from scaling.collectives.run_lengths import counted
from scaling.meshes.cluster import Cluster, level_nodes
from scaling.program.ir import CollectiveKind


@dataclass(frozen=True)
class SwitchBytes:
    """The busiest switch of a level in one call."""

    level: str  # whose units it joins the children of: node, domain, leaf, spine or core
    count: int  # switches of the level that carry something
    bytes_in: float
    bytes_out: float


def switch_bytes(
    kind: CollectiveKind, bytes: float, groups: np.ndarray, cluster: Cluster
) -> tuple[SwitchBytes, ...]:
    """Return the bytes through the busiest switch of each level, from the chips outwards.

    Args:
        kind, bytes: of the collective, as nccl-tests counts it.
        groups: device ids [groups, members]; as of `collective_time`.
        cluster: a torus has no switches, and none carries what stays in a node without NVSwitches.
    """
    if cluster.torus is not None or cluster.virtual_devices:
        return ()
    busy, child = [], np.arange(cluster.devices)
    for level, nodes in level_nodes(cluster).items():
        unit = np.arange(cluster.devices) // (nodes * cluster.devices_per_node)
        switched = level != "node" or bool(cluster.parts.get("nvswitch"))
        if level == "node" and cluster.domain_nodes > 1:
            continue  # its NVSwitches are those of the domain
        if switched:
            into, out = _through(kind, bytes, groups, child, unit)
            if (into + out).any():
                busiest = int(np.argmax(into + out))
                count = int(np.count_nonzero(into + out))
                busy.append(SwitchBytes(level, count, float(into[busiest]), float(out[busiest])))
        child = unit
    return tuple(busy)


def _through(
    kind: CollectiveKind, bytes: float, groups: np.ndarray, child: np.ndarray, unit: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Bytes into and out of the switch of every unit; float [units]."""
    up, down = _ends(kind, bytes, groups, child)
    above_up, above_down = _ends(kind, bytes, groups, unit)
    parents = np.zeros(len(up), int)
    parents[child] = unit
    size = len(above_up)
    into = np.bincount(parents, up, size) + above_down
    return into, np.bincount(parents, down, size) + above_up


def _ends(
    kind: CollectiveKind, bytes: float, groups: np.ndarray, label: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Bytes that every part, by the labels of the devices, sends up and receives."""
    size = int(label.max()) + 1
    if kind == "permute":
        source, target = (label[ends] for ends in pairs_of(groups))
        crosses = source != target
        sent, got = (np.bincount(ends[crosses], minlength=size) for ends in (source, target))
        return bytes * sent, bytes * got
    n, labels = groups.shape[1], label[groups]
    keys, members = counted((np.arange(len(groups))[:, None] * size + labels).ravel())
    part, m = keys % size, members.astype(float)
    held, lacking, exchanged = bytes * m / n, bytes * (1 - m / n), bytes * m * (n - m) / n
    has_root = part == labels[keys // size, 0]
    up, down = {
        "all-gather": (held, lacking),
        "reduce-scatter": (lacking, held),
        "all-reduce": (held + lacking, held + lacking),
        "all-to-all": (exchanged, exchanged),
        "broadcast": (np.where(has_root, bytes, 0.0), np.where(has_root, 0.0, bytes)),
    }[kind]
    leaves = m < n
    up, down = np.where(leaves, up, 0.0), np.where(leaves, down, 0.0)
    return np.bincount(part, up, size), np.bincount(part, down, size)
