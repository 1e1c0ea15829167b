"""A program fits if XLA's pool holds it, and the pool leaves room for the context and NCCL."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.meshes import catalog
from scaling.profiles.io import profile_of
from scaling.program.ir import Buffer, Collective, Kernel, Program
from scaling.simulate.capacity import (
    COMMUNICATOR,
    CONTEXT,
    GATHERED,
    NCCL_BUFFERS,
    NCCL_NETWORK,
    NCCL_PEER,
    NEEDED,
    RESERVE,
    RETRIES,
    bytes_in_use,
    capacity_of,
    demand_of,
    fit_probability,
    least_share,
    nccl_buffers,
    needed_bytes,
    slower,
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
        (("all-to-all",), 3.28e9),
        (("all-reduce", "all-to-all"), NCCL_BUFFERS + 3.28e9),
        (("all-reduce", "permute"), NCCL_BUFFERS + 3.28e9 / 7),
    ],
)
def test_on_a_small_gpu_the_context_and_nccl_leave_less_than_the_pool(kinds, buffers):
    cluster = catalog.load("rtx4090-8")
    usable = cluster.accelerator.usable_memory
    found = capacity_of(cluster, program(*kinds))
    assert found.bytes == usable - CONTEXT - buffers < 0.92 * usable
    assert "less 1.06 GB of CUDA's context and" in found.source


def over(*calls, **mesh):
    """A program with calls (kind, axes) on a mesh."""
    sent = [
        Collective(f"{i}", kind=kind, axes=axes, bytes=1e6) for i, (kind, axes) in enumerate(calls)
    ]
    return Program("p", "compiled", mesh, tuple(sent))


def test_buffers_follow_communicators_and_peers_and_not_the_ranks_of_a_ring():
    ring = ("all-gather", ("fsdp",))
    for ranks in (2, 8, 16_384):
        assert nccl_buffers(over(ring, ring, fsdp=ranks)) == NCCL_BUFFERS
    more = over(
        ring, ("all-reduce", ("tensor",)), ("all-reduce", ("data",)), fsdp=8, tensor=4, data=2
    )
    assert nccl_buffers(more) == NCCL_BUFFERS + 2 * COMMUNICATOR
    pairs = lambda ranks: nccl_buffers(over(("all-to-all", ("expert",)), expert=ranks))
    assert [pairs(n) / NCCL_PEER for n in (1, 2, 4, 8)] == pytest.approx([0, 1, 3, 7])
    assert pairs(64) == pairs(4096) == pytest.approx(7 * NCCL_PEER + NCCL_NETWORK)
    two = over(("all-to-all", ("expert",)), ("permute", ("stage",)), expert=4, stage=2)
    assert nccl_buffers(two) == pytest.approx(4 * NCCL_PEER)


def test_buffers_of_arrays_are_those_of_each_configuration():
    calls = ("all-gather", ("fsdp",)), ("all-reduce", ("tensor",)), ("all-to-all", ("expert",))
    sizes = [(1, 1, 1), (8, 1, 1), (8, 4, 1), (4, 2, 16), (1, 1, 4)]
    axes = dict(
        zip(("fsdp", "tensor", "expert"), map(np.array, zip(*sizes, strict=True)), strict=True)
    )
    one = [nccl_buffers(over(*calls, fsdp=f, tensor=t, expert=e)) for f, t, e in sizes]
    assert nccl_buffers(over(*calls, **axes)) == pytest.approx(np.array(one))
    assert one[0] == 0 < one[1] < one[2] < one[3]


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


@given(st.sampled_from([*RESERVE]), st.floats(0.01, 0.99), st.floats(0, 0.9), st.floats(1e9, 1e12))
def test_what_is_reserved_at_a_risk_fits_with_the_probability_that_it_leaves(
    software, risk, stored, peak
):
    step = replace(program(), buffers=(Buffer("s", stored * peak, "parameters", True),))
    needed = needed_bytes(step, peak, software, risk)
    assert fit_probability(step, peak, needed, software) == pytest.approx(1 - risk, abs=1e-6)
    peaks = np.linspace(peak, 3 * peak, 9)
    assert np.all(np.diff(fit_probability(step, peaks, needed, software)) <= 0)


def test_gathers_over_tensor_take_more_unless_a_pipeline_holds_up_the_host():
    sizes = {"tensor": np.array([1, 2, 8, 8]), "stage": np.array([1, 1, 1, 2])}
    step = replace(program(), mesh=sizes)
    found = demand_of(step, "nanotron")
    assert list(found.median) == [d.median for d in (NEEDED, GATHERED, GATHERED, NEEDED)]
    assert least_share("nanotron", 0.05) == min(found.at(0.05))


def test_a_step_near_the_edge_waits_for_its_allocator():
    room = np.linspace(1.05, 2.0, 40)
    found = slower(program(), 40e9, 40e9 * room, "nanotron")
    assert np.all(np.diff(found) <= 0)
    assert found[0] == pytest.approx(RETRIES, rel=0.01) and found[-1] == pytest.approx(1)
    assert slower(program(), 40e9, 40e9, "jax") == 1


def test_a_step_whose_weights_fill_the_device_does_not_fit():
    step = replace(program(), buffers=(Buffer("s", 2e9, "parameters", True),))
    assert fit_probability(step, 2e9, 1e9, "megatron") == 0


def test_a_program_of_xla_fits_or_it_does_not():
    peaks = np.array([0.0, 1e9, 1e9 + 1])
    assert fit_probability(program(), peaks, 1e9, "jax").tolist() == [1.0, 1.0, 0.0]
    assert needed_bytes(program(), 1e9, "jax", 0.3) == 1e9
