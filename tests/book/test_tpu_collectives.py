"""Sharding and training chapters: times of collectives on TPU slices, and what they allow.

"How to Scale Your Model" (jax-ml/scaling-book, sharding.md, training.md, inference.md and
applied-inference.md, 2026-06). W is the bandwidth of a ring, both directions: two links.
"""

from dataclasses import replace

import numpy as np
import pytest

import scaling as sc
from scaling.collectives.cost import collective_time
from scaling.collectives.torus import torus_load
from scaling.meshes import catalog
from scaling.meshes.shape import MeshShape
from scaling.meshes.torus import TorusGrid
from scaling.profiles.io import ideal, profile_of
from scaling.questions.exchanges import (
    UNSHARDED,
    MlpShape,
    hidden_from,
    of_activations,
    of_weights,
    times_hidden,
)
from scaling.simulate.collective import collective_prices
from tests.tori import grid_of, groups_along

IDEAL = ideal()
MLP = MlpShape(8192, 28672)
# hops at the latency of the catalogue, 1 us; otherwise as ideal
HOPS = replace(IDEAL, links=tuple(replace(fit, latency_factor=1.0) for fit in IDEAL.links))


def closed(cluster):
    """The same slice with wraparound links in every dimension: the book's ideal case."""
    return replace(cluster, torus=replace(cluster.torus, wrap=1))


def seconds(kind, size, cluster, dims, profile=IDEAL):
    groups = groups_along(grid_of(cluster), dims)
    return collective_time(kind, float(size), groups, cluster, profile).time


# Sharding chapter


V5E = catalog.load("tpu-v5e", 4)  # 4 x 8, no wraparound: the book's {X: 8, Y: 4}


def test_pop_quiz_2_all_gather_with_and_without_wraparound(printed):
    """bf16 [2048, 8192] over the four; the book rounds 33.6e6 bytes to 34e6."""
    size, rounding = 2 * 2048 * 8192, 34e6 / 2**25 - 1
    assert seconds("all-gather", size, closed(V5E), [0]) == printed("377e-6", rounding)
    assert seconds("all-gather", size, V5E, [0]) == printed("560e-6", rounding)


def test_pop_quiz_2_a_small_array_waits_for_its_hops(printed):
    """bf16 [256, 256]: 0.7 us per hop of bytes, less than the 1 us of its latency; three hops."""
    size = 2 * 256 * 256
    assert seconds("all-gather", size, V5E, [0]) / 3 == printed("0.7e-6")
    assert seconds("all-gather", size, V5E, [0], HOPS) == printed("3e-6")


def test_text_below_45_kb_a_hop_is_bound_by_latency(printed):
    pair = np.array([[0, 1]])

    def hop(size):
        return collective_time("permute", size, pair, V5E, HOPS).time

    sizes = np.arange(40e3, 50e3, 500)
    assert sizes[np.argmax(hop(sizes) > 1e-6) - 1] == printed("45e3")


@pytest.mark.parametrize(
    ("kind", "size", "dims", "answer"),
    [
        ("all-gather", 2 * 1024 * 4096 / 4, [0], "23e-6"),  # the other dimension cut by 4
        ("all-gather", 2 * 1024 * 4096, [0, 1], "46e-6"),
        ("all-reduce", 2 * 1024 * 4096 / 16, [2], "11.6e-6"),
    ],
)
def test_q2_collectives_on_a_v4_cube(printed, kind, size, dims, answer):
    cube = catalog.load("tpu-v4", 16)
    assert seconds(kind, size, cube, dims) == printed(answer, cut=True)


def test_q10_an_all_to_all_is_four_times_cheaper_than_an_all_gather_on_a_two_way_ring(printed):
    size = 1024
    ring = TorusGrid(np.arange(size)[:, None], np.zeros(size, int), (size,), (True,))
    everyone = np.arange(size)[None]
    gather = torus_load("all-gather", everyone, ring).share
    exchange = torus_load("all-to-all", everyone, ring).share / size  # of all that is sent
    assert gather == 1 / 2
    assert exchange == 1 / 8
    assert gather / exchange == printed("4")


@pytest.mark.parametrize(
    ("hosts", "dims"), [(16, [0, 1, 2]), (32, [0, 1, 2]), (16, [1, 2]), (32, [2])]
)
def test_q10_all_to_all_in_several_dimensions(hosts, dims):
    """V max(A, B ..) / (4 N W), V of all N chips."""
    slice_ = catalog.load("tpu-v4", hosts)  # 4 x 4 x 4 and 4 x 4 x 8
    shape = [grid_of(slice_).shape[dim] for dim in dims]
    total, chips = 1e9, int(np.prod(shape))
    time = seconds("all-to-all", total / chips, slice_, dims)
    assert time == pytest.approx(total * max(shape) / (4 * chips * 90e9))


