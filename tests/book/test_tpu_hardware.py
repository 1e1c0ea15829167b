"""TPU chapter: what a chip, a host and a pod hold, and times of memory and matmuls.

"How to Scale Your Model" (jax-ml/scaling-book, tpus.md, sharding.md and applied-inference.md,
2026-06).
"""

import pytest

import scaling as sc
from scaling.meshes import catalog
from scaling.meshes.cluster import torus_shape
from scaling.profiles.shipped import TPU_VECTOR

GIB = 2**30


def read(bytes, name, **options):
    """Seconds to read so many bytes from one chip's memory, or from that of its host."""
    return sc.kernel("read", bytes, accelerator=name, **options).ideal


def test_q1_loading_200b_parameters_on_32_v4(printed):
    """The book's memory has 1.23e12 bytes/s, Google's page 1.2e12: 10.2 and 10.4 ms."""
    assert read(200e9 * 2, "tpu-v4", devices=32) == printed("10e-3")


@pytest.mark.parametrize(
    ("name", "hosts", "shape", "flops", "memory"),
    [
        ("tpu-v5e", 32, (16, 16), "5.1e16", "4e12"),
        ("tpu-v5p", 2240, (16, 20, 28), "4.1e18", "860e12"),
    ],
)
def test_q2_what_a_pod_has(printed, name, hosts, shape, flops, memory):
    """Memory: the book counts 16 and 96 GB a chip, which are GiB."""
    pod = catalog.load(name, hosts)
    assert torus_shape(pod) == shape
    # 256 x 197e12 is 5.04e16; the book takes 2e14 for a v5e
    rounding = 2e14 / 197e12 - 1 if name == "tpu-v5e" else 0.0
    whole = sc.chip(name, devices=pod.devices)
    words = f"of {pod.devices:,} devices"
    assert float(whole[f"dense bf16 peak {words}"]) == printed(flops, rounding)
    assert float(whole[f"memory {words}"]) / GIB * 1e9 == printed(memory)


def test_q3_batch_of_weights_that_come_over_pcie_on_v6e(printed):
    """Printed 9.2e14 / 1.6e10 = 57,500: the catalogue has a peak of 918e12."""
    answer = sc.kernel("matmul", (1, 8192, 8192), accelerator="tpu-v6e", source="16GB/s")
    alone = answer["critical batch by the weights alone"]
    assert float(alone) == printed("57500", inputs=920 / 918 - 1)


@pytest.mark.parametrize(("faster", "batch", "book"), [(1, 259.25, "267"), (22, 10.96, "11")])
def test_q4_critical_batch_of_an_int8_matmul_from_memory_and_from_vmem(
    printed, faster, batch, book
):
    """int8 [B, 4096] x [4096, 16384] on a v5e; VMEM is 22 times as fast as its memory.

    267 comes from 2 x 4096 x 16384 = 1.34e8 operations per token, rounded to 1.3e8.
    """
    memory = {"accelerator": "tpu-v5e", "dtype": "int8", "bandwidth": f"{faster}x"}
    ask = lambda m: sc.kernel("matmul", (m, 16384, 4096), **memory)
    first = ask(1)["critical batch"].ideal
    assert first == pytest.approx(batch, rel=0.005, abs=1)
    assert ask(int(first)).ideal_binds == "memory"
    assert ask(int(first) + 1).ideal_binds == "compute"
    assert first == printed(book, inputs=2**27 / 1.3e8 - 1)


def test_q6_reading_the_matrix_and_multiplying_on_one_chip(printed):
    """int8 [131072, 131072] by bf16 [131072, 8]; the book rounds 17.2e9 bytes to 16e9."""
    size = 131072
    assert read(size**2, "tpu-v5e") == printed("20e-3", inputs=2**34 / 16e9 - 1)
    product = sc.kernel("matmul", (8, size, size), weights="int8", accelerator="tpu-v5e")
    assert product["compute time"].ideal == printed("1.4e-3")


def test_q6_from_host_memory_over_pcie(printed):
    """Half a slice of 4 x 4 hangs on each of two hosts, a PCIe link per chip."""
    assert read(16e9, "tpu-v5e", devices=16, source="host") == printed("63e-3", cut=True)


def test_appendix_a_vector_rate_of_a_v5p_core(printed):
    both = float(sc.chip("tpu-v5p")["vector rate"])
    assert both / 2 == printed("7e12")
    assert both == pytest.approx(TPU_VECTOR * catalog.accelerator("tpu-v5p").peak("bf16"))


def test_applied_inference_memory_and_matrix_time_of_a_4x8_slice(printed):
    """One matmul of Llama 3 70B's MLP, batch 64, over 32 v5e."""
    weights = 8192 * 28672
    assert read(2 * weights, "tpu-v5e", devices=32) == printed("18e-6")
    product = sc.kernel("matmul", (64, 28672, 8192), accelerator="tpu-v5e", devices=32)
    assert product["compute time"].ideal == printed("4e-6", cut=True)  # 4.77
