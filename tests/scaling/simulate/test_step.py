"""A program priced on a cluster: every step has a cost, and the timeline holds it."""

from dataclasses import replace

import numpy as np
import pytest

from scaling.collectives.cost import collective_time
from scaling.meshes import catalog
from scaling.meshes.errors import InputError
from scaling.profiles.io import ideal, profile_of
from scaling.program.ir import (
    COLLECTIVE_KINDS,
    Branch,
    Collective,
    Kernel,
    Loop,
    Program,
    placed_on,
)
from scaling.simulate.kernels import kernel_time
from scaling.simulate.step import (
    device_groups,
    lost_beside,
    price,
    running,
    running_collectives,
    running_kernels,
)

H100 = catalog.load("dgx-h100")
PROFILE = profile_of(H100.accelerator)
MESH = {"data": 1, "fsdp": 4, "tensor": 2}


def test_every_kernel_and_collective_has_the_cost_of_one_call(hand_step):
    priced = price(hand_step, H100, PROFILE)
    assert set(priced.kernels) == {"dot.1", "norm.1", "adam.1"}
    assert set(priced.collectives) == {"gather.1", "sum.1"}
    dot = hand_step.schedule[0].body[1]
    assert priced.kernels["dot.1"] == kernel_time(dot, H100.accelerator, PROFILE)
    groups = np.array([[0, 2, 4, 6], [1, 3, 5, 7]])
    gather = collective_time("all-gather", 2**26, groups, H100, PROFILE)
    assert priced.collectives["gather.1"] == gather


def test_steps_of_xla_take_longer_for_kernels_beside_collectives_others_do_not(hand_step):
    alone = price(hand_step, H100, replace(PROFILE, interference=None))
    beside = price(hand_step, H100, PROFILE)
    assert beside.kernels == alone.kernels and alone.timeline.total < beside.timeline.total
    other = price(replace(hand_step, is_xla=False), H100, PROFILE)
    assert (other.kernels, other.timeline) == (alone.kernels, alone.timeline)


def test_a_kernel_loses_the_memory_bandwidth_that_a_collective_takes_and_some_cores(hand_step):
    costs = price(hand_step, H100, PROFILE).collectives
    times = {name: cost.time for name, cost in costs.items()}
    lost = lambda times: lost_beside(hand_step, times, H100, PROFILE)
    fit, bandwidth = PROFILE.interference, H100.accelerator.memory_bandwidth
    moved = (3 * 3 + 2) / 4 * 2**26  # of the gather on fsdp=4
    share = moved / times["gather.1"] / bandwidth
    assert lost(times)["gather.1"] == pytest.approx(fit.cores + share)
    slower = lost({name: 2 * seconds for name, seconds in times.items()})
    assert fit.cores < slower["gather.1"] < lost(times)["gather.1"] < fit.most
    assert lost(dict.fromkeys(times, 1e-9))["gather.1"] == fit.most
    assert lost(dict.fromkeys(times, 0.0))["gather.1"] == fit.cores
    assert lost_beside(hand_step, times, H100, replace(PROFILE, interference=None)) == {}


def test_the_timeline_counts_the_calls_of_a_loop(hand_step):
    priced = price(hand_step, H100, replace(PROFILE, interference=None))
    for name, calls in {"dot.1": 3, "norm.1": 3, "gather.1": 3, "sum.1": 1, "adam.1": 1}.items():
        cost = (priced.kernels | priced.collectives)[name]
        assert priced.timeline.by_name[name] == pytest.approx(calls * cost.time)
    assert priced.timeline.events == ()


def test_what_runs_is_listed_once_with_all_its_calls():
    tiny, big = Kernel("tiny", bytes=1.0), Kernel("big", bytes=1e9)
    alone = Collective("alone", asynchronous=False, bytes=8.0)
    sent = replace(alone, name="sent", axes=("fsdp",))
    loop = Loop("l", body=(big, sent), trips=3)
    steps = (big, loop, alone, Branch("b", branches=((tiny,), (big,))))
    found = price(Program("p", "compiled", MESH, steps), H100, PROFILE)
    assert {step.name: calls for step, calls in running(found)} == {
        "big": 5, "sent": 3, "alone": 1
    }  # fmt: skip
    assert running_kernels(found) == [(big, 5)]
    assert running_collectives(found) == [(sent, 3)]


