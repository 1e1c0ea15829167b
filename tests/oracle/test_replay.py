"""The closed form against the same algorithms replayed message by message: within 2 %.

Where the two differ by more, a test says why. Pipelined algorithms are compared by the time of one
more part while many are in flight: the closed form is the limit of many parts.
"""

from dataclasses import replace

import numpy as np
import pytest

from scaling.collectives.contention import level_load
from scaling.collectives.cost import collective_time
from scaling.meshes import catalog
from scaling.meshes.levels import levels
from scaling.meshes.shape import parse_mesh
from scaling.profiles.io import ideal
from tests.oracle.replay import replay

IDEAL = ideal()
LATENCIES = replace(IDEAL, links=tuple(replace(fit, latency_factor=1.0) for fit in IDEAL.links))
GB = 1e9
WITHIN = 0.02
NVLINK, NETWORK = 0.6e-6, 2.7e-6  # s, one step: NCCL 2.30.7, tuning.cc


def groups_on(name, nodes, mesh="", axis="", **overrides):
    """A cluster and groups on it: along an axis of a mesh, or one of all devices."""
    cluster = catalog.load(name, nodes, overrides)
    groups = parse_mesh(mesh).groups([axis]) if mesh else np.arange(cluster.devices)[None]
    return cluster, groups


def closed_form(kind, size, where, algorithm, profile=IDEAL):
    return collective_time(kind, size, where[1], where[0], profile, algorithm).time


def replay_time(kind, size, where, algorithm, latency=False, slices=1):
    return replay(kind, size, where[1], where[0], algorithm, slices, latency).time


def time_per_part(kind, size, where, algorithm, slices):
    """Seconds of `slices` more slices, `size` bytes in all, while as many are in flight."""
    first, second = (
        replay_time(kind, size * times, where, algorithm, slices=slices * times) for times in (1, 2)
    )
    return second - first


NODE = groups_on("dgx-h100", 1)
RAILS = {n: groups_on("dgx-h100", n, f"data={n},tensor=8", "data") for n in (2, 4, 8)}
TENSOR = groups_on("dgx-h100", 2, "data=2,tensor=8", "tensor")
TEN_BEHIND_A_NIC = groups_on("rtx3090-10", 2, "data=2,tensor=10", "data")
CARDS = groups_on("h100-pcie-8", 1)

SYMMETRIC = [
    *[(kind, NODE, "ring") for kind in ("all-gather", "reduce-scatter", "all-reduce", "permute")],
    ("all-to-all", NODE, "pairwise"),
    ("all-reduce", TENSOR, "ring"),
    ("all-gather", groups_on("dgx-h100", 2), "ring"),
    ("reduce-scatter", groups_on("dgx-h100", 4), "ring"),
    ("all-reduce", groups_on("dgx-h100", 8, gpus_per_node=2), "ring"),
    *[("all-reduce", rails, "ring") for rails in RAILS.values()],
    *[("all-to-all", rails, "pairwise") for rails in RAILS.values()],
    ("permute", RAILS[4], "ring"),
    ("all-gather", groups_on("dgx-h100", 4, "data=4,fsdp=2,tensor=4", "fsdp"), "ring"),
    *[(kind, CARDS, "ring") for kind in ("all-gather", "all-reduce")],
]


@pytest.mark.parametrize(("kind", "where", "algorithm"), SYMMETRIC)
def test_bytes_take_as_long_as_in_the_closed_form(kind, where, algorithm):
    expected = closed_form(kind, GB, where, algorithm)
    assert replay_time(kind, GB, where, algorithm) == pytest.approx(expected, rel=WITHIN)


def latency_differs(where, algorithm):
    """Rings over nodes, and cards under one switch: each has its test below."""
    over_nodes = where[0].nodes > 1 and len(where[1]) == 1 and algorithm == "ring"
    return over_nodes or where is CARDS


@pytest.mark.parametrize("size", [1e3, 1e6, GB])
@pytest.mark.parametrize(
    ("kind", "where", "algorithm"), [case for case in SYMMETRIC if not latency_differs(*case[1:])]
)
def test_latencies_add_as_in_the_closed_form(kind, where, algorithm, size):
    expected = closed_form(kind, size, where, algorithm, LATENCIES)
    replayed = replay_time(kind, size, where, algorithm, latency=True)
    assert replayed == pytest.approx(expected, rel=WITHIN)


def test_ten_groups_share_the_nic_as_in_the_closed_form():
    """Pieces are written to host memory before they leave and read after they arrive."""
    expected = closed_form("all-reduce", GB, TEN_BEHIND_A_NIC, "ring")
    replayed = time_per_part("all-reduce", GB, TEN_BEHIND_A_NIC, "ring", slices=4)
    assert replayed == pytest.approx(expected, rel=WITHIN)


PIPELINED = [
    ("all-reduce", groups_on("dgx-h100", 4, gpus_per_node=4), "tree", 8),
    ("all-reduce", RAILS[4], "tree", 8),
    ("all-gather", NODE, "nvls", 4),
    ("reduce-scatter", NODE, "nvls", 4),
    ("all-reduce", NODE, "nvls", 16),
]


