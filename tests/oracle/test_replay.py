"""The closed form against the same algorithms replayed message by message: within 2 %.

Where the two differ by more, a test says why. Pipelined algorithms are compared by the time of one
more part when many are under way: the closed form is the limit of many parts.
"""

from dataclasses import replace

import numpy as np
import pytest

from scaling.collectives.cost import collective_time
from scaling.collectives.traffic import load
from scaling.meshes import catalog
from scaling.meshes.levels import levels
from scaling.meshes.shape import parse_mesh
from scaling.profiles.io import ideal
from tests.oracle.replay import Call, replay

IDEAL = ideal()
LATENCIES = replace(IDEAL, links=tuple(replace(fit, latency_factor=1.0) for fit in IDEAL.links))
GB = 1e9
WITHIN = 0.02
NVLINK, NETWORK = 0.6e-6, 2.7e-6  # s, one step: NCCL 2.30.7, tuning.cc


def place(name, nodes, mesh="", axis="", **overrides):
    """A cluster and groups on it: along an axis of a mesh, or one of all devices."""
    cluster = catalog.load(name, nodes, overrides)
    groups = parse_mesh(mesh).groups([axis]) if mesh else np.arange(cluster.devices)[None]
    return cluster, groups


def closed(kind, size, where, algorithm, profile=IDEAL):
    return collective_time(kind, size, where[1], where[0], profile, algorithm).time


def replayed(kind, size, where, algorithm, latency=False, slices=1):
    return replay([Call(kind, size, where[1], algorithm, slices)], where[0], latency).time


def one_more(kind, size, where, algorithm, slices):
    """Seconds of `slices` more slices of `size` bytes in all, when as many are under way."""
    first, second = (
        replayed(kind, size * times, where, algorithm, slices=slices * times) for times in (1, 2)
    )
    return second - first


NODE = place("dgx-h100", 1)
RAILS = {n: place("dgx-h100", n, f"data={n},tensor=8", "data") for n in (2, 4, 8)}
TENSOR = place("dgx-h100", 2, "data=2,tensor=8", "tensor")
MESH = place("mi300x-8", 1)
TEN_BEHIND_A_NIC = place("rtx3090-10", 2, "data=2,tensor=10", "data")
CARDS = place("h100-pcie-8", 1)
PAIRED = [  # links between some pairs: six rings of eight; four of four; one or two of two
    *[place("dgx-v100", 1, f"data={n},tensor={8 // n}", "tensor") for n in (1, 2, 4)],
    place("mi250x-8", 1),
]

SYMMETRIC = [
    *[(kind, NODE, "ring") for kind in ("all-gather", "reduce-scatter", "all-reduce", "permute")],
    ("all-to-all", NODE, "pairwise"),
    ("all-reduce", TENSOR, "ring"),
    ("all-gather", place("dgx-h100", 2), "ring"),
    ("reduce-scatter", place("dgx-h100", 4), "ring"),
    ("all-reduce", place("dgx-h100", 8, gpus_per_node=2), "ring"),
    *[("all-reduce", rails, "ring") for rails in RAILS.values()],
    *[("all-to-all", rails, "pairwise") for rails in RAILS.values()],
    *[("all-gather", rails, "pat") for rails in RAILS.values()],
    ("reduce-scatter", RAILS[8], "pat"),
    ("permute", RAILS[4], "ring"),
    ("all-gather", place("dgx-h100", 4, "data=4,fsdp=2,tensor=4", "fsdp"), "ring"),
    ("all-to-all", MESH, "pairwise"),
    *[(kind, CARDS, "ring") for kind in ("all-gather", "all-reduce")],
    *[("all-reduce", where, "ring") for where in PAIRED],
    # Chips 3 and 4 of a DGX-1 have no link: 0 forwards between them.
    ("all-reduce", (PAIRED[0][0], np.array([[0, 3, 4]])), "ring"),
    *[("all-gather", place(name, 2), "ring") for name in ("dgx-v100", "mi250x-8", "p5")],
]


