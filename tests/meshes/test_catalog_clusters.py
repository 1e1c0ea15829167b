"""Every cluster of the catalogue against its published headline, typed in by hand.

One direction, bytes/s: what one chip can send to others inside its node (or domain, or slice), and
what one node can send to others. Spec sheets add both directions; the sums here do not.
"""

from collections import defaultdict

import pytest

from scaling.meshes import catalog
from scaling.meshes.catalog.write import cluster_toml
from scaling.meshes.cluster import domain_split, level_nodes, torus_shape, unreached_parts
from scaling.meshes.errors import InputError
from tests.oracle.graph import chip_name, expand

GBIT = 1e9 / 8  # bytes/s of a Gb/s
HEADLINES = {
    # name: (chips of a node, from one chip, from one node)
    "dgx-v100": (8, 300e9 / 2, 4 * 100 * GBIT),  # DGX-1 datasheet: 300 GB/s NVLink, 4 x EDR
    "dgx-station-v100": (4, 200e9 / 2, 2 * 10 * GBIT),  # DGX Station datasheet
    "dgx-a100-40g": (8, 600e9 / 2, 8 * 200 * GBIT),  # DGX A100 datasheet
    "dgx-a100": (8, 600e9 / 2, 8 * 200 * GBIT),
    "dgx-h100": (8, 900e9 / 2, 8 * 400 * GBIT),  # DGX H100 datasheet
    "dgx-h200": (8, 900e9 / 2, 8 * 400 * GBIT),  # DGX H200 datasheet
    "dgx-b200": (8, 1800e9 / 2, 8 * 400 * GBIT),  # DGX B200 datasheet: 14.4 TB/s over eight
    "gb200-nvl72": (4, 1800e9 / 2, 4 * 400 * GBIT),  # GB200 NVL72: 1.8 TB/s, 400 Gb/s
    "gb300-nvl72": (4, 1800e9 / 2, 4 * 800 * GBIT),  # GB300 NVL72: ConnectX-8
    "h100-pcie-8": (8, 128e9 / 2, 4 * 200 * GBIT),  # H100 datasheet: PCIe Gen5 128 GB/s
    "mi300x-8": (8, 896e9 / 2, 8 * 400 * GBIT),  # MI300X platform data sheet; ND MI300X v5
    "mi250x-8": (8, 700e9 / 2, 4 * 200 * GBIT),  # MI250X: 800 GB/s over 8 links, 7 to dies
    "rtx3090-10": (10, 64e9 / 2, 2 * 10 * GBIT),  # PCIe 4.0 x16
    "rtx3090-10-nvlink": (10, 112.5e9 / 2, 2 * 10 * GBIT),  # GA102 whitepaper, a bridged card
    "rtx4090-8": (8, 64e9 / 2, 100 * GBIT),
    "l40s-8": (8, 64e9 / 2, 100 * GBIT),
    "rtx-pro-6000-4": (4, 128e9 / 2, 2 * 10 * GBIT),  # PCIe 5.0 x16
    "rtx-pro-6000-8": (8, 128e9 / 2, 4 * 200 * GBIT),
    "p4d": (8, 600e9 / 2, 400 * GBIT),  # EC2 documentation
    "p4de": (8, 600e9 / 2, 400 * GBIT),
    "p5": (8, 900e9 / 2, 3200 * GBIT),
    "p5e": (8, 900e9 / 2, 3200 * GBIT),
    "a3-mega": (8, 900e9 / 2, 1600 * GBIT),  # Google Cloud: 8 x 200 Gb/s for the GPUs
    "nd-a100-v4": (8, 600e9 / 2, 1600 * GBIT),  # Azure: 1.6 Tb/s
    "nd-h100-v5": (8, 900e9 / 2, 3200 * GBIT),  # Azure: 3.2 Tb/s
    "nd-h200-v5": (8, 900e9 / 2, 3200 * GBIT),
    # TPU documentation: 1,200 GB/s per chip over six links and both directions, 400 over four;
    # scaling book: a tenth less of it can be used. DCN: 50, 25, 50 and 100 Gb/s per chip.
    "tpu-v4": (4, 0.9 * 600e9 / 2, 4 * 50 * GBIT),
    "tpu-v5e": (8, 0.9 * 400e9 / 2, 8 * 25 * GBIT),
    "tpu-v5p": (4, 0.9 * 1200e9 / 2, 4 * 50 * GBIT),
    "tpu-v6e": (8, 0.9 * 800e9 / 2, 8 * 100 * GBIT),
}
# nodes at which every link is there
FULL_SLICE = {"tpu-v4": 16, "tpu-v5e": 32, "tpu-v5p": 16, "tpu-v6e": 32}
PCIE_OVERHEAD = 0.03  # spec sheets count PCIe before its 128/130 coding


def sent(cluster, kinds):
    """bytes/s that each chip can send over links of these kinds, to chips and NVSwitches."""
    total = defaultdict(float)
    for link in expand(cluster).links:
        target = link.target.split("/")[-1].rstrip("0123456789")
        if "/chip" in link.source and link.kind in kinds and target != "socket":
            total[link.source] += link.bandwidth
    return total


def test_every_cluster_has_a_headline_here():
    assert set(HEADLINES) | {"host"} == set(catalog.names())


