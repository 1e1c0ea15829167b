"""Physics that prices of collectives keep on any machine, found or not in the catalogue.

Random clusters are four kinds of node of the catalogue, each with its own wires (an NVSwitch, links
from chip to chip, PCIe switches, host memory in between), in which everything else varies: nodes,
chips and NICs, bandwidths and latencies, NVLink domains, rails, leaves and their oversubscription,
and whether switches can add. 100 of them per property, 1,000 in the long tier.
"""

from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import dijkstra, maximum_flow

from scaling.collectives.algorithms import REDUCTIONS, SENDS, algorithms_of
from scaling.collectives.contention import pairs_of
from scaling.collectives.cost import collective_time
from scaling.meshes import catalog
from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError
from scaling.meshes.provenance import SourcedValue
from scaling.meshes.shape import groups_along
from scaling.profiles.io import ideal, profile_of
from scaling.program.ir import COLLECTIVE_KINDS, CollectiveKind
from tests.oracle.channels import nvlink_domains
from tests.oracle.graph import chip_name, expand
from tests.oracle.replay import replay

IDEAL = ideal()
LATENCIES = replace(IDEAL, links=tuple(replace(fit, latency_factor=1.0) for fit in IDEAL.links))
PROFILES = st.sampled_from([IDEAL, LATENCIES, None])  # None: what the chip's links achieve
MANY = settings(max_examples=2 * settings().max_examples)  # 50, or 1,000 with "thorough"

NAMES = (
    *("dgx-h100", "mi300x-8", "h100-pcie-8", "rtx3090-10"),
    *("dgx-v100", "mi250x-8", "rtx3090-10-nvlink"),  # links between some pairs of chips
)
REPLAYED = ("dgx-h100", "h100-pcie-8", "rtx3090-10")  # nodes behind an NVSwitch or PCIe


@dataclass(frozen=True, eq=False)
class Case:
    """A collective in equal groups somewhere."""

    cluster: Cluster
    kind: CollectiveKind
    groups: np.ndarray  # [groups, members]
    bytes: float
    skew: float = 1.0  # of an all-to-all


def figure(value):
    return SourcedValue(value, "made up for a test", "2026-11")


def scaled(cluster, bandwidths=None, latencies=None):
    """Bandwidth and latency of each link times its factor; of the switches the last latency."""
    count = len(cluster.links)
    bandwidths, latencies = bandwidths or [1.0] * count, latencies or [1.0] * (count + 1)
    links = tuple(
        replace(
            link,
            bandwidth=replace(link.bandwidth, value=link.bandwidth.value * wide),
            latency=replace(link.latency, value=link.latency.value * far),
        )
        for link, wide, far in zip(cluster.links, bandwidths, latencies, strict=False)
    )
    hop = cluster.fabric.hop_latency or figure(1e-7)
    fabric = replace(cluster.fabric, hop_latency=replace(hop, value=hop.value * latencies[-1]))
    return replace(cluster, links=links, fabric=fabric)


