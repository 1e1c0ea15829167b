"""Random machines and meshes for property tests: a number in, a collective on a cluster out.

Half of the clusters are nodes of the catalogue, half are wired from nothing: chips behind a switch,
with links to all others or to some, on PCIe or on a torus; sockets, PCIe switches and NICs in
numbers that divide (prices take it that the NICs of a chip are near). Figures vary over six powers
of ten, with latencies of 0 and infinite bandwidths among them; so do nodes, NVLink domains, leaves
and spines. The seed of a failed test makes its case again.
"""

import math
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from scaling.meshes import catalog
from scaling.meshes.cluster import Cluster, Fabric, LinkSpec, domain_split, torus_shape
from scaling.meshes.errors import InputError
from scaling.meshes.placement import groups_on
from scaling.meshes.provenance import SourcedValue
from scaling.meshes.shape import AXES, MeshShape
from scaling.meshes.torus import Torus
from scaling.profiles.io import ideal, profile_of
from scaling.profiles.profile import Profile

IDEAL = ideal()
LATENCIES = replace(IDEAL, links=tuple(replace(fit, latency_factor=1.0) for fit in IDEAL.links))
MOST_DEVICES = 96  # with axes of any size: enough for several nodes, domains and leaves
NAMES = tuple(name for name in catalog.names() if name != "host")
CHIPS = ("v100-sxm-32g", "a100-sxm-80g", "h100-sxm", "b200-sxm", "mi300x", "rtx4090", "tpu-v5e")


@dataclass(frozen=True, eq=False)
class Case:
    """Groups along some axes of a mesh, somewhere, and how efficient the links are."""

    cluster: Cluster
    mesh: MeshShape
    groups: np.ndarray  # [groups, members]
    profile: Profile


def random_case(seed: int) -> Case:
    """The case of a seed; those that nobody prices are drawn again."""
    rng = np.random.default_rng(seed)
    while True:
        try:
            cluster = _cluster(rng)
            mesh = _mesh(
                rng, cluster.devices if rng.random() < 0.8 else _upto(rng, cluster.devices)
            )
            axes = [axis for axis in AXES if rng.random() < 0.5]
            own = _profile_of(cluster.accelerator.name)
            profile = _one(rng, (IDEAL, LATENCIES, own))
            return Case(cluster, mesh, groups_on(mesh, axes, cluster), profile)
        except InputError:  # no slice of so many chips
            continue


@cache
def _profile_of(chip: str) -> Profile:
    return profile_of(catalog.accelerator(chip))


@cache
def _host(name: str) -> Cluster:
    return catalog.one_host(name)


def _one(rng, choices):
    return choices[rng.integers(len(choices))]


def _upto(rng, most):
    return int(rng.integers(1, most + 1))


def _divisors(n):
    return [d for d in range(1, n + 1) if n % d == 0]


def _figure(value):
    return SourcedValue(float(value), "made up for a test", "2026-11")


def _varied(rng, figure, best):
    """A figure as it is, times up to a thousand either way, or at its best: 0 or infinite."""
    if (draw := rng.random()) < 0.3:
        return figure
    return _figure(best if draw < 0.4 else figure.value * 10 ** rng.uniform(-3, 3))


