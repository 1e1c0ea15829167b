"""What to try next, by what stands in the way."""

from dataclasses import replace

import pytest

from scaling.meshes import catalog
from scaling.meshes.shape import MeshShape
from scaling.profiles.io import profile_of
from scaling.report.advice import advice
from scaling.run import Batch
from scaling.simulate.step import price
from scaling.simulate.summary import summarize

H100 = catalog.load("dgx-h100")


@pytest.fixture
def prediction(hand_step):
    return summarize(price(hand_step, H100, profile_of(H100.accelerator)))


@pytest.fixture
def run(toy):
    mesh = MeshShape(data=2, fsdp=4)
    return replace(toy(), mesh=mesh, batch=Batch(global_batch=96, seq_len=16), remat="full")


def needing(prediction, **owners):
    """The same where memory does not fit."""
    names = ("parameters", "gradients", "optimizer_state", "activations", "temporary")
    held = {name: owners.get(name, 0.0) for name in (*names, "communication")}
    memory = replace(prediction.memory, peak=sum(held.values()), capacity=80e9, fits=False, **held)
    return replace(prediction, memory=memory)


def waiting(prediction, **changes):
    """The same where most of the step waits for one collective."""
    line = replace(prediction.collectives[0], exposed=9.0, **changes)
    time = replace(prediction.time, compute=1.0, exposed_communication=9.0)
    return replace(prediction, step_time=10.0, time=time, collectives=(line,))


def test_there_is_none_for_a_step_that_is_not_ours(prediction):
    assert advice(prediction, None) == []


def test_state_that_alone_does_not_fit_has_to_be_sharded(prediction, run):
    (found,) = advice(needing(prediction, parameters=30e9, optimizer_state=60e9), run)
    assert found.startswith("shard parameters and optimizer state further")


def test_activations_that_do_not_fit_are_cut_into_enough_microbatches(prediction, run):
    """250 GB in 70 GB of room are 3.6 times too much; 4 divides the 12 sequences of a shard."""
    much = needing(prediction, parameters=10e9, activations=200e9, temporary=50e9)
    assert advice(much, run) == [
        "about 4 batch.microbatches (now 1): activations and temporaries are those of one"
    ]
    already = replace(run, batch=replace(run.batch, microbatches=2))
    assert advice(much, already)[0].startswith("about 12 batch.microbatches (now 2)")


def test_recomputing_more_comes_first(prediction, run):
    much = needing(prediction, activations=100e9)
    first, second = advice(much, replace(run, remat="none"))
    assert first == "remat 'selective' keeps fewer activations"
    assert second.startswith("about 2 batch.microbatches")
    assert advice(much, replace(run, remat="selective"))[0].startswith("remat 'full'")


def test_too_few_sequences_for_more_microbatches_want_a_smaller_batch(prediction, run):
    (found,) = advice(needing(prediction, activations=2e12), run)
    assert found.startswith("a smaller batch.global_batch or batch.seq_len")


def test_tensor_across_nodes_belongs_inside(prediction, run):
    (found,) = advice(waiting(prediction, axis="tensor", level="leaf"), run)
    assert found.startswith("keep tensor inside a node")
    (found,) = advice(waiting(prediction, axis="tensor", level="node"), run)
    assert found == "a smaller tensor axis, with more fsdp"


def test_weights_gathered_by_every_microbatch_want_fewer(prediction, run):
    many = replace(run, batch=replace(run.batch, microbatches=4))
    (found,) = advice(waiting(prediction, axis="fsdp"), many)
    assert found.startswith("fewer batch.microbatches than 4")
    (found,) = advice(waiting(prediction, axis="data+fsdp"), run)
    assert found.startswith("more tokens on each device")


def test_free_memory_lets_less_be_recomputed(prediction, run):
    assert advice(prediction, run) == [
        "remat 'selective' recomputes less; 86% of the memory is free"
    ]
    assert advice(prediction, replace(run, remat="none"))[0].startswith("--trace")


def test_small_kernels_want_more_to_do(prediction, run):
    slow = replace(prediction, bottleneck="overhead: starting kernels ...")
    assert "larger batch.global_batch" in advice(slow, replace(run, remat="none"))[0]