@pytest.mark.parametrize(("kind", "where", "algorithm"), SYMMETRIC)
def test_bytes_take_as_long_as_in_the_closed_form(kind, where, algorithm):
    expected = closed(kind, GB, where, algorithm)
    assert replayed(kind, GB, where, algorithm) == pytest.approx(expected, rel=WITHIN)


def latency_differs(where, algorithm):
    """Rings over nodes, links between chips, cards under one switch: each has its test below."""
    over_nodes = where[0].nodes > 1 and len(where[1]) == 1 and algorithm == "ring"
    paired = where[0].name in ("dgx-v100", "mi250x-8")
    return over_nodes or where is CARDS or paired or (where is MESH and algorithm == "pairwise")


@pytest.mark.parametrize("size", [1e3, 1e6, GB])
@pytest.mark.parametrize(
    ("kind", "where", "algorithm"), [case for case in SYMMETRIC if not latency_differs(*case[1:])]
)
def test_latencies_add_as_in_the_closed_form(kind, where, algorithm, size):
    expected = closed(kind, size, where, algorithm, LATENCIES)
    found = replayed(kind, size, where, algorithm, latency=True)
    assert found == pytest.approx(expected, rel=WITHIN)


def test_ten_groups_share_the_nic_as_in_the_closed_form():
    """Pieces are written to host memory before they leave, and read after they have arrived."""
    expected = closed("all-reduce", GB, TEN_BEHIND_A_NIC, "ring")
    found = one_more("all-reduce", GB, TEN_BEHIND_A_NIC, "ring", slices=4)
    assert found == pytest.approx(expected, rel=WITHIN)


PIPELINED = [
    ("all-reduce", place("dgx-h100", 4, gpus_per_node=4), "tree", 8),
    ("all-reduce", RAILS[4], "tree", 8),
    ("all-gather", NODE, "nvls", 4),
    ("reduce-scatter", NODE, "nvls", 4),
    ("all-reduce", NODE, "nvls", 16),
    ("all-reduce", place("dgx-h100", 4), "nvls-tree", 4),
    ("broadcast", NODE, "ring", 4),
]


@pytest.mark.parametrize(("kind", "where", "algorithm", "slices"), PIPELINED)
def test_one_more_part_takes_as_long_as_in_the_closed_form(kind, where, algorithm, slices):
    expected = closed(kind, GB, where, algorithm)
    found = one_more(kind, GB, where, algorithm, slices)
    assert found == pytest.approx(expected, rel=WITHIN)


@pytest.mark.parametrize(
    ("kind", "where", "algorithm"),
    [
        ("all-reduce", NODE, "tree"),
        ("all-reduce", place("dgx-h100", 4), "tree"),
        ("all-reduce", RAILS[8], "tree"),
        ("all-gather", NODE, "nvls"),
        ("reduce-scatter", RAILS[8], "pat"),
        ("broadcast", NODE, "ring"),
    ],
)
def test_an_empty_call_waits_for_as_many_hops(kind, where, algorithm):
    expected = closed(kind, 0.0, where, algorithm, LATENCIES)
    found = replayed(kind, 0.0, where, algorithm, latency=True)
    assert found == pytest.approx(expected, rel=1e-6)


# Where the two differ, and why


def test_a_ring_over_nodes_waits_for_the_dearest_hop_too():
    """A piece goes over all hops but one. NCCL's rule, the closed form, leaves out a dear one."""
    where = place("dgx-h100", 4)
    rule = closed("all-gather", 0.0, where, "ring", LATENCIES)
    assert rule == pytest.approx(28 * NVLINK + 3 * NETWORK)
    found = replayed("all-gather", 0.0, where, "ring", latency=True)
    assert found == pytest.approx(27 * NVLINK + 4 * NETWORK)


def test_a_sum_of_the_switch_is_fetched_and_then_given_out():
    """Two exchanges with the switch, where the closed form has NCCL's single step."""
    assert closed("all-reduce", 0.0, NODE, "nvls", LATENCIES) == pytest.approx(NVLINK)
    found = replayed("all-reduce", 0.0, NODE, "nvls", latency=True)
    assert found == pytest.approx(2 * NVLINK)


