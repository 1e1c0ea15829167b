"""Bytes through switches, and how many switches there are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.collectives.cost import collective_time
from scaling.collectives.nccl import communicator
from scaling.collectives.run_lengths import counted
from scaling.collectives.switches import switch_bytes
from scaling.meshes import catalog
from scaling.meshes.placement import groups_on
from scaling.meshes.shape import parse_mesh
from scaling.meshes.switch_counts import switch_layers
from scaling.profiles.io import ideal
from scaling.program.ir import COLLECTIVE_KINDS


@given(st.lists(st.integers(0, 9), max_size=30), st.booleans())
def test_values_are_counted_as_numpy_counts_them(values, in_order):
    values = np.array(sorted(values) if in_order else values, int)
    for found, expected in zip(counted(values), np.unique(values, return_counts=True), strict=True):
        assert np.array_equal(found, expected)


def test_groups_that_lie_in_order_are_not_sorted(monkeypatch):
    """Sorting them is most of the work for millions of devices."""
    cluster = catalog.load("dgx-h100", 64)
    with monkeypatch.context() as patched:
        for name in ("sort", "unique", "lexsort"):
            patched.setattr(np, name, None)
        switch_bytes("all-reduce", 1.0, np.arange(cluster.devices)[None], cluster)
        assert communicator(np.arange(cluster.devices)[None], cluster).nodes == 64


def through(kind, nodes, mesh=None, axis="data", bytes=1.0):
    cluster = catalog.load("dgx-h100", nodes)
    groups = np.arange(cluster.devices)[None]
    if mesh:
        groups = groups_on(parse_mesh(mesh), [axis], cluster)
    found = switch_bytes(kind, bytes, groups, cluster)
    return {each.level: (each.count, each.bytes_in, each.bytes_out) for each in found}


@pytest.mark.parametrize("nodes", [2, 8, 32])
def test_an_all_gather_as_the_guide_counts_it(nodes):
    """gpus.md, quiz 4 question 1: in B, out N B in a node; in B, out B (M - 1) above."""
    found = through("all-gather", nodes)
    assert found["node"] == (nodes, pytest.approx(1), pytest.approx(8))
    assert found["leaf"] == (1, pytest.approx(1), pytest.approx(nodes - 1))


def test_an_all_reduce_in_the_switch_brings_all_bytes_of_all_chips_in_and_out():
    assert through("all-reduce", 1) == {"node": (1, 8, 8)}


def test_axes_inside_a_node_do_not_reach_the_leaves():
    found = through("all-gather", 4, "data=4,tensor=8", "tensor")
    assert found == {"node": (4, pytest.approx(1), pytest.approx(7))}


@given(st.sampled_from(COLLECTIVE_KINDS), st.sampled_from(["data=4,tensor=8", "data=16,tensor=2"]))
def test_switches_pass_on_what_they_get_and_repeat_or_add_only(kind, mesh):
    found = through(kind, 4, mesh)
    gathered = through("all-gather", 4, mesh)
    scattered = through("reduce-scatter", 4, mesh)
    for level, (_, into, out) in found.items():
        if kind in ("all-to-all", "permute"):
            assert into == pytest.approx(out)
        if kind == "reduce-scatter":
            assert gathered[level][1:] == pytest.approx((out, into))
        if kind == "all-reduce":
            both = gathered[level][1] + scattered[level][1]
            assert into == pytest.approx(both)


def test_a_torus_has_no_switches():
    cluster = catalog.load("tpu-v5e")
    assert switch_bytes("all-gather", 1.0, np.arange(8)[None], cluster) == ()


@pytest.mark.parametrize(
    ("name", "nodes", "counts"),
    [
        # gpus.md, section on networking between nodes, 2026-06; 4,096 GPUs: its appendix
        ("dgx-h100", 128, {"nvswitch": 512, "leaf": 32, "spine": 16}),
        ("dgx-h100", 512, {"nvswitch": 2048, "leaf": 128, "spine": 128, "core": 64}),
        ("dgx-h100", 1, {"nvswitch": 4}),
        ("gb200-nvl72", 144, {"nvswitch": 144, "leaf": 32, "spine": 9}),
        ("dgx-a100", 4, {"nvswitch": 24}),
        ("rtx4090-8", 1, {}),
    ],
)
def test_switches_of_every_layer(name, nodes, counts):
    layers = switch_layers(catalog.load(name, nodes))
    assert {layer.name: layer.count for layer in layers} == counts


def test_ports_and_rates_of_a_pod_of_1024_h100():
    """gpus.md, quiz 2 question 1 and quiz 3 question 1."""
    nvswitch, leaf, spine = switch_layers(catalog.load("dgx-h100", 128))
    assert (nvswitch.ports, nvswitch.down) == (64, 8 * 18 / 4)
    assert nvswitch.bandwidth / 128 == pytest.approx(6.4e12)
    assert (leaf.down, leaf.up, spine.down, spine.up) == (32, 32, 64, 0)
    assert spine.bandwidth == pytest.approx(51.2e12)
    assert switch_layers(catalog.load("dgx-h100", 4))[1].up == 0, "one group needs no spine"


@given(st.sampled_from(["dgx-h100", "gb200-nvl72", "dgx-a100"]), st.integers(1, 2048))
def test_no_switch_has_more_cables_than_ports(name, nodes):
    for layer in switch_layers(catalog.load(name, nodes)):
        assert layer.down + layer.up <= layer.ports


@pytest.mark.parametrize("name", ["tpu-v4", "tpu-v5e", "tpu-v5p"])
@pytest.mark.parametrize("nodes", [1, 4, 16])
def test_a_permute_is_not_bounded_above_a_broadcast(name, nodes):
    cluster = catalog.load(name, nodes)
    everyone = np.arange(cluster.devices)[None]
    bound = collective_time("permute", 1e9, everyone, cluster, ideal()).lower_bound
    assert bound <= collective_time("broadcast", 1e9, everyone, cluster, ideal()).time