def test_tpus_q5_from_corner_to_corner_of_4x4():
    """bf16 [8, 128, 8192] from (0, 0) to (3, 3): six hops, two ways of 45e9 bytes/s."""
    ask = {"cluster": "tpu-v5e", "nodes": 2, "devices": "0,15", "ideal": True, "hops": True}
    assert sc.price_collective("permute", 1, **ask).time == pytest.approx(6e-6)
    size = 2 * 8 * 128 * 8192
    assert sc.price_collective("permute", size, **ask).time == pytest.approx(size / 90e9)


@pytest.mark.parametrize(
    ("size", "rate"), [(2**17, 4.0e9), (2**19, 12.6e9), (2**22, 34e9), (2**24, 40.5e9)]
)
def test_text_measured_all_gathers_over_16_v5e(size, rate):
    """bytes/s of a link in the book's figure; the profile was made of the largest size alone."""
    pod = catalog.load("tpu-v5e", 32)
    groups, profile = groups_along(grid_of(pod), [0]), profile_of(pod.accelerator)
    (answer,) = collective_prices("all-gather", [size], groups, pod, profile)
    assert answer.algorithm_bandwidth / 2 == pytest.approx(rate, rel=0.15)
    assert answer.grade == "datasheet"


def test_text_measured_all_gathers_over_4_v5e():
    profile = profile_of(V5E.accelerator)
    assert seconds("all-gather", 2 * 256 * 256, V5E, [0], profile) == pytest.approx(8e-6, rel=0.3)
    large = seconds("all-gather", 2 * 2048 * 8192, V5E, [0], profile)
    assert large == pytest.approx(680e-6, rel=0.15)


# Inference chapters


def test_appendix_c_below_360_kb_eight_way_tensor_parallelism_waits_for_hops(printed):
    """A ring of eight v5e: half way around are four hops of 1 us, at 90 GB/s."""
    ring, sizes = closed(V5E), np.arange(300e3, 400e3, 2e3)
    groups = groups_along(grid_of(ring), [1])
    times = collective_time("all-gather", sizes, groups, ring, HOPS).time
    assert sizes[np.argmax(times > 4e-6 * (1 + 1e-9)) - 1] == printed("3.6e5")


def test_applied_inference_activations_of_a_4x8_slice(printed):
    """Batch 64 of Llama 3 70B; the book takes one ring, 11.65 us, where the slice has two lines."""
    size = 2 * 64 * 8192
    assert seconds("all-gather", size, V5E, [0, 1]) == printed("11e-6")
    assert seconds("all-gather", size, closed(V5E), [1]) == printed("11e-6", cut=True)


def test_applied_inference_tensor_axis_over_two_dimensions(printed):
    """Y < M F W / C on a v5e with M = 2 rings, 2200 the book's C / W."""
    pod = catalog.load("tpu-v5e", 32)
    groups = groups_along(grid_of(pod), [0, 1])
    found = times_hidden(of_activations(MLP, groups, pod), IDEAL, 4096)
    assert found == printed("26", 2200 / 2189 - 1)


# Training chapter


def critical_tokens(cluster, dims):
    """Tokens per chip from which the products hide the sum of bf16 gradients along dimensions."""
    groups = groups_along(grid_of(cluster), dims)
    return hidden_from(of_weights(MLP, UNSHARDED, groups, cluster), IDEAL)


@pytest.mark.parametrize(("dims", "tokens"), [([0], "2550"), ([0, 1, 2], "850")])
def test_text_tokens_per_chip_of_data_parallelism_on_v5p(printed, dims, tokens):
    cube = catalog.load("tpu-v5p", 16)
    assert critical_tokens(cube, dims) == printed(tokens)


def test_text_tokens_of_a_v5p_pod(printed):
    pod = catalog.load("tpu-v5p", 2240)
    assert critical_tokens(pod, [0, 1, 2]) * pod.devices == printed("7.6e6")


@pytest.mark.parametrize("pods", [2, 4])
def test_text_tokens_per_pod_over_the_data_centre_network(printed, pods):
    """C / W with 6.25 GB/s a chip, times (X - 1)/X. A summary of the chapter still says 71,000."""
    cluster = catalog.load("tpu-v5p", 16 * pods)
    cluster = replace(cluster, domain_nodes=16)  # slices of 4 x 4 x 4
    chips = cluster.devices // pods
    across = np.arange(cluster.devices).reshape(pods, chips).T
    found = hidden_from(of_weights(MLP, MeshShape(fsdp=chips), across, cluster), IDEAL)
    assert found * chips / ((pods - 1) / pods) == printed("73440")
