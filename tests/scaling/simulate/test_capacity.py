"""A program fits if XLA's pool holds it, and the pool leaves room for the context and NCCL."""

import numpy as np
import pytest

from scaling.meshes import catalog
from scaling.profiles.io import profile_of
from scaling.program.ir import Buffer, Collective, Kernel, Program
from scaling.simulate.capacity import (
    COMMUNICATOR,
    CONTEXT,
    NCCL_BUFFERS,
    NCCL_PAIR_BUFFERS,
    RESERVE,
    bytes_in_use,
    capacity_of,
)
from scaling.simulate.step import price
from scaling.simulate.summary import summarize

H100 = catalog.load("dgx-h100")
USABLE = H100.accelerator.usable_memory


def program(*kinds, bytes_=0.0):
    buffers = (Buffer("b", bytes_, "activations"),)
    sent = [Collective(k, kind=k, axes=("fsdp",), bytes=1e6, asynchronous=False) for k in kinds]
    return Program("p", "compiled", {"fsdp": 8}, (Kernel("k", writes=(0,)), *sent), buffers)


def test_on_a_large_gpu_the_pool_is_the_limit():
    found = capacity_of(H100, program("all-gather", "all-to-all"))
    assert found.bytes == pytest.approx(0.92 * USABLE)
    assert found.source == "0.92 of the 84.9 GB that the driver reports, the share of XLA's pool"


@pytest.mark.parametrize(
    ("kinds", "buffers"),
    [
        (("all-reduce",), NCCL_BUFFERS),
        (("all-reduce", "all-to-all"), NCCL_PAIR_BUFFERS),
    ],
)
def test_on_a_small_gpu_the_context_and_nccl_leave_less_than_the_pool(kinds, buffers):
    cluster = catalog.load("rtx4090-8")
    usable = cluster.accelerator.usable_memory
    found = capacity_of(cluster, program(*kinds))
    assert found.bytes == usable - CONTEXT - buffers < 0.92 * usable
    assert "less 1.06 GB of CUDA's context and" in found.source


def test_without_collectives_nccl_has_no_buffers():
    cluster = catalog.load("rtx4090-8")
    assert capacity_of(cluster, program()).bytes == 0.92 * cluster.accelerator.usable_memory


def test_what_the_driver_reports_but_the_pool_lacks_does_not_fit():
    for share, fits in ((0.91, True), (0.93, False)):
        step = price(program(bytes_=share * USABLE), H100, profile_of(H100.accelerator))
        found = summarize(step)
        assert found.memory.fits is fits
        assert found.memory.capacity == pytest.approx(0.92 * USABLE)
        assert found.capacity_source.startswith("0.92 of the 84.9 GB")


def test_devices_of_a_cpu_have_all_of_their_memory():
    host = catalog.load("host")
    assert capacity_of(host, program("all-reduce")).bytes == host.accelerator.usable_memory
    assert bytes_in_use(host, program("all-reduce"), 1e9, "jax") is None


def test_the_driver_shows_the_pool_whatever_a_jax_program_needs():
    shown = [bytes_in_use(H100, program("all-gather"), peak, "jax") for peak in (1e9, 70e9)]
    assert shown == [0.92 * USABLE + CONTEXT + NCCL_BUFFERS] * 2


def test_other_software_has_no_pool_and_a_communicator_for_each_group():
    step = program("all-gather", "all-reduce")  # one group; the other is that of all devices
    left = USABLE - CONTEXT - 2 * COMMUNICATOR
    assert capacity_of(H100, step, "megatron").bytes == left > 0.92 * USABLE
    shown = bytes_in_use(H100, step, 40e9, "megatron")
    assert shown == pytest.approx(RESERVE["megatron"] * 40e9 + CONTEXT + 2 * COMMUNICATOR)
    assert bytes_in_use(H100, step, USABLE, "megatron") == USABLE
    assert bytes_in_use(H100, program(), 0.0, "megatron") == CONTEXT


def test_the_driver_shows_more_than_what_is_allocated():
    for software in ("jax", *RESERVE):
        peak = np.linspace(0, capacity_of(H100, program("all-gather"), software).bytes, 20)
        shown = bytes_in_use(H100, program("all-gather"), peak, software)
        shown = np.broadcast_to(shown, peak.shape)
        assert np.all(shown >= peak) and np.all(np.diff(shown) >= 0) and np.all(shown <= USABLE)