def test_a_product_whose_rate_nobody_knows_refuses_no_program():
    known = Kernel("known", kind="matmul", flops=1e9, bytes=1e6, dtype="bf16", dims=(1, 64, 64, 64))
    odd = replace(known, name="odd", dtype="fp6")
    priced = price(Program("p", "compiled", MESH, (known, odd)), H100, PROFILE)
    assert (priced.kernels["odd"].unpriced, priced.kernels["known"].unpriced) == ("fp6", "")
    assert priced.timeline.total >= priced.kernels["known"].time > 0
    with pytest.raises(InputError, match="'fp6'"):
        price(Program("p", "analytic", MESH, (known, odd)), H100, PROFILE)


def test_groups_are_those_of_the_axes_or_those_that_are_named():
    along = Collective("a", axes=("tensor",))
    program = Program("p", "compiled", MESH, ())
    assert device_groups(along, program, H100).tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    both = Collective("a", axes=("fsdp", "tensor"))
    assert device_groups(both, program, H100).tolist() == [list(range(8))]
    named = Collective("a", groups=((0, 3), (1, 2)))
    assert device_groups(named, program, H100).tolist() == [[0, 3], [1, 2]]


def test_groups_are_those_of_the_devices_that_partitions_lie_on():
    turned = placed_on(Program("p", "compiled", MESH, ()), (0, 4, 1, 5, 2, 6, 3, 7))
    along = Collective("a", axes=("tensor",))
    assert device_groups(along, turned, H100).tolist() == [[0, 4], [1, 5], [2, 6], [3, 7]]
    named = Collective("a", groups=((0, 3), (1, 2)))
    assert device_groups(named, turned, H100).tolist() == [[0, 5], [4, 1]]
    assert placed_on(turned, range(8)).device_ids == ()


@pytest.mark.parametrize("kind", COLLECTIVE_KINDS)
def test_turned_devices_cost_what_swapped_axes_cost(kind):
    """`wide` crosses the nodes, whether the order of the devices says so or that of the axes."""
    cluster = catalog.load("dgx-h100", nodes=4)
    straight, turned = {"wide": 4, "near": 8}, {"near": 8, "wide": 4}
    ids = np.arange(32).reshape(4, 8).T.ravel().tolist()
    for axis in straight:
        called = (Collective("c", kind=kind, axes=(axis,), bytes=2**26, asynchronous=False),)
        plain = Program("p", "compiled", straight, called)
        other = placed_on(Program("p", "compiled", turned, called), ids)
        costs = [price(p, cluster, PROFILE).collectives["c"].time for p in (plain, other)]
        assert costs[0] == costs[1]


def test_a_collective_among_unnamed_groups_is_priced_by_its_devices():
    named = Collective("a", kind="all-gather", groups=((0, 2, 4, 6), (1, 3, 5, 7)), bytes=2**26)
    along = Collective("b", kind="all-gather", axes=("fsdp",), bytes=2**26)
    priced = price(
        Program("p", "compiled", MESH, (replace(named, asynchronous=False),)), H100, PROFILE
    )
    other = price(
        Program("p", "compiled", MESH, (replace(along, asynchronous=False),)), H100, PROFILE
    )
    assert priced.timeline.total == pytest.approx(other.timeline.total)


def test_a_permute_is_priced_by_its_pairs():
    """Half of all places on, ten pairs share the network of a host; of a ring one pair does."""
    cluster = catalog.load("rtx3090-10", 2)
    ring = Collective("ring", kind="permute", axes=("data",), bytes=2**28, asynchronous=False)
    far = replace(ring, name="far", groups=tuple((i, (i + 10) % 20) for i in range(20)))
    near = replace(ring, name="near", groups=tuple((i, i ^ 1) for i in range(20)))
    program = Program("p", "compiled", {"data": 20}, (ring, far, near))
    found = price(program, cluster, ideal()).collectives
    levels = {name: cost.level for name, cost in found.items()}
    assert levels == {"ring": "leaf", "far": "leaf", "near": "node"}
    assert found["far"].lower_bound == pytest.approx(10 * found["ring"].lower_bound)