def factors(count, choices):
    """`count` of the choices, as the digits of one number: faster than a list of draws."""
    digits = st.integers(0, len(choices) ** count - 1)
    return digits.map(
        lambda n: [choices[n // len(choices) ** i % len(choices)] for i in range(count)]
    )


@st.composite
def clusters(draw, names=NAMES):
    """A cluster of at most 64 devices."""
    name, nodes = draw(st.sampled_from(names)), draw(st.sampled_from([1, 2, 3, 4, 8]))
    base = catalog.load(name, nodes)
    fabric = replace(
        base.fabric,
        leaf_nodes=figure(draw(st.sampled_from([2, 4, 32]))),
        spine_nodes=figure(256),
        rails=draw(st.booleans()),
        leaf_oversubscription=figure(draw(st.sampled_from([1.0, 2.0]))),
        has_sharp=draw(st.booleans()),
    )
    parts = dict(base.parts)
    if not name.startswith("rtx3090-10"):  # whose one NIC is wired to one socket
        parts["nic"] = draw(st.sampled_from([2, 4, 8]))
        if "pcie_switch" in parts:
            parts["pcie_switch"] = min(parts["pcie_switch"], parts["nic"])
    switched = name == "dgx-h100"
    domain = draw(st.sampled_from([1, 2])) if switched and nodes % 2 == 0 else 1
    changed = replace(
        base,
        devices_per_node=draw(st.sampled_from([1, 2, 4, 8])),
        parts=parts,
        fabric=fabric,
        domain_nodes=domain,
        has_nvls=switched and draw(st.booleans()),
    )
    count = len(base.links)
    wide = draw(factors(count, (1.0, 0.5, 2.0, 3.0)))
    far = draw(factors(count + 1, (1.0, 0.0, 0.5, 2.0, 3.0)))
    return scaled(changed, wide, far)


def is_small(case):
    """Few enough devices to play a collective at once."""
    return case.cluster.devices <= 16


def is_symmetric(case):
    """As many members in every node or domain, and no odd one whose ring has to change rails."""
    parts = [nvlink_domains(case.cluster, group) for group in case.groups]
    even = all(len(part) == 1 or len(part) % 2 == 0 for part in parts)
    return even and all(len({len(domain) for domain in part}) == 1 for part in parts)


@st.composite
def groups_on(draw, cluster):
    """Groups along one or two axes of a mesh of all devices."""
    inner = draw(st.sampled_from(_divisors(cluster.devices)))
    middle = draw(st.sampled_from(_divisors(cluster.devices // inner)))
    sizes = {"a": cluster.devices // inner // middle, "b": middle, "c": inner}
    axes = draw(st.sets(st.sampled_from(["a", "b", "c"]), min_size=1))
    return groups_along(sizes, axes)


@st.composite
def cases(draw, kinds=COLLECTIVE_KINDS, names=NAMES):
    """A random collective on a random cluster."""
    cluster = draw(clusters(names))
    size = draw(st.sampled_from([0.0, 1.0, 1e3, 1e6, 1e9]))
    return Case(cluster, draw(st.sampled_from(kinds)), draw(groups_on(cluster)), size)


@st.composite
def skewed_cases(draw, names):
    """An all-to-all whose busiest receiver gets up to everything."""
    case = draw(cases(kinds=("all-to-all",), names=names))
    members = case.groups.shape[1]
    return replace(case, skew=1 + draw(st.floats(0, 1)) * (members - 1))


def _divisors(n):
    return [d for d in range(1, n + 1) if n % d == 0]


# Lower bounds, from the graph of the cluster


def crossing(kind, row, near, skew=1.0):
    """Bytes of a call that have to get out of a set of devices, or into it; per byte of the call.

    Args:
        row: devices of one group, or a ring or pair of a permute.
        near: of each, whether it is in the set.
        skew: of an all-to-all, whose busiest receiver is outside, or inside of the set.
    """
    n, inside = len(row), int(near.sum())
    if kind == "permute":
        source, target = pairs_of(row[None])
        here = dict(zip(row.tolist(), near.tolist(), strict=True))
        ways = [(here[a], here[b]) for a, b in zip(source.tolist(), target.tolist(), strict=True)]
        return ways.count((True, False)), ways.count((False, True))
    if inside in (0, n):
        return 0.0, 0.0
    if kind == "broadcast":
        return (1.0, 0.0) if near[0] else (0.0, 1.0)
    if kind == "all-to-all":
        other = (n - skew) / (n - 1) / n
        return inside * (1 - inside * other), (n - inside) * (1 - (n - inside) * other)
    out = {"all-gather": inside / n, "reduce-scatter": 1 - inside / n, "all-reduce": 1.0}[kind]
    return out, {"all-reduce": 1.0}.get(kind, 1 - out)


def cut_time(case, devices):
    """Seconds in which the most that all links can carry gets in or out of a set of devices."""
    shares = [crossing(case.kind, row, np.isin(row, devices), case.skew) for row in case.groups]
    out, into = np.sum(shares, axis=0) * case.bytes
    others = [d for d in range(case.cluster.devices) if d not in set(devices)]
    if not others or max(out, into) == 0:
        return 0.0
    return max(out, into) / flow_between(case.cluster, devices, others)


def flow_between(cluster, devices, others):
    """bytes/s from one set of chips to another over all links at once: max-flow."""
    graph = expand(cluster)
    number = {node.name: i for i, node in enumerate(graph.nodes)}
    first, last = len(number), len(number) + 1
    ends = [(number[k.source], number[k.target], k.bandwidth) for k in graph.links]
    ends += [(first, number[chip_name(cluster, d)], np.inf) for d in devices]
    ends += [(number[chip_name(cluster, d)], last, np.inf) for d in others]
    a, b, width = map(np.array, zip(*ends, strict=True))
    most = width[np.isfinite(width)].sum()  # more than gets anywhere
    for _ in range(4):  # capacities are 32-bit whole numbers: again with what matters alone
        unit = most / 1e9
        capacities = coo_array(
            ((np.minimum(width, most) / unit).astype(np.int32), (a, b)), shape=(last + 1, last + 1)
        )
        flow = maximum_flow(capacities.tocsr(), first, last).flow_value
        most = 2 * (flow + len(ends)) * unit
    return flow * unit


def halves(cluster):
    """Sets that few links may join to the rest: a chip, half a node, a node, a leaf group."""
    n = cluster.devices_per_node
    sizes = {1, n // 2 or 1, n, n * int(cluster.fabric.leaf_nodes.value)}
    return [range(0, min(size, cluster.devices)) for size in sorted(sizes)]


def runnable(case, profile=IDEAL):
    """Prices by every algorithm that can run here, and by the one that is chosen."""
    found = {"auto": price(case, profile)}
    for algorithm in algorithms_of(case.kind):
        with suppress(InputError):  # no NVSwitch that adds, several chips of a node, ..
            found[algorithm] = price(case, profile, algorithm)
    return found


def price(case, profile=IDEAL, algorithm="auto"):
    """Seconds, which are never below the bound that comes with them."""
    found = collective_time(
        *(case.kind, case.bytes, case.groups, case.cluster),
        profile or profile_of(case.cluster.accelerator),
        algorithm,
        skew=case.skew,
    )
    assert found.time >= found.lower_bound * (1 - 1e-12)
    return found.time


@MANY
@given(cases() | skewed_cases(NAMES))
def test_no_algorithm_is_faster_than_its_bytes_over_the_narrowest_cut(case):
    bound = max(cut_time(case, devices) for devices in halves(case.cluster))
    for algorithm, found in runnable(case).items():
        assert found >= bound * (1 - 1e-4), algorithm


@MANY
@given(cases())
def test_no_algorithm_is_faster_than_the_longest_way_between_two_that_talk(case):
    empty = replace(case, bytes=0.0)
    bound = longest_way(case)
    for algorithm, found in runnable(empty, LATENCIES).items():
        assert found >= bound * (1 - 1e-9), algorithm


def longest_way(case):
    """Seconds from one node to another, of those that have to hear of each other.

    From any chip of the one to any chip of the other: which rail a message takes is not asked.
    """
    graph, n = expand(case.cluster), case.cluster.devices_per_node
    number = {node.name: i for i, node in enumerate(graph.nodes)}
    a, b = ([number[getattr(k, end)] for k in graph.links] for end in ("source", "target"))
    latency = [k.latency + 1e-15 for k in graph.links]  # an explicit zero is no edge
    edges = coo_array((latency, (a, b)), shape=(len(number), len(number))).tocsr()
    longest = 0.0
    for source, target in talks(case):
        ends = [
            [number[chip_name(case.cluster, d)] for d in node]
            for node in (chips_like(source, target, n), chips_like(target, source, n))
        ]
        away = dijkstra(edges, indices=ends[0], min_only=True)
        longest = max(longest, float(away[ends[1]].min()))
    return longest - 1e-13


def chips_like(device, other, n):
    """The chip, or all chips of its node where the other is in another node."""
    node = device // n
    return [device] if node == other // n else range(node * n, (node + 1) * n)


def talks(case):
    """A few pairs of devices of which one has to hear of the other."""
    if case.kind == "permute":
        pairs = list(zip(*(ends.tolist() for ends in pairs_of(case.groups)), strict=True))
        return [(a, b) for a, b in pairs[:4] + pairs[-4:] if a != b]
    rows = case.groups.tolist()[:2]
    return [(row[0], other) for row in rows for other in (row[1:2] + row[-1:]) if other != row[0]]


# More is never faster


@MANY
@given(cases(), PROFILES, st.floats(1, 100))
def test_more_bytes_never_take_less_time(case, profile, factor):
    more = replace(case, bytes=case.bytes * factor)
    assert price(more, profile) >= price(case, profile) * (1 - 1e-12)


@MANY
@given(cases(), PROFILES, st.data())
def test_a_faster_link_never_makes_a_collective_slower(case, profile, data):
    count = len(case.cluster.links)
    wide = data.draw(factors(count, (1.0, 1.5, 4.0)))
    wider = replace(case, cluster=scaled(case.cluster, bandwidths=wide))
    assert price(wider, profile) <= price(case, profile) * (1 + 1e-12)


@MANY
@given(cases(), PROFILES, st.data())
def test_a_longer_way_never_makes_a_collective_faster(case, profile, data):
    count = len(case.cluster.links) + 1
    far = data.draw(factors(count, (1.0, 1.5, 4.0)))
    farther = replace(case, cluster=scaled(case.cluster, latencies=far))
    assert price(farther, profile) >= price(case, profile) * (1 - 1e-12)


@MANY
@given(cases(), PROFILES, st.integers(1, 64))
def test_groups_at_once_are_never_faster_than_some_of_them_alone(case, profile, some):
    alone = replace(case, groups=case.groups[:some])
    assert price(case, profile) >= price(alone, profile) * (1 - 1e-12)


# What has to be equal


@MANY
@given(cases(), PROFILES, st.randoms(use_true_random=False))
def test_the_order_of_groups_and_members_changes_nothing(case, profile, random):
    """Which axis comes first, of two that are named together: the same devices all the same."""
    rows = case.groups.tolist()
    random.shuffle(rows)
    if case.kind not in ("permute", "broadcast"):
        for row in rows:
            random.shuffle(row)
    again = replace(case, groups=np.array(rows))
    assert price(again, profile) == pytest.approx(price(case, profile), rel=1e-12)


@MANY
@given(cases(), PROFILES)
def test_nodes_under_the_same_leaves_can_change_places(case, profile):
    """The last node of each full group of leaves for the first one, whole NVLink domains."""
    cluster = case.cluster
    unit = cluster.devices_per_node * cluster.domain_nodes
    leaf = max(1, int(cluster.fabric.leaf_nodes.value) // cluster.domain_nodes)
    units = np.arange(cluster.devices // unit)
    turned = units // leaf * leaf + (leaf - 1 - units % leaf)
    if turned.max() > units.max():
        turned = units[::-1] if leaf > len(units) else units
    moved = turned[case.groups // unit] * unit + case.groups % unit
    again = replace(case, groups=moved)
    assert price(again, profile) == pytest.approx(price(case, profile), rel=1e-12)


@MANY
@given(cases(names=("dgx-h100", "mi300x-8")), PROFILES, st.data())
def test_chips_of_a_node_that_are_alike_can_change_places(case, profile, data):
    """The same exchange in every node, so that rails stay rails. Chips that share a NIC are alike
    as long as nothing goes from one chip to another through it."""
    n = case.cluster.devices_per_node
    assume(case.kind not in SENDS or case.cluster.nics == n or case.cluster.nodes == 1)
    order = np.array(data.draw(st.permutations(range(n))))
    again = replace(case, groups=case.groups // n * n + order[case.groups % n])
    assert price(again, profile) == pytest.approx(price(case, profile), rel=1e-12)


@MANY
@given(cases(kinds=("all-reduce",)), st.sampled_from(["auto", "ring", "hierarchical"]))
def test_an_all_reduce_takes_at_most_a_reduce_scatter_and_an_all_gather(case, algorithm):
    """A ring exactly; units with unlike numbers of members can share a sum more evenly."""
    scatter, gather, both = (
        price(replace(case, kind=kind), IDEAL, algorithm)
        for kind in ("reduce-scatter", "all-gather", "all-reduce")
    )
    assert both <= (scatter + gather) * (1 + 1e-12)
    if algorithm == "ring":
        assert both == pytest.approx(scatter + gather, rel=1e-12)


# The message-level replay


@MANY
@given(cases((*REDUCTIONS, "permute"), ("dgx-h100",)).filter(is_small).filter(is_symmetric))
def test_rings_behind_any_nvswitch_take_as_long_in_the_replay(case):
    replayed = replay(case.kind, case.bytes, case.groups, case.cluster).time
    assert replayed == pytest.approx(price(case, IDEAL, "ring"), rel=0.02)


@given(cases((*REDUCTIONS, *SENDS), REPLAYED).filter(is_small))
def test_the_replay_keeps_to_the_cuts_as_well(case):
    assume(is_symmetric(case))
    algorithm = "pairwise" if case.kind == "all-to-all" else "ring"
    bound = max(cut_time(case, devices) for devices in halves(case.cluster))
    replayed = replay(case.kind, case.bytes, case.groups, case.cluster, algorithm).time
    assert replayed >= bound * (1 - 1e-4)