def test_the_ends_of_a_chain_send_half_so_chains_that_take_turns_are_faster():
    """Eight chips, eight chains: each chip is an end of two of them, the closed form of none."""
    ratio = one_more("all-reduce", GB, NODE, "tree", 16) / closed("all-reduce", GB, NODE, "tree")
    assert ratio == pytest.approx(7 / 8)


def test_rounds_inside_a_node_leave_its_nics_idle():
    """The closed form lets all rounds overlap: the sum of both levels against the larger one."""
    where = place("dgx-h100", 2)
    inside, outside = 7 * GB / 16 / 450e9, 8 * GB / 16 / 50e9
    assert closed("all-to-all", GB, where, "pairwise") == pytest.approx(outside)
    found = replayed("all-to-all", GB, where, "pairwise")
    assert found == pytest.approx(inside + outside)


def test_links_to_each_other_serve_all_rounds_at_once():
    """Seven sends over seven links wait for one hop, where the closed form counts seven."""
    found = replayed("all-to-all", 0.0, MESH, "pairwise", latency=True)
    assert 7 * found == pytest.approx(closed("all-to-all", 0.0, MESH, "pairwise", LATENCIES))


def test_rings_that_have_a_double_link_for_themselves_hide_some_latency():
    """Six rings of a DGX-1 fill most links; where one has two, a piece is there in half the time,
    and waits less for the latency of the hops before it."""
    for size, least in ((0.0, 1.0), (1e6, 0.93), (GB, 0.999)):
        rule = closed("all-reduce", size, PAIRED[0], "ring", LATENCIES)
        found = replayed("all-reduce", size, PAIRED[0], "ring", latency=True)
        assert rule * least * (1 - 1e-9) <= found <= rule * (1 + 1e-9)


def test_bridges_serve_the_hops_of_a_ring_that_also_needs_other_links():
    """Ten cards, four bridges: of the five hops below a switch three still go by host memory. The
    closed form has all of them go there: NVLink, where it does not hold a whole ring, is left."""
    where = place("rtx3090-10-nvlink", 1)
    ratio = one_more("all-reduce", GB, where, "ring", 4) / closed("all-reduce", GB, where, "ring")
    assert ratio == pytest.approx(3 / 5, rel=WITHIN)


def test_cards_under_one_switch_need_not_go_by_way_of_the_socket():
    """Half of the hops between two cards are 0.5 us, where the closed form has 1 us for all."""
    rule = closed("all-gather", 0.0, CARDS, "ring", LATENCIES)
    found = replayed("all-gather", 0.0, CARDS, "ring", latency=True)
    assert (rule, found) == (pytest.approx(7e-6), pytest.approx(4 * 1e-6 + 3 * 0.5e-6))


def test_writing_to_host_memory_and_reading_from_it_overlap_in_slices():
    """PCIe is full duplex: with many slices the way down is busy while the way up is, as in the
    closed form; unsliced, a piece is read only when all of it is written."""
    where = place("rtx3090-10", 1)
    expected = closed("all-reduce", GB, where, "ring")
    assert one_more("all-reduce", GB, where, "ring", 4) == pytest.approx(expected, rel=WITHIN)
    assert 1.4 < replayed("all-reduce", GB, where, "ring") / expected <= 2


def test_a_ring_over_an_odd_number_of_nodes_changes_rails_once():
    """Channels swap their two rails from node to node; the last of three swaps over NVLink."""
    where = place("dgx-h100", 3)
    carried = replay([Call("all-gather", GB, where[1])], where[0]).carried("node2/chip", "nvswitch")
    even = load("all-gather", where[1], levels(where[0])[0], "ring").share * GB
    assert max(carried.values()) > even * 1.05


# Bytes on every link


