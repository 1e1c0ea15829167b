"""Channels against those that NCCL's logs print."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.collectives.nccl import (
    Channels,
    NodeLinks,
    communicator,
    most_bandwidth,
    node_links,
    pcie_ring,
    socket_speed,
)
from scaling.meshes import catalog
from scaling.meshes.cluster import LinkSpec
from scaling.meshes.provenance import overridden


def comm_of(name, nodes=1, chips=None, **overrides):
    """The communicator of all devices, or of some chips of one node."""
    cluster = catalog.load(name, nodes, overrides)
    ids = np.arange(cluster.devices) if chips is None else np.array(chips)
    return communicator(ids[None], cluster)


@pytest.mark.parametrize(
    ("where", "channels"),
    [
        ({"name": "dgx-a100"}, Channels(12, 20, 20)),  # bus 240
        ({"name": "dgx-h100"}, Channels(12, 30, 30)),  # NVIDIA/nccl issue 1197
        ({"name": "dgx-b200"}, Channels(16, 45, 45)),
        ({"name": "dgx-v100"}, Channels(6, 20, 20)),  # six NVLinks, three rings each way
        ({"name": "dgx-h100", "nodes": 4}, Channels(8, 45, 45)),  # NICs of 400 Gb/s
        # NVIDIA/nccl issue 1189: H20 with 18 NVLinks, two GPUs with a NIC each on each node
        ({"name": "dgx-h100", "nodes": 2, "gpus_per_node": 2}, Channels(4, 24, 24)),
        # nccl-tests issue 307: no peer access, two switches, Intel, 10 GB/s between the sockets
        ({"name": "rtx3090-10", "chips": [0, 1, 2, 3, 5, 6, 7, 8]}, Channels(1, 5, 5)),
        ({"name": "rtx3090-10", "chips": [0, 5]}, Channels(1, 10, 10)),  # NVIDIA/nccl issue 1358
        ({"name": "h100-pcie-8", "chips": [0, 4]}, Channels(2, 11, 11)),  # of 22
    ],
)
def test_rings_are_those_of_nccls_logs(where, channels):
    assert comm_of(**where).rings == channels


def test_sums_in_the_switch_of_eight_h100():
    """NVIDIA/nccl issue 1197: Pattern 5, nChannels 8, bw 40/60: each pulls once more."""
    assert comm_of("dgx-h100").nvls == Channels(8, 40, 60)


def test_gpus_with_links_to_all_others_of_any_kind_have_rings():
    whole = catalog.load("dgx-v100")
    links = LinkSpec(("chip", "chip"), "xgmi", "all", overridden(25e9), overridden(0.0), count=2)
    cluster = replace(whole, links=(links, *(j for j in whole.links if j.kind != "nvlink")))
    assert communicator(np.arange(8)[None], cluster).rings.count > 1


def test_nccl_has_no_say_of_links_that_cannot_be():
    whole = catalog.load("dgx-h100")
    links = [replace(j, bandwidth=overridden(inf)) for j in whole.links]
    assert communicator(np.arange(8)[None], replace(whole, links=tuple(links))) is None


def test_one_gpu_with_one_nic_on_each_node():
    """NVIDIA/nccl issue 524: rings 1 channel of 12, trees 24 inside and 12 outside."""
    comm = comm_of("dgx-v100", 2, gpus_per_node=1)
    assert comm.rings == Channels(1, 12, 12) and comm.trees == Channels(1, 24, 12)
    assert not comm.nvlink


def test_a_rack_is_one_node_with_as_many_channels_of_the_switch_as_there_may_be():
    comm = comm_of("gb200-nvl72", 18)
    assert (comm.ranks, comm.nodes) == (72, 1)
    assert comm.nvls.count == 32 and comm.ll128


@pytest.mark.parametrize("name", ["mi300x-8", "tpu-v4", "mi250x-8"])
def test_without_nvidia_gpus_there_is_no_communicator(name):
    assert comm_of(name) is None


def test_ll128_needs_nvlink_and_a_gpu_that_has_it():
    assert comm_of("dgx-h100").ll128 and not comm_of("h100-pcie-8").ll128
    bridged = comm_of("rtx3090-10-nvlink", chips=[0, 1])
    assert bridged.nvlink and bridged.ll128


@pytest.mark.parametrize(
    ("name", "speed"), [("dgx-v100", 6), ("p4d", 10), ("dgx-h100", 22), ("dgx-b200", 40)]
)
def test_intel_sockets_by_the_rate_of_their_links(name, speed):
    assert socket_speed(catalog.load(name)) == speed


def test_an_intel_cpu_costs_a_fifth_more_between_gpus_of_a_socket():
    cluster = catalog.load("rtx-pro-6000-4")  # PCIe Gen5 x16 each
    assert pcie_ring(cluster, (0, 1)) == 48
    assert pcie_ring(replace(cluster, cpu="intel"), (0, 1)) == 48 / 1.2


def test_a_ring_faster_than_one_link_of_a_pair_joins_several():
    double = NodeLinks("pairs", 2, 20.0, ((0, 2), (2, 0)))
    assert [double.rings(speed) for speed in (50, 40, 20, 10)] == [0, 1, 2, 4]
    assert (double.total, double.widest) == (40, 40)


@given(
    st.lists(st.floats(0.1, 100), min_size=1, max_size=20, unique=True),
    st.floats(1, 1000),
    st.floats(1, 100),
)
def test_the_search_fills_the_bandwidth_and_no_more(speeds, total, widest):
    speeds = tuple(sorted(speeds, reverse=True))
    count, speed = most_bandwidth(speeds, widest, total, lambda s: int(total / s))
    assert count * speed <= total * (1 + 1e-6) and (count == 0 or speed in speeds)
    first = next((s for s in speeds if s <= widest), None)
    if first is not None:
        assert count * speed >= int(total / first) * first


def test_four_gpus_with_four_links_between_every_two_are_joined_in_pairs():
    """As HGX A100 4-GPU boards: three closed walks, both ways round, of four links each."""
    cluster = catalog.load("dgx-station-v100")
    pairs = next(j for j in cluster.links if j.kind == "nvlink")
    others = tuple(j for j in cluster.links if j.kind != "nvlink")
    joined = replace(cluster, links=(*others, replace(pairs, wiring="all", pairs=(), count=4)))
    found = node_links(joined, (0, 1, 2, 3), 80)
    assert found.kind == "pairs" and found.total == 3 * 4 * 20 and found.rings(20) == 12


@pytest.mark.parametrize("name", [n for n in catalog.names() if n != "host"])
@pytest.mark.parametrize("members", [2, 3, 5, 7, 12])
def test_groups_of_any_size_have_channels(name, members):
    cluster = catalog.load(name, 3)
    groups = np.arange(cluster.devices)[:members][None]
    comm = communicator(groups, cluster)
    if comm is not None:
        assert comm.rings.count >= 1 and comm.rings.inside > 0
        assert comm.nodes <= 3 and comm.ranks == groups.shape[1]


def test_cards_without_any_link_between_them_have_one_slow_channel():
    """Chips 0 and 7 of a DGX-1 share no NVLink, and here no PCIe either."""
    cluster = catalog.load("dgx-v100")
    joined = replace(cluster, links=tuple(j for j in cluster.links if j.kind != "pcie"))
    comm = communicator(np.array([[0, 7]]), joined)
    assert comm.rings == Channels(1, 0.1, 0.1)