def _cluster(rng):
    host = _host(_one(rng, NAMES)) if rng.random() < 0.5 else _wired(rng)
    rate, delay = (lambda x: _varied(rng, x, math.inf)), (lambda x: _varied(rng, x, 0.0))
    links = [replace(j, bandwidth=rate(j.bandwidth), latency=delay(j.latency)) for j in host.links]
    torus, fabric = host.torus, host.fabric
    if torus:
        torus = replace(
            torus, bandwidth=rate(torus.bandwidth), hop_latency=delay(torus.hop_latency)
        )
    if fabric:
        leaf = _one(rng, (1, 2, 3, 4, 8, 32))
        fabric = replace(
            fabric,
            rails=bool(rng.random() < 0.5),
            leaf_nodes=_figure(leaf),
            spine_nodes=_figure(leaf * _one(rng, (1, 2, 8))) if rng.random() < 0.9 else None,
            pod_nodes=_figure(leaf * 2) if rng.random() < 0.5 else None,
            leaf_oversubscription=_figure(_one(rng, (0.5, 1, 2))),
            spine_oversubscription=_figure(_one(rng, (1, 4))),
            hop_latency=_figure(_one(rng, (0, 1e-7, 1e-4))),
            has_sharp=bool(rng.random() < 0.5),
        )
    chips = host.devices_per_node if rng.random() < 0.7 else _upto(rng, host.devices_per_node)
    nodes = min(_one(rng, (1, 2, 3, 4, 8, 12)), max(1, MOST_DEVICES // chips))
    nodes = nodes if fabric else min(nodes, host.domain_nodes)
    cluster = replace(
        host,
        nodes=nodes,
        devices_per_node=chips,
        domain_nodes=domain_split(nodes, host.domain_nodes),
        links=tuple(links),
        torus=torus,
        fabric=fabric,
        peer_access=bool(rng.random() < 0.7),
    )
    if torus:
        torus_shape(cluster)
    return cluster


def _wired(rng):
    """A node wired from nothing."""
    chips = _one(rng, (1, 2, 3, 4, 6, 8, 12, 16))
    inside = _one(rng, ("switch", "all", "pairs", "pcie", "torus"))
    torus, domain, links = None, 1, []
    sockets = _one(rng, _divisors(math.gcd(chips, 4)))
    figures = (_figure(10 ** rng.uniform(9, 12)), _figure(10 ** rng.uniform(-7, -5)))
    fast = _one(rng, ("nvlink", "xgmi"))
    if inside == "switch":
        domain = _one(rng, (1, 2, 4))
        links = [LinkSpec(("chip", "nvswitch"), "nvlink", "block", *figures, _upto(rng, 18))]
    elif inside == "torus":
        host = tuple(_one(rng, (1, 2)) for _ in range(_one(rng, (1, 2, 3))))
        shape = tuple(n * _upto(rng, 3) for n in host)
        torus = Torus(shape, host, 3, *figures, wrap_whole=bool(rng.random() < 0.5))
        chips, sockets = math.prod(host), 1
        domain = torus.chips // chips
    elif inside == "all" and chips > 1:
        links = [LinkSpec(("chip", "chip"), fast, "all", *figures, _upto(rng, 3))]
    elif inside == "pairs" and chips > 1:
        every = [(i, j) for j in range(chips) for i in range(j)]
        dense = rng.random()
        pairs = tuple(pair for pair in every if rng.random() < dense) or ((0, 1),)
        links = [LinkSpec(("chip", "chip"), fast, "pairs", *figures, _upto(rng, 3), pairs)]
    parts = {"chip": chips, "nvswitch": 1, "socket": sockets, "memory": sockets}
    switches, up = sockets * _one(rng, _divisors(chips // sockets)), "socket"
    parts["nic"] = _one(rng, (switches, chips, 2 * chips))
    if torus is None and rng.random() < 0.6:
        parts["pcie_switch"], up = switches, "pcie_switch"
        links.append(LinkSpec((up, "socket"), "pcie", "block", *figures))
    links += [
        LinkSpec(("chip", up), "pcie", "block", *figures),
        LinkSpec(("nic", _one(rng, ("socket", up))), "pcie", "block", *figures),
        LinkSpec(("socket", "memory"), "memory", "block", *figures),
        LinkSpec(("nic", "leaf"), "network", "block", *figures, _upto(rng, 2)),
    ]
    if sockets > 1:
        links.append(LinkSpec(("socket", "socket"), "upi", "all", *figures))
    return Cluster(
        *("wired", "wired for a test", catalog.accelerator(_one(rng, CHIPS)), 1, chips, parts),
        *(tuple(links), _figure(chips)),
        fabric=Fabric(_figure(1), transport=_one(rng, ("verbs", "efa", "tcpx", "tcp"))),
        domain_nodes=domain,
        has_nvls=inside == "switch" and bool(rng.random() < 0.5),
        cpu=_one(rng, ("", "intel", "amd", "arm")),
        torus=torus,
    )


def _mesh(rng, devices):
    """All devices on axes of any sizes, in any order."""
    sizes = {}
    for axis in rng.permutation(AXES)[1:].tolist():
        sizes[axis] = _one(rng, _divisors(devices))
        devices //= sizes[axis]
    last = next(axis for axis in AXES if axis not in sizes)
    return MeshShape(**sizes, **{last: devices}, device_order=tuple(rng.permutation(AXES).tolist()))
