"""GPU chapter, quizzes 1 to 3 and the figures of its text, asked of the catalogue and the roofline.

"How to Scale Your Model" (jax-ml/scaling-book, gpus.md and roofline.md, 2026-06). A test is named
by its question; where the book is in error, both figures stand here with the reason.
"""

import numpy as np
import pytest

import scaling as sc
from scaling.collectives.cost import collective_time
from scaling.meshes import catalog
from scaling.meshes.cluster import level_nodes
from scaling.meshes.levels import levels
from scaling.profiles.io import ideal

IDEAL = ideal()


def chip(name):
    return catalog.accelerator(name)


def uplink(cluster, words):
    """bytes/s out of one unit of a level."""
    return next(u.bandwidth for u in levels(cluster) if u.name == words)


# Quiz 1: one chip


@pytest.mark.parametrize(
    ("name", "cores"), [("h100-sxm", 16896), ("b200-sxm", 18944), ("tpu-v5p", 8192)]
)
def test_quiz_1_q1_fp32_lanes(name, cores):
    assert sc.chip(name)["fp32 lanes"].answer == cores


def test_quiz_1_q2_vector_rate_at_boost_and_how_much_faster_matrices_are(printed):
    h100 = chip("h100-sxm")
    vector = float(sc.chip("h100-sxm")["vector rate"])  # an operation per lane and cycle
    assert vector == printed("33.5e12")
    assert float(sc.chip("h100-sxm")["vector rate at base clock"]) == printed("26.9e12")
    assert h100.peak("bf16") / vector == printed("30")
    assert h100.peak("fp32") == printed("67e12")  # counts a fused multiply-add as two


@pytest.mark.parametrize(
    ("name", "dtype", "intensity", "inputs"),
    [
        ("h100-sxm", "bf16", "295", "h100"),
        ("b200-sxm", "bf16", "281", "exact"),
        ("h100-sxm", "fp8", "590", "h100"),  # twice the 295, which was cut off
        ("b200-sxm", "fp8", "562", "exact"),
        ("tpu-v5e", "bf16", "240", "v5e"),  # roofline chapter, arithmetic intensity
    ],
)
def test_quiz_1_q3_flops_per_byte_at_which_a_matmul_turns_from_memory_to_compute(
    printed, name, dtype, intensity, inputs
):
    ridge = float(sc.chip(name, dtype=dtype))
    assert ridge == printed(intensity, inputs, cut=True)
    for factor, bound in ((0.99, "memory"), (1.01, "compute")):
        work = round(factor * ridge * 1e9), 1e9  # FLOPs, bytes
        assert sc.kernel("work", work, dtype=dtype, accelerator=name).ideal_binds == bound


@pytest.mark.parametrize(
    ("batch", "seconds", "bound"), [(64, "8.6e-6", "memory"), (512, "15e-6", "compute")]
)
def test_quiz_1_q4_time_of_a_matmul_on_a_b200(printed, batch, seconds, bound):
    answer = sc.kernel("matmul", (batch, 8192, 4096), dtype="fp16", accelerator="b200-sxm")
    assert answer.ideal == printed(seconds)
    assert answer.ideal_binds == bound


def test_quiz_1_q6_clock_that_the_b200s_vector_rate_needs(printed):
    """The book divides the 80e12 of NVIDIA's first brief; its datasheet prints 75e12, which is the
    clock that drivers report."""
    name = "clock at which multiply-adds of all lanes give the fp32 peak"
    assert float(sc.chip("b200-sxm", overrides="peak_fp32=80e12")[name]) == printed("2.1e9")
    own = float(sc.chip("b200-sxm")[name])
    assert own == pytest.approx(chip("b200-sxm").clock, rel=0.01)


def test_tensor_core_clock_is_1_83_ghz_and_not_the_1_76_of_the_text():
    """1024 FLOPs per cycle and unit, 4 units per core; 1.76 GHz would need 1065 (our erratum)."""
    clock = float(sc.chip("h100-sxm")["clock of the matrix units"])
    assert clock == pytest.approx(1.83e9, rel=1e-3)
    slow = sc.chip("h100-sxm", overrides="clock=1.76e9")
    assert float(slow["FLOPs per cycle of a matrix unit"]) == pytest.approx(1065, abs=1)


# Roofline chapter


@pytest.mark.parametrize(("name", "seconds"), [("h100-sxm", "1.01e-3"), ("tpu-v6e", "1.1e-3")])
def test_roofline_text_time_of_1e12_flops(printed, name, seconds):
    assert sc.kernel("work", 1e12, accelerator=name).ideal == printed(seconds)


@pytest.mark.parametrize(("size", "batch"), [(4096, 136.09), (1024, 226.31)])
def test_roofline_q3_exact_critical_batch_of_int8_weights(size, batch):
    """Printed as a plot only; batch = D F / (2 D F W / C - 2 (D + F)) by hand."""
    ask = lambda m: sc.kernel("matmul", (m, size, size), weights="int8", accelerator="tpu-v5e")
    first = ask(1)["critical batch"].ideal
    assert first == pytest.approx(batch, rel=0, abs=1.0)
    assert ask(int(first)).ideal_binds == "memory"
    assert ask(int(first) + 1).ideal_binds == "compute"


# Quiz 2: a node


def test_quiz_2_q2_bisection_of_a_node_both_ways():
    halves = np.array([[i, (i + 4) % 8] for i in range(8)])
    cost = collective_time("permute", 1e9, halves, catalog.load("dgx-h100"), IDEAL)
    assert 8 * 1e9 / cost.time == pytest.approx(3.6e12)


# Quiz 3: the fat tree


def test_quiz_3_q1_bandwidth_at_every_level_of_1024_gpus():
    pod = catalog.load("dgx-h100", 128)
    assert level_nodes(pod) == {"node": 1, "leaf": 32, "spine": 128}
    assert pod.node_network_bandwidth == 400e9
    assert uplink(pod, "NICs of a node") == 400e9
    assert uplink(pod, "uplinks of a leaf group") == 12.8e12
    units = pod.nodes // 32
    # appendix B and quiz 4 Q4 take 25.6e12, from switches of 1.6 TB/s: half of 64 x 400 Gb/s
    assert units * uplink(pod, "uplinks of a leaf group") == 51.2e12


def test_quiz_3_q2_2048_gpus_need_no_core_layer_and_4096_do():
    assert "core" not in level_nodes(catalog.load("dgx-h100", 256))
    assert level_nodes(catalog.load("dgx-h100", 512))["core"] == 512


def test_quiz_3_q2_the_larger_pods_keep_full_bisection():
    for nodes in (256, 512):
        pod = catalog.load("dgx-h100", nodes)
        names = {"leaf": "uplinks of a leaf group", "spine": "uplinks of a spine layer"}
        for level, size in list(level_nodes(pod).items())[1:-1]:
            assert uplink(pod, names[level]) == size * 400e9


def test_text_a_rack_of_gb200_sends_nine_times_as_much_as_a_node_of_h100():
    racks = catalog.load("gb200-nvl72", 36)
    out = uplink(racks, "NICs of an NVLink domain")
    assert out == 3.6e12
    assert out / catalog.load("dgx-h100").node_network_bandwidth == 9


# Derivation of the collectives between nodes
