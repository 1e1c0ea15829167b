"""Prices of collectives: the textbook's numbers, the physics, and what a user reads."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.collectives.cost import collective_time
from scaling.collectives.measured import fitted_time
from scaling.meshes import catalog
from scaling.meshes.errors import InputError
from scaling.meshes.shape import MeshShape, parse_mesh
from scaling.profiles.io import ideal, profile_of
from scaling.profiles.profile import CollectiveFit, Evidence, LinkFit
from scaling.program.ir import COLLECTIVE_KINDS
from tests.calls import calls

IDEAL = ideal()
H100 = profile_of(catalog.accelerator("h100-sxm"))
GB = 1e9
SIZES = st.sampled_from([1, 2, 4, 8])
MESHES = st.builds(MeshShape, data=SIZES, fsdp=SIZES, stage=SIZES, tensor=SIZES)
AXES = st.sets(st.sampled_from(["data", "fsdp", "stage", "tensor"]), min_size=1)
KINDS = st.sampled_from(COLLECTIVE_KINDS)
HERE = Evidence("a test", "2026-11", "measured")


def h100(nodes, **changes):
    return replace(catalog.load("dgx-h100", nodes), **changes)


def everyone(cluster):
    """One group of all devices."""
    return np.arange(cluster.devices)[None]


# "How to Scale Your Model", gpus.md, 2026-06. 8 H100: 450 GB/s each, 400 GB/s out of a node.


def test_an_all_gather_on_eight_h100_takes_65_us():
    cost = collective_time("all-gather", 2 * 1024 * 16384, everyone(h100(1)), h100(1), IDEAL)
    assert cost.time == pytest.approx(65.24e-6, rel=1e-3)
    assert (cost.level, cost.algorithm) == ("node", "ring")
    assert cost.bottleneck == "NVLink of a chip: 28 MiB over 450 GB/s"


def test_an_array_sharded_over_a_node_is_reduced_as_fast_as_one_that_is_not():
    """Y = 8 inside the node: the outer collective still moves all of it through the same NICs."""
    cluster, mesh = h100(32), parse_mesh("data=32,tensor=8")
    whole = collective_time("all-gather", 8e9, mesh.groups(["data", "tensor"]), cluster, IDEAL)
    shard = collective_time("all-gather", 1e9, mesh.groups(["data"]), cluster, IDEAL)
    assert shard.time == pytest.approx(whole.time)
    assert shard.bottleneck == "NICs of a node: 8 groups x 969 MB over 400 GB/s"


# What crosses where


def test_one_pair_of_chips_in_two_nodes_has_one_nic():
    cost = collective_time("permute", 1e9, np.array([[7, 8]]), h100(2), IDEAL)
    assert cost.time == pytest.approx(1 / 50)
    assert cost.bottleneck == "NIC of a chip: 1 GB over 50 GB/s"


def test_an_nvlink_domain_of_several_nodes_needs_no_nics():
    cluster = h100(4, domain_nodes=2)
    inside = collective_time("all-gather", 1e9, np.arange(16)[None], cluster, IDEAL)
    assert inside.time == pytest.approx(1e9 * 15 / 16 / 450e9)
    assert inside.level == "domain"
    across = collective_time("all-to-all", 1e9, np.arange(32)[None], cluster, IDEAL)
    assert across.time == pytest.approx(16e9 * 16 / 32 / 800e9)


def test_cards_without_peer_access_share_their_switch_and_pass_through_host_memory():
    """PCIe is full duplex: a byte is written upwards and read downwards. DDP steps of 2, 4, 8 and
    10 such cards took as long as 61, 56, 51 and 51 % of this bandwidth do (collectives.csv)."""
    cluster = catalog.load("rtx3090-10")
    for cards, bus in ((2, 31.5 / 2), (10, 31.5 / 5)):
        cost = collective_time("all-reduce", 1e9, np.arange(cards)[None], cluster, IDEAL)
        assert 2 * (cards - 1) / cards / cost.time == pytest.approx(bus)
    assert cost.bottleneck == "PCIe of a switch: 9 GB over 31.5 GB/s, through host memory"
    assert cost.lower_bound == pytest.approx(cost.time)


def test_with_peer_access_two_cards_under_one_switch_only_load_their_own_links():
    cluster = replace(catalog.load("rtx3090-10"), peer_access=True)
    cost = collective_time("all-gather", 1e9, np.arange(5)[None], cluster, IDEAL)
    assert cost.time == pytest.approx(0.8e9 / 31.5e9)


@pytest.mark.parametrize("cards, rate", [(2, 0.2 * 31.5), (4, 0.6 * 31.5 / 4), (5, 0.6 * 31.5 / 5)])
def test_a_card_passes_host_memory_at_its_rate_and_shared_links_carry_what_links_do(cards, rate):
    links = [
        LinkFit("any", "pcie", share, HERE, latency_factor=0.0, transport=way)
        for share, way in ((0.6, "any"), (0.2, "host"))
    ]
    cluster, profile = catalog.load("rtx3090-10"), replace(IDEAL, links=tuple(links))
    time = collective_time("all-gather", 1e9, np.arange(cards)[None], cluster, profile).time
    assert (cards - 1) / cards / time == pytest.approx(rate, rel=1e-6)


@pytest.mark.parametrize(
    "name, direct", [("rtx-pro-6000-8", 2), ("l40s-8", 2), ("rtx4090-8", 0), ("h100-pcie-8", 2)]
)
def test_only_so_many_cards_read_one_another_directly(name, direct):
    cluster = catalog.load(name)
    for cards in range(2, 9):
        cost = collective_time("all-gather", 1e9, np.arange(cards)[None], cluster, IDEAL)
        assert cost.bottleneck.endswith("host memory") == (cards > direct), cards


# Latency and fitted figures


def test_small_messages_wait_for_hops_and_go_around_a_ring():
    cluster, profile = h100(1), H100
    small, large = (
        collective_time("all-reduce", size, everyone(cluster), cluster, profile)
        for size in (1024, 2**30)
    )
    assert (small.algorithm, large.algorithm) == ("ring", "nvls")
    assert small.bottleneck.startswith("latency, then NVLink")
    (ring,) = (each for each in small.candidates if each.algorithm == "ring")
    (fit,) = (one.figures for one in ring.loaded)
    assert ring.latency == pytest.approx(fit.alpha + 14 * (0.6e-6 + fit.hop_overhead))
    assert ring.latency == pytest.approx(15.7e-6, rel=0.15)  # 8 H100, nccl-tests (systems.csv)


def test_a_large_all_reduce_has_the_bus_bandwidth_that_was_measured():
    """480 GB/s at 8 GiB on 8 H100 with sums in the switch, 366 by rings (nccl-tests)."""
    for algorithm, bus in (("auto", 480 * GB), ("ring", 366 * GB)):
        where = (everyone(h100(1)), h100(1), H100, algorithm)
        cost = collective_time("all-reduce", 8 * 2**30, *where)
        assert 8 * 2**30 * 14 / 8 / cost.time == pytest.approx(bus, rel=0.1)


def test_every_level_adds_the_hops_of_its_ring():
    fit = LinkFit("any", "network", 1.0, HERE, alpha=5e-6)
    nvlink = replace(fit, link="nvlink", alpha=3e-6)
    profile = replace(IDEAL, links=(fit, nvlink))
    cluster = h100(2)
    places = (everyone(cluster), cluster, profile)
    ring = collective_time("all-gather", 0.0, *places)
    assert ring.algorithm == "ring"
    assert ring.time == pytest.approx(8e-6 + 14 * 0.6e-6 + 1 * 2.7e-6)
    by_levels = collective_time("all-gather", 0.0, *places, "hierarchical")
    assert by_levels.time == pytest.approx(8e-6 + 7 * 0.6e-6 + 1 * 2.7e-6)
    ring = collective_time("permute", 0.0, everyone(cluster), cluster, profile)
    assert ring.time == pytest.approx(5e-6 + 2.7e-6)


def test_a_profile_without_the_link_says_so():
    profile = replace(IDEAL, links=tuple(f for f in IDEAL.links if f.link == "network"))
    with pytest.raises(InputError, match="profile ideal says nothing of all-reduce over nvlink"):
        collective_time("all-reduce", 1.0, everyone(h100(1)), h100(1), profile)


# Measured lines


def measured(*fits):
    return replace(IDEAL, name="here", collectives=fits)


def on_host(kind, size, *fits, groups=None):
    """The cost on eight fake devices, where these lines were measured."""
    host = catalog.load("host", overrides={"gpus_per_node": 8})
    groups = everyone(host) if groups is None else np.array(groups)
    return collective_time(kind, size, groups, host, measured(*fits))


def test_the_host_is_priced_by_what_was_measured_for_the_nearest_ranks():
    pairs = CollectiveFit("all-reduce", 2, 4, 1e-4, 2e9, HERE)
    eight = CollectiveFit("all-reduce", 8, 1, 3e-4, 1e9, HERE)
    whole = on_host("all-reduce", 1e6, pairs, eight)
    assert whole.time == pytest.approx(1.3e-3)
    assert whole.lower_bound == pytest.approx(1e-3)
    assert whole.bottleneck == "1 x 8 devices: 1 GB/s as measured"
    for groups in ([[0, 1], [2, 3], [4, 5], [6, 7]], [[0, 1]]):  # ranks decide before groups do
        two = on_host("all-reduce", 1e6, pairs, eight, groups=groups)
        assert (two.time, two.algorithm) == (pytest.approx(6e-4), "measured")


@given(st.floats(1, 1e9))
def test_what_fits_the_cache_moves_faster(size):
    fit = CollectiveFit("all-to-all", 8, 1, 1e-5, 1e9, HERE, 1e6, 8e9)
    expected = 1e-5 + min(size, 1e6) / 8e9 + max(size - 1e6, 0.0) / 1e9
    assert fitted_time(fit, np.array([size]))[0] == pytest.approx(expected)
    cost = on_host("all-to-all", size, fit)
    assert cost.lower_bound <= cost.time == pytest.approx(expected)


def test_a_line_of_other_ranks_is_scaled_by_the_steps_and_bytes_of_a_ring():
    """Eight ranks take 7 steps for 1, and 7/8 of the bytes for 1/2."""
    cost = on_host("all-gather", 1e6, CollectiveFit("all-gather", 2, 4, 1e-4, 2e9, HERE))
    assert cost.time == pytest.approx(7 * 1e-4 + 1e6 * 7 / 8 / (1 / 2) / 2e9)
    assert cost.extrapolated
    assert cost.bottleneck == "4 x 2 devices: 2 GB/s as measured, scaled to 8 by a ring's steps"
    one_step = on_host("permute", 1e6, CollectiveFit("permute", 2, 4, 1e-4, 2e9, HERE))
    assert one_step.time == pytest.approx(1e-4 + 1e6 / 2e9)


def test_a_broadcast_that_was_not_measured_is_priced_as_an_all_gather_of_all_bytes():
    cost = on_host("broadcast", 1e6, CollectiveFit("all-gather", 8, 1, 1e-4, 2e9, HERE))
    assert cost.time == pytest.approx(1e-4 + 1e6 * 8 / 7 / 2e9)
    assert cost.extrapolated and "of an all-gather: no broadcast was measured" in cost.bottleneck


def test_a_kind_that_was_not_measured_names_those_that_were():
    with pytest.raises(InputError, match="has no all-gather; it has all-reduce; run `scaling cal"):
        on_host("all-gather", 1e6, CollectiveFit("all-reduce", 2, 1, 1e-4, 2e9, HERE))


def test_the_host_has_no_prices_before_calibration():
    host = catalog.load("host", overrides={"gpus_per_node": 2})
    with pytest.raises(InputError, match="scaling calibrate"):
        collective_time("all-gather", 1e6, np.arange(2)[None], host, IDEAL)


@given(st.floats(1e3, 1e8), st.sampled_from([2, 4]), st.floats(1e6, 1e9))
def test_hosts_of_a_testbed_pay_for_their_link_and_for_the_cores_that_they_share(size, hosts, rate):
    """All ranks but one lie on other hosts: a ring sends 2 (N-1)/N of the bytes over each link."""
    figures = {"gpus_per_node": 1, "node_network_bandwidth": rate}
    line = CollectiveFit("all-reduce", hosts, 1, 1e-4, 2e9, HERE)
    place = catalog.load("host", hosts, figures)
    cost = collective_time("all-reduce", size, everyone(place), place, measured(line))
    wire = 2 * (1 - 1 / hosts) * size / rate
    assert cost.time == pytest.approx(1e-4 + size / 2e9 + wire)
    assert cost.level == "leaf" and cost.lower_bound == pytest.approx(wire)


def test_a_measured_line_is_not_believed_below_the_wire():
    profile = measured(CollectiveFit("all-gather", 8, 1, 0.0, 1e15, HERE))
    cost = collective_time("all-gather", 1e9, everyone(h100(1)), h100(1), profile)
    assert cost.time == cost.lower_bound == pytest.approx(7 / 8 / 450)


# Bad input


@pytest.mark.parametrize(
    ("kind", "groups", "message"),
    [
        ("all-reduce", [[0, 8]], "device 8, but dgx-h100 has 8 .1 nodes x 8., counted from 0"),
        ("all-reduce", [0, 1], "integers .groups, members."),
        ("all-reduce", [[0.5]], "integers .groups, members."),
        ("scatter", [[0, 1]], "'scatter' is no collective; there are all-reduce, all-gather"),
    ],
)
def test_bad_input_is_explained(kind, groups, message):
    with pytest.raises(InputError, match=message):
        collective_time(kind, 1.0, np.array(groups), h100(1), IDEAL)


# Physics


def placed(mesh, **changes):
    return h100(max(1, mesh.devices // 8), **changes)


@given(KINDS, MESHES, AXES)
def test_arrays_of_sizes_are_priced_like_single_ones(kind, mesh, axes):
    cluster, profile = placed(mesh), H100
    groups, sizes = mesh.groups(axes), np.array([1e3, 1e6, 1e9])
    together = collective_time(kind, sizes, groups, cluster, profile)
    alone = [collective_time(kind, s, groups, cluster, profile).time for s in sizes.tolist()]
    assert together.time.tolist() == pytest.approx(alone)


@pytest.mark.parametrize("name", [n for n in catalog.names() if n != "host"])
@pytest.mark.parametrize("kind", COLLECTIVE_KINDS)
def test_every_cluster_of_the_catalogue_has_a_price(name, kind):
    cluster = catalog.load(name, 2)
    profile = profile_of(cluster.accelerator)
    cost = collective_time(kind, 1e8, everyone(cluster), cluster, profile)
    assert 0 < cost.lower_bound < cost.time < 10
    assert cost.bottleneck


def test_sixteen_thousand_devices_are_priced_in_about_the_steps_of_sixty_four():
    """2,639 calls, and 1,697 of 64: devices are priced by arrays, not in turn."""
    groups = parse_mesh("data=16,fsdp=128,tensor=8").groups(["fsdp"])
    price = lambda: collective_time("all-gather", 1e9, groups, h100(2048), IDEAL)
    assert calls(price) < 8_000
    assert calls(price) < 800  # again: how the groups lie is kept


# What a price rests on


def test_the_evidence_is_that_of_the_link_that_binds_or_of_what_was_measured():
    links = (
        LinkFit("any", "nvlink", 0.8, replace(HERE, source="nvlink")),
        LinkFit("any", "pcie", 0.8, replace(HERE, source="pcie")),
        LinkFit("any", "network", 0.8, replace(HERE, source="network")),
    )
    line = CollectiveFit("all-gather", 8, 1, 1e-5, 1e9, replace(HERE, source="line"))
    profile = replace(IDEAL, links=links)
    inside, across = everyone(h100(1)), np.arange(16).reshape(2, 8).T

    def source(groups, cluster, profile):
        return collective_time("all-gather", 1e9, groups, cluster, profile).evidence.source

    assert source(inside, h100(1), profile) == "nvlink"
    assert source(across, h100(2), profile) == "network"
    assert source(inside, h100(1), replace(profile, collectives=(line,))) == "line"


# Groups with one chip in every node: the level inside is there, and joins nobody


def test_groups_along_rails_climb_a_tree_over_nodes_not_a_chain():
    """Up and down over log2 8 network steps of 2.7 us each."""
    latencies = replace(IDEAL, links=tuple(replace(f, latency_factor=1.0) for f in IDEAL.links))
    groups = parse_mesh("data=8,tensor=8").groups(["data"])
    cost = collective_time("all-reduce", 0.0, groups, h100(8), latencies, "tree")
    assert cost.time == pytest.approx(2 * 3 * 2.7e-6)


@pytest.mark.parametrize(
    ("name", "links"), [("dgx-v100", 6 * 25 * GB), ("dgx-station-v100", None), ("mi250x-8", None)]
)
def test_an_all_to_all_takes_no_less_than_the_cut_between_halves_of_a_node(name, links):
    """Four GPUs of a DGX-1 send half of what they have to the others, over six links."""
    cluster, size = catalog.load(name), 1e9
    n, fast = cluster.devices, [j for j in cluster.links if j.kind in ("nvlink", "xgmi")]
    half = range(n // 2)
    across = sum(
        j.total_bandwidth for j in fast for pair in j.pairs if len({k in half for k in pair}) == 2
    )
    assert links is None or across == links
    cost = collective_time("all-to-all", size, everyone(cluster), cluster, IDEAL)
    assert cost.time >= (n // 2) ** 2 * size / n / across * (1 - 1e-9)
    times = [
        collective_time("all-to-all", size, everyone(cluster), cluster, IDEAL, skew=skew).time
        for skew in (1.0, 1.001, 2.0, n)
    ]
    assert times == sorted(times)


@pytest.mark.parametrize("name", ["dgx-b200", "mi300x-8", "dgx-v100", "rtx4090-8"])
@pytest.mark.parametrize("size", [1024, 2**26, 2**30])
def test_between_nodes_of_which_nothing_was_fitted_trees_are_candidates_beside_rings(name, size):
    """Rings alone take 254 steps between 128 GPUs, several times as long below some MiB."""
    cluster = catalog.load(name, 16)
    profile = profile_of(cluster.accelerator)
    best, tree, ring = (
        collective_time("all-reduce", size, everyone(cluster), cluster, profile, algorithm)
        for algorithm in ("auto", "tree", "ring")
    )
    assert {"ring", "tree"} <= {candidate.algorithm for candidate in best.candidates}
    assert best.time <= min(tree.time, ring.time)
    inside = collective_time("all-reduce", size, np.arange(8)[None], cluster, profile)
    assert "tree" not in {candidate.algorithm for candidate in inside.candidates}
    # A tree has the ring's figures inside the nodes, so that it is no way around them.
    assert best.time >= inside.time


@pytest.mark.parametrize("name", ["mi250x-8", "h100-pcie-8", "dgx-h100"])
@pytest.mark.parametrize("kind", ["all-reduce", "all-gather", "reduce-scatter", "broadcast"])
def test_what_no_library_runs_is_priced_on_request_only(name, kind):
    cluster = catalog.load(name, 4)
    groups, profile = everyone(cluster), profile_of(cluster.accelerator)
    auto = collective_time(kind, 2**28, groups, cluster, profile)
    assert not {c.algorithm for c in auto.candidates} & {"hierarchical", "sharp"}
    asked = collective_time(kind, 2**28, groups, cluster, profile, "hierarchical")
    assert asked.algorithm == "hierarchical"


@pytest.mark.parametrize("nodes", [1, 4])
@pytest.mark.parametrize("kind", COLLECTIVE_KINDS)
def test_links_without_latency_never_make_a_collective_slower(nodes, kind):
    """And switches that add are still there: which level has hops does not hang on latency."""
    cluster, profile = h100(nodes), H100
    links = [replace(j, latency=replace(j.latency, value=0.0)) for j in cluster.links]
    hop = replace(cluster.fabric.hop_latency, value=0.0)
    without = replace(cluster, links=tuple(links), fabric=replace(cluster.fabric, hop_latency=hop))
    for size in (2**10, 2**30):
        slow, fast = (
            collective_time(kind, size, everyone(c), c, profile) for c in (cluster, without)
        )
        assert fast.time <= slow.time
        names = [{c.algorithm for c in cost.candidates} for cost in (slow, fast)]
        assert names[0] == names[1]


def test_nodes_with_unlike_numbers_of_members_share_a_sum_evenly():
    """Eight of a node and six of another: each sends the whole buffer once, by six or eight NICs,
    while their gathers and scatters lack 8/14 of it in the one and 6/14 in the other."""
    cluster = catalog.load("dgx-h100", 2, {"node_network_bandwidth": 8 * 25 * GB})
    groups = np.arange(14)[None]
    found = {
        kind: collective_time(kind, 14 * GB, groups, cluster, IDEAL, "hierarchical")
        for kind in ("all-reduce", "all-gather")
    }
    assert found["all-reduce"].time == pytest.approx(14 / (6 * 25))
    assert found["all-gather"].time == pytest.approx(8 / (6 * 25))
    for algorithm in ("ring", "tree", "nvls-tree", "sharp"):
        price = collective_time("all-reduce", 14 * GB, groups, cluster, IDEAL, algorithm)
        assert price.time >= price.lower_bound


# Skew


@pytest.mark.parametrize(("name", "nodes"), [("dgx-h100", 2), ("dgx-v100", 1), ("tpu-v4", 16)])
def test_a_skewed_all_to_all_is_priced_as_if_all_messages_were_the_largest(name, nodes):
    cluster = catalog.load(name, nodes)
    place = (everyone(cluster), cluster, IDEAL)
    even, skewed = (collective_time("all-to-all", 1e9, *place, skew=s) for s in (1.0, 2.0))
    assert skewed.time == pytest.approx(2 * even.time)
    assert skewed.lower_bound == even.lower_bound
    doubled = collective_time("all-to-all", 2e9, *place)
    assert skewed.bottleneck == doubled.bottleneck


@pytest.mark.parametrize(
    ("kind", "skew", "words"),
    [
        ("all-to-all", 0.5, "receives from 1 .as much as the others. to 8 times"),
        ("all-to-all", 9.0, "receives from 1 .as much as the others. to 8 times"),
        ("all-gather", 2.0, "all-gather gives every member the same: leave it out"),
    ],
)
def test_a_skew_that_cannot_be_says_why(kind, skew, words):
    with pytest.raises(InputError, match=words):
        collective_time(kind, 1.0, everyone(h100(1)), h100(1), IDEAL, skew=skew)


def test_a_group_of_one_is_free_and_rests_on_nothing():
    cost = collective_time("all-gather", 1e9, np.arange(8)[:, None], h100(1), IDEAL)
    assert (cost.time, cost.level, cost.evidence) == (0.0, "chip", None)