def busiest(result, uplink):
    """The most bytes over the links of one unit of an uplink."""
    ways = {
        "NVLink of a chip": ("/chip", "/nvswitch", None),
        "PCIe of a chip": ("/chip", "/pcie_switch", None),
        "PCIe of a switch": ("/pcie_switch", "/socket", None),
        "links between sockets": ("/socket", "/socket", None),
        "NICs of a node": ("/nic", "leaf", "/"),
        "NIC of a chip": ("/nic", "leaf", None),
        "uplinks of a leaf group": ("leaf", "spine", "."),
    }
    source, target, ends = ways[uplink.name]
    totals = {}
    for name, count in result.carried(source, target).items():
        unit = name.split(ends)[0] if ends else name
        totals[unit] = totals.get(unit, 0.0) + count
    return max(totals.values(), default=0.0)


@pytest.mark.parametrize(
    ("kind", "where", "algorithm"),
    [
        *[(kind, NODE, "ring") for kind in ("all-gather", "all-reduce", "permute")],
        ("all-reduce", NODE, "nvls"),
        ("all-to-all", NODE, "pairwise"),
        ("all-gather", place("dgx-h100", 2), "ring"),
        ("all-reduce", place("dgx-h100", 4), "ring"),
        ("all-reduce", place("dgx-h100", 4), "nvls-tree"),
        ("all-to-all", RAILS[4], "pairwise"),
        ("reduce-scatter", RAILS[8], "pat"),
        ("all-reduce", RAILS[4], "tree"),
        ("all-gather", place("rtx3090-10", 1), "ring"),
        ("all-reduce", CARDS, "ring"),
        ("all-gather", place("dgx-h100", 32, "data=32,tensor=8", "data"), "ring"),
    ],
)
def test_every_link_carries_the_bytes_of_the_closed_form(kind, where, algorithm):
    cluster, groups = where
    result = replay([Call(kind, GB, groups, algorithm)], cluster, latency=False)
    for uplink in levels(cluster):
        if uplink.name == "PCIe of a chip" and cluster.nodes > 1:
            continue
        share = load(kind, groups, uplink, algorithm).share
        assert busiest(result, uplink) == pytest.approx(share * GB, rel=1e-9), uplink.name


def test_the_bytes_of_groups_inside_the_node_never_reach_a_nic():
    result = replay([Call("all-reduce", GB, TENSOR[1])], TENSOR[0])
    assert sum(result.carried("/nic", "leaf").values()) == 0
    assert result.busiest.kind == "nvlink"


# Several collectives at once


def test_collectives_over_one_nic_share_it():
    cluster, groups = RAILS[4]
    one, two = (replay([Call("all-reduce", GB, groups)] * n, cluster, False) for n in (1, 2))
    assert two.times == pytest.approx([2 * one.time] * 2)


def test_a_collective_inside_the_nodes_does_not_disturb_one_between_them():
    cluster, between = RAILS[4]
    inside = parse_mesh("data=4,tensor=8").groups(["tensor"])
    calls = [Call("all-reduce", GB, between), Call("all-reduce", GB, inside)]
    alone = [replay([call], cluster).time for call in calls]
    assert replay(calls, cluster).times == pytest.approx(alone)


def test_two_axes_over_the_same_nics_slow_each_other_and_the_smaller_ends_first():
    cluster = catalog.load("dgx-h100", 4)
    mesh = parse_mesh("data=2,fsdp=2,tensor=8")
    near, far = (Call("all-reduce", s, mesh.groups([a])) for a, s in (("fsdp", GB), ("data", 3e9)))
    small, large = replay([near, far], cluster, False).times
    each = GB / 50e9  # s: half a GB goes twice over a rail of 50 GB/s
    assert (small, large) == (pytest.approx(2 * each), pytest.approx(4 * each))


def test_a_group_of_one_and_no_call_at_all_take_no_time():
    cluster = catalog.load("dgx-h100")
    assert replay([Call("all-reduce", GB, np.array([[3]]))], cluster).time == 0
    assert replay([], cluster).time == 0
