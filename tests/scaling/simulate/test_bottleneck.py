"""The bottleneck in words is the largest part of the step."""

from dataclasses import replace

import pytest

from scaling.meshes import catalog
from scaling.profiles.io import profile_of
from scaling.profiles.profile import DispatchFit, Evidence
from scaling.program.ir import Buffer, Collective, Kernel, Program, Wait
from scaling.simulate.step import price
from scaling.simulate.summary import summarize, time_shares

H100 = catalog.load("dgx-h100", nodes=2)
PROFILE = profile_of(H100.accelerator)
BIG = Kernel("m", kind="matmul", flops=2.0 * 8192**3, dtype="bf16", dims=(1, 8192, 8192, 8192))
MOVE = Kernel("k", bytes=1e10)
TINY = Kernel("t", bytes=1.0)
SENT = Collective(
    "g", kind="all-gather", axes=("data", "fsdp"), bytes=2**30, dtype="bf16", asynchronous=False
)


def priced(*schedule, buffers=(), host=0.0):
    program = Program("p", "compiled", {"data": 2, "fsdp": 8}, schedule, buffers)
    dispatch = DispatchFit(host, 0.0, 1e12, 0.0, Evidence("a test", "", "measured"))
    return price(program, H100, replace(PROFILE, dispatch=dispatch))


@pytest.mark.parametrize(
    ("schedule", "host", "words"),
    [
        ((BIG,), 0.0, "compute: kernels limited by arithmetic take 100% of the step"),
        ((MOVE,), 0.0, "memory bandwidth: kernels that move more than they compute take 100%"),
        ((TINY,), 0.0, "overhead: starting kernels that are small for the device takes 100%"),
        ((BIG,), 1.0, "host: the device waits for 99"),
    ],
)
def test_the_largest_part_is_named(schedule, host, words):
    found = summarize(priced(*schedule, host=host)).bottleneck
    assert found.startswith(words[:-3]) if host else found.startswith(words)


def test_communication_names_the_collective_its_size_and_the_link():
    found = summarize(priced(TINY, SENT)).bottleneck
    assert found.startswith("communication: the device waits for it 100% of the step, most for ")
    assert "all-gather over data+fsdp (1 GiB a call, 100%); " in found
    assert found.endswith("GB/s")


def test_waiting_beside_a_larger_part_is_mentioned():
    some = replace(SENT, bytes=2**20)
    found = summarize(priced(MOVE, some)).bottleneck
    assert found.startswith("memory bandwidth") and "% is waiting for communication" in found


def test_memory_comes_first_where_it_does_not_fit():
    buffers = (Buffer("b", 100e9, "activations"),)
    step = priced(replace(BIG, writes=(0,)), buffers=buffers)
    assert (
        summarize(step).bottleneck == "memory: the peak is 21.9 GB above the capacity of a device"
    )


@pytest.mark.parametrize("size", [1e8, 1e12])
def test_a_copy_beside_the_kernels_counts_where_it_is_waited_for(size):
    copy = Kernel("c", kind="copy", bytes=size, asynchronous=True)
    step = priced(copy, BIG, Wait("c"))
    found = time_shares(step)
    assert sum(found.values()) == pytest.approx(1)
    assert found["memory"] == 0 and found["compute"] > 0
    assert found["host"] == pytest.approx(step.timeline.host / step.timeline.total)
    assert (found["host"] > 0) == (size == 1e12)


def test_shares_sum_to_one():
    step = priced(BIG, MOVE, TINY, SENT, host=0.01)
    assert sum(time_shares(step).values()) == pytest.approx(1)
    assert set(time_shares(priced()).values()) == {0.0}
