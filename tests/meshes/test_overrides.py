"""Overrides: what a published system states otherwise than the catalogue."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.meshes import catalog
from scaling.meshes.cluster import network_link
from scaling.meshes.errors import InputError
from scaling.meshes.levels import levels
from scaling.report.cluster import figures


def test_the_rate_of_a_nic_is_that_of_all_over_their_number():
    one, every = (
        catalog.load("dgx-h100", 2, {key: rate})
        for key, rate in (("nic_bandwidth", 12.5e9), ("node_network_bandwidth", 100e9))
    )
    assert one.node_network_bandwidth == every.node_network_bandwidth == 100e9
    with pytest.raises(InputError, match="give one of them"):
        catalog.load("dgx-h100", 2, {"nic_bandwidth": 1e9, "node_network_bandwidth": 8e9})


def test_node_network_bandwidth_is_shared_by_the_nics():
    cluster = catalog.load("dgx-a100", 8, {"node_network_bandwidth": 100e9})
    assert cluster.node_network_bandwidth == 100e9
    assert network_link(cluster).bandwidth.value == 100e9 / 8


@given(st.integers(1, 8), st.floats(1e8, 1e12))
def test_the_network_of_a_node_as_used_is_what_was_stated(gpus, bandwidth):
    overrides = {"node_network_bandwidth": bandwidth, "gpus_per_node": gpus}
    cluster = catalog.load("dgx-h100", 4, overrides)
    assert cluster.node_network_bandwidth == pytest.approx(bandwidth)
    assert (cluster.devices, cluster.nics) == (4 * gpus, gpus)


def test_memory_keeps_its_usable_share():
    full = catalog.load("dgx-a100").accelerator
    chip = catalog.load("dgx-a100", 1, {"memory": 40e9, "memory_bandwidth": 1.5e12}).accelerator
    assert chip.memory == 40e9 and chip.memory_bandwidth == 1.5e12
    assert chip.usable_memory / chip.memory == pytest.approx(full.usable_memory / full.memory)


def test_overridden_figures_say_so_and_no_others():
    overrides = {"node_network_bandwidth": 1e9, "memory_bandwidth": 1e12}
    changed = dict(figures(catalog.load("dgx-h100", 2, overrides)))
    assert {name for name, figure in changed.items() if figure.source == "override"} == {
        "network nic - leaf: bandwidth",
        "h100-sxm: memory_bandwidth",
    }
    untouched = dict(figures(catalog.load("dgx-h100", 2)))
    assert all(figure.source != "override" for figure in untouched.values())


@pytest.mark.parametrize(
    "name", ["dgx-h100", "mi300x-8", "mi250x-8", "gb200-nvl72", "tpu-v5p", "rtx3090-10-nvlink"]
)
def test_links_between_chips_and_peaks_are_as_stated(name):
    cluster = catalog.load(name, 1, {"link_bandwidth": 123e9, "peak_bf16": 5e14})
    assert levels(cluster)[0].bandwidth == pytest.approx(123e9)
    assert cluster.accelerator.peak("bf16") == 5e14
    changed = {key for key, figure in figures(cluster) if figure.source == "override"}
    assert f"{cluster.accelerator.name}: peak_bf16" in changed and len(changed) >= 2


def test_a_cpu_has_as_many_devices_as_asked_for():
    assert catalog.load("host", 1, {"gpus_per_node": 512}).devices == 512


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        ("dgx-h100", {"memory_bandwith": 1e12}, "did you mean 'memory_bandwidth'"),
        ("dgx-h100", {"memory": 0}, "memory=0 must be positive"),
        ("dgx-h100", {"node_network_bandwidth": -1}, "must be positive"),
        ("dgx-h100", {"gpus_per_node": 9}, "gpus_per_node=9: a node of dgx-h100 has 8"),
        ("dgx-h100", {"gpus_per_node": 2.5}, "must be a whole number"),
        ("dgx-h100", {"nvlink_domain_nodes": 2}, "no NVLink joins dgx-h100 nodes"),
        ("h100-pcie-8", {"link_bandwidth": 1e12}, "have no links to each other"),
        ("dgx-h100", {"peak_bf61": 1e12}, "did you mean 'peak_bf16'"),
    ],
)
def test_an_override_that_means_nothing_is_refused(name, overrides, message):
    with pytest.raises(InputError, match=message):
        catalog.load(name, 1, overrides)


def test_overrides_on_the_command_line():
    texts = ["node_network_bandwidth=100e9", "memory=40GB", "gpus_per_node=4"]
    expected = {"node_network_bandwidth": 100e9, "memory": 40e9, "gpus_per_node": 4}
    assert catalog.parse_overrides(texts) == expected
    bits = catalog.parse_overrides(["node_network_bandwidth=100Gb/s", "memory_bandwidth=2TB/s"])
    assert bits == {"node_network_bandwidth": 12.5e9, "memory_bandwidth": 2e12}
    with pytest.raises(InputError, match="--override memory=40GB/s: .*unknown unit 'GB/s'"):
        catalog.parse_overrides(["memory=40GB/s"])
    with pytest.raises(InputError, match="did you mean 'memory'"):
        catalog.parse_overrides(["memroy=40GB"])
    with pytest.raises(InputError, match="write key=value"):
        catalog.parse_overrides(["memory"])