@pytest.mark.parametrize("name", HEADLINES)
def test_published_headlines(name):
    chips, per_chip, per_node = HEADLINES[name]
    cluster = catalog.load(name, FULL_SLICE.get(name, 1))
    assert cluster.devices_per_node == chips
    assert cluster.node_network_bandwidth == pytest.approx(per_node)
    fast = sent(cluster, {"nvlink", "xgmi", "ici"})
    if fast:
        assert max(fast.values()) == pytest.approx(per_chip)
    else:
        links = [link for link in expand(cluster).links if link.source == chip_name(cluster, 0)]
        assert max(link.bandwidth for link in links) == pytest.approx(per_chip, rel=PCIE_OVERHEAD)


def test_every_die_of_an_mi250x_has_a_double_and_a_single_link_to_other_modules():
    links = [link for link in expand(catalog.load("mi250x-8")).links if link.kind == "xgmi"]
    for i in range(8):
        own = [li for li in links if li.source == f"node0/chip{i}" and "/chip" in li.target]
        assert sorted(li.bandwidth for li in own) == [50e9, 100e9, 200e9]
        assert {li.target for li in own if li.bandwidth == 200e9} == {f"node0/chip{i ^ 1}"}


def test_a_gpu_of_a_dgx1_has_six_nvlinks_and_none_to_the_far_corner():
    links = [link for link in expand(catalog.load("dgx-v100")).links if link.kind == "nvlink"]
    for i in range(8):
        near = [li for li in links if li.source == f"node0/chip{i}"]
        assert len(near) == 4 and sum(li.bandwidth for li in near) == 6 * 25e9
        assert sum(int(li.target[-1]) // 4 != i // 4 for li in near) == 1


@pytest.mark.parametrize("name", ["gb200-nvl72", "gb300-nvl72"])
def test_a_rack_is_eighteen_trays_and_one_switch(name):
    rack = catalog.load(name, 18)
    switches = {link.target for link in expand(rack).links if "nvswitch" in link.target}
    assert rack.devices == 72 and switches == {"domain0/nvswitch0"}
    assert level_nodes(rack) == {"node": 1, "domain": 18}


@pytest.mark.parametrize("nodes", [32, 48])
def test_the_leaves_of_a_rack_join_its_trays_and_no_others(nodes):
    """However many trays a rack has: a leaf never holds trays of two racks."""
    cluster = catalog.load("gb200-nvl72", nodes)
    rack = domain_split(nodes, 18)
    for link in expand(cluster).links:
        if "/nic" in link.source and link.target.startswith("leaf"):
            node = int(link.source.removeprefix("node").split("/")[0])
            group, rail = link.target.removeprefix("leaf").split(".")
            assert (node // rack, link.source[-1]) == (int(group), rail)
    assert unreached_parts(cluster) == []


def test_levels_of_racks_are_nested():
    assert level_nodes(catalog.load("gb200-nvl72", 32)) == {"node": 1, "domain": 16, "spine": 32}
    levels = level_nodes(catalog.load("gb200-nvl72", 360))
    assert levels == {"node": 1, "domain": 18, "spine": 144, "core": 360}


def test_more_chips_than_a_pod_are_several_slices_joined_by_the_network():
    cluster = catalog.load("tpu-v5e", 64)
    assert cluster.domain_nodes == 32 and torus_shape(cluster) == (16, 16)
    assert level_nodes(cluster) == {"node": 1, "domain": 32, "leaf": 64}
    across = {link.kind for link in expand(cluster).links if link.target == "leaf0.0"}
    assert across == {"network"} and unreached_parts(cluster) == []


def test_part_of_a_host_is_a_slice_of_its_own_but_not_part_of_a_larger_one():
    assert torus_shape(catalog.load("tpu-v5e", 1, {"gpus_per_node": 4})) == (2, 2)
    with pytest.raises(InputError, match="uses all 8 chips of each, got gpus_per_node=4"):
        catalog.load("tpu-v5e", 2, {"gpus_per_node": 4})


def test_two_slices_where_one_would_do():
    cluster = catalog.load("tpu-v5p", 32, {"nvlink_domain_nodes": 16})
    assert torus_shape(cluster) == (4, 4, 4) and unreached_parts(cluster) == []
    assert level_nodes(cluster) == {"node": 1, "domain": 16, "leaf": 32}


def test_which_switches_can_add_up():
    """NVLink SHARP came with Hopper's NVSwitch; SHARP is in NVIDIA's InfiniBand switches."""
    switch = {n for n in HEADLINES if catalog.load(n).has_nvls}
    fabric = {n for n in HEADLINES if catalog.load(n).fabric.has_sharp}
    hopper = {"dgx-h100", "dgx-h200", "p5", "p5e", "a3-mega", "nd-h100-v5", "nd-h200-v5"}
    racks = {"gb200-nvl72", "gb300-nvl72"}
    assert switch == hopper | racks | {"dgx-b200"}
    assert fabric == racks | {"dgx-a100", "dgx-a100-40g", "dgx-h100", "dgx-h200", "dgx-b200"}


def test_machine_numbers_name_each_chip_once(tmp_path):
    text = cluster_toml(catalog.load("rtx3090-10-nvlink"))
    file = tmp_path / "ten.toml"
    file.write_text(text.replace("[1, 2, 3, 4, 0,", "[1, 2, 3, 4, 4,"))
    with pytest.raises(InputError, match="must name each chip of the host once, 0 to 9"):
        catalog.load(str(file))