@pytest.mark.parametrize(("kind", "where", "algorithm", "slices"), PIPELINED)
def test_one_more_part_takes_as_long_as_in_the_closed_form(kind, where, algorithm, slices):
    expected = closed_form(kind, GB, where, algorithm)
    replayed = time_per_part(kind, GB, where, algorithm, slices)
    assert replayed == pytest.approx(expected, rel=WITHIN)


@pytest.mark.parametrize(
    ("kind", "where", "algorithm"),
    [
        ("all-reduce", NODE, "tree"),
        ("all-reduce", groups_on("dgx-h100", 4), "tree"),
        ("all-reduce", RAILS[8], "tree"),
        ("all-gather", NODE, "nvls"),
    ],
)
def test_an_empty_call_waits_for_as_many_hops(kind, where, algorithm):
    expected = closed_form(kind, 0.0, where, algorithm, LATENCIES)
    replayed = replay_time(kind, 0.0, where, algorithm, latency=True)
    assert replayed == pytest.approx(expected, rel=1e-6)


# Where the two differ, and why


def test_a_ring_over_nodes_waits_for_one_more_network_hop():
    """A piece passes all hops but one. The closed form, NCCL's rule, omits a network hop."""
    where = groups_on("dgx-h100", 4)
    rule = closed_form("all-gather", 0.0, where, "ring", LATENCIES)
    assert rule == pytest.approx(28 * NVLINK + 3 * NETWORK)
    replayed = replay_time("all-gather", 0.0, where, "ring", latency=True)
    assert replayed == pytest.approx(27 * NVLINK + 4 * NETWORK)


def test_a_sum_in_the_switch_is_fetched_and_then_repeated():
    """Two exchanges with the switch; the closed form counts NCCL's single step."""
    assert closed_form("all-reduce", 0.0, NODE, "nvls", LATENCIES) == pytest.approx(NVLINK)
    replayed = replay_time("all-reduce", 0.0, NODE, "nvls", latency=True)
    assert replayed == pytest.approx(2 * NVLINK)


def test_the_ends_of_a_chain_send_half_of_the_bytes():
    """Each of eight chips is an end of two of the eight chains; the closed form has no ends."""
    ratio = time_per_part("all-reduce", GB, NODE, "tree", 16) / closed_form(
        "all-reduce", GB, NODE, "tree"
    )
    assert ratio == pytest.approx(7 / 8)


def test_rounds_inside_a_node_do_not_overlap_with_those_between_nodes():
    """The closed form overlaps all rounds: it takes the larger level, the replay their sum."""
    where = groups_on("dgx-h100", 2)
    inside, outside = 7 * GB / 16 / 450e9, 8 * GB / 16 / 50e9
    assert closed_form("all-to-all", GB, where, "pairwise") == pytest.approx(outside)
    replayed = replay_time("all-to-all", GB, where, "pairwise")
    assert replayed == pytest.approx(inside + outside)


def test_a_hop_between_cards_under_one_switch_takes_half_of_the_latency():
    """Every second hop takes 0.5 us; the closed form counts 1 us for all."""
    rule = closed_form("all-gather", 0.0, CARDS, "ring", LATENCIES)
    replayed = replay_time("all-gather", 0.0, CARDS, "ring", latency=True)
    assert (rule, replayed) == (pytest.approx(7e-6), pytest.approx(4 * 1e-6 + 3 * 0.5e-6))


# Bytes on every link


def busiest(result, level):
    """The most bytes over the links of one unit of a level."""
    ends_of = {
        "NVLink of a chip": ("/chip", "/nvswitch", None),
        "PCIe of a chip": ("/chip", "/pcie_switch", None),
        "PCIe of a switch": ("/pcie_switch", "/socket", None),
        "links between sockets": ("/socket", "/socket", None),
        "NICs of a node": ("/nic", "leaf", "/"),
        "NIC of a chip": ("/nic", "leaf", None),
        "uplinks of a leaf group": ("leaf", "spine", "."),
    }
    source, target, separator = ends_of[level.name]
    totals = {}
    for name, count in result.carried(source, target).items():
        unit = name.split(separator)[0] if separator else name
        totals[unit] = totals.get(unit, 0.0) + count
    return max(totals.values(), default=0.0)


@pytest.mark.parametrize(
    ("kind", "where", "algorithm"),
    [
        *[(kind, NODE, "ring") for kind in ("all-gather", "all-reduce", "permute")],
        ("all-reduce", NODE, "nvls"),
        ("all-to-all", NODE, "pairwise"),
        ("all-gather", groups_on("dgx-h100", 2), "ring"),
        ("all-reduce", groups_on("dgx-h100", 4), "ring"),
        ("all-to-all", RAILS[4], "pairwise"),
        ("all-reduce", RAILS[4], "tree"),
        ("all-gather", groups_on("rtx3090-10", 1), "ring"),
        ("all-reduce", CARDS, "ring"),
    ],
)
def test_every_link_carries_the_bytes_of_the_closed_form(kind, where, algorithm):
    cluster, groups = where
    result = replay(kind, GB, groups, cluster, algorithm)
    for level in levels(cluster):
        if level.name == "PCIe of a chip" and cluster.nodes > 1:
            continue
        share = level_load(kind, groups, level, algorithm).share
        assert busiest(result, level) == pytest.approx(share * GB, rel=1e-9), level.name
