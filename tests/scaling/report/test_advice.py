"""What to try next, by what stands in the way."""

from dataclasses import replace

import pytest

from scaling.api.request import change_words, command_line
from scaling.meshes.errors import InputError
from scaling.meshes.shape import MeshShape
from scaling.models.accounting.remat import SavedTensors
from scaling.models.config import Moe
from scaling.report.advice import advice as found_advice
from scaling.run import Batch, Sharding
from scaling.simulate.prediction import HiddenCalls
from scaling.simulate.summary import summarize


@pytest.fixture
def prediction(hand_priced):
    return summarize(hand_priced)


@pytest.fixture
def run(toy):
    mesh = MeshShape(data=2, fsdp=4)
    return replace(toy(), mesh=mesh, batch=Batch(global_batch=96, seq_len=16), remat="full")


def advice(*arguments):
    """What `scaling predict` says, without the command below it."""
    with command_line():
        found = found_advice(*arguments)
        return [f"{change_words(one.set, one.mesh)}{one.note}: {one.effect}" for one in found]


def needing(prediction, **parts):
    """The same where memory does not fit."""
    names = ("parameters", "gradients", "optimizer_state", "activations", "temporary")
    sizes = {name: parts.get(name, 0.0) for name in (*names, "communication")}
    memory = replace(
        prediction.memory, peak=sum(sizes.values()), capacity=80e9, fits=False, **sizes
    )
    return replace(prediction, memory=memory)


def waiting(prediction, **changes):
    """The same where most of the step waits for one collective."""
    line = replace(prediction.collectives[0], exposed=9.0, **changes)
    time = replace(prediction.time, compute=1.0, exposed_communication=9.0)
    return replace(prediction, step_time=10.0, time=time, collectives=(line,))


class Trial:
    """Prices every run alike, and keeps what it was asked to price."""

    def __init__(self, prediction, **changes):
        fits = replace(prediction.memory, fits=changes.pop("fits", True), peak=50e9)
        self.prediction = replace(prediction, memory=fits, **changes)
        self.runs = []

    def __call__(self, run):
        self.runs.append(run)
        return self.prediction


def test_there_is_none_without_a_second_pricing(prediction, run):
    assert advice(None, prediction, Trial(prediction)) == []
    assert advice(run, prediction, None) == []
    assert advice(run, prediction, lambda changed: None) == []


def test_what_the_second_pricing_does_not_confirm_is_not_said(prediction, run):
    slower = Trial(prediction, step_time=0.99 * prediction.step_time)
    forms = closed(full=(1e9, 8.0), none=(2e9, 5.0))
    assert advice(run, prediction, slower, forms) == [] and len(slower.runs) == 1
    assert advice(run, prediction, Trial(prediction, step_time=1e-9, fits=False), forms) == []


def test_a_change_that_the_trainer_refuses_is_passed_over(prediction, run):
    def refuse(changed):
        raise InputError("no")

    assert advice(run, prediction, refuse) == []


def test_dropless_experts_are_given_a_capacity_first(prediction, run):
    experts = replace(run, model=replace(run.model, moe=Moe(8, 2, 32)))
    half = Trial(prediction, step_time=prediction.step_time / 2)
    (found,) = advice(experts, prediction, half)
    assert found.startswith("--set model.moe.capacity_factor=1.25 (drops tokens of full experts): ")
    assert half.runs[0].model.moe == Moe(8, 2, 32, capacity_factor=1.25)
    advice(half.runs[0], prediction, again := Trial(prediction))
    assert not [r for r in again.runs if r.model != half.runs[0].model]


def closed(**sizes):
    """Closed forms of policies by their short forms: bytes, and seconds; others take for ever."""

    def estimate(run):
        peak, seconds = sizes.get(str(run.remat).replace(",", "_"), (0.0, 1e9))
        return seconds, peak

    return estimate


def test_free_memory_lets_less_be_recomputed(prediction, run):
    half = Trial(prediction, step_time=prediction.step_time / 2)
    forms = closed(full=(1e9, 8.0), selective=(9e9, 6.0), none=(9e12, 5.0))
    (found,) = advice(run, prediction, half, forms)
    assert found.startswith("--set remat=selective: ") and found.endswith(", 50 GB")
    assert [tried.remat for tried in half.runs] == ["selective"]  # "none" does not fit
    assert advice(run, prediction, half) == []  # no closed form, no comparison
    little = closed(full=(1e9, 8.0), selective=(9e9, 7.9))
    assert advice(run, prediction, Trial(prediction, step_time=1e-9), little) == []


def test_a_crowded_step_is_tried_with_room_for_what_could_be_hidden(prediction, run):
    """Closed forms take hidden calls for given: by them more is recomputed for nothing."""
    run, room = replace(run, remat="none"), prediction.memory.capacity
    forms = closed(none=(0.95 * room, 5.0), selective=(0.93 * room, 5.5), full=(0.4 * room, 6.0))
    memory = replace(prediction.memory, peak=0.95 * room)
    crowded = replace(prediction, memory=memory, hidden_calls=HiddenCalls(0, 17), step_time=8.0)
    (found,) = advice(run, crowded, Trial(prediction, step_time=6.0), forms)
    assert found.startswith("--set remat=full: 6 s a step instead of 8 s")
    calm = replace(crowded, hidden_calls=HiddenCalls(17, 17))
    assert advice(run, calm, Trial(prediction, step_time=6.0), forms) == []


def test_a_pipeline_gathers_its_weights_once_if_that_is_faster(prediction, run):
    run = replace(run, mesh=MeshShape(stage=2, fsdp=4), sharding=Sharding(3))
    (found,) = advice(run, prediction, Trial(prediction, step_time=prediction.step_time / 2))
    assert found.startswith("--set sharding.zero_stage=1: ")
    for mesh, stage in (({"stage": 8}, 3), ({"stage": 2, "fsdp": 4}, None), ({"fsdp": 8}, 3)):
        other = replace(run, mesh=MeshShape(**mesh), sharding=Sharding(stage))
        advice(other, prediction, trial := Trial(prediction))
        assert all(tried.sharding == other.sharding for tried in trial.runs)
    near = replace(prediction.memory, peak=0.95 * prediction.memory.capacity)
    full = replace(prediction, memory=near)
    (found,) = advice(
        replace(run, sharding=Sharding()),
        full,
        Trial(prediction, step_time=prediction.step_time / 2),
    )
    assert found.startswith("--set sharding.zero_stage=3: ")


def test_no_policy_names_what_the_model_does_not_have(prediction, run):
    model, tried = replace(run.model, mlp="gelu"), []

    def forms(changed):
        tried.append(changed.remat)
        return prediction.step_time, prediction.memory.peak

    advice(replace(run, model=model), prediction, Trial(prediction), forms)
    assert SavedTensors(("query", "key", "value", "attention"), ("mlp_up",)) in tried


def test_a_run_that_does_not_fit_is_given_the_fastest_policy_that_does(prediction, run):
    """The closed form is 10 GB short of the prediction: so it is of every policy."""
    run = replace(run, remat="none", batch=replace(run.batch, microbatches=12))  # most of a shard
    much = needing(prediction, parameters=10e9, activations=90e9)
    forms = closed(
        none=(90e9, 5.0),
        selective=(75e9, 6.0),
        query_key_value_attention=(60e9, 7.0),
        full=(20e9, 8.0),
    )
    (found,) = advice(run, much, trial := Trial(prediction), forms)
    assert found.startswith("--set remat=query,key,value,attention: fits in 50 GB, ")
    assert [tried.remat for tried in trial.runs] == [
        SavedTensors(("query", "key", "value", "attention"))
    ]


def test_activations_that_do_not_fit_are_cut_into_enough_microbatches(prediction, run):
    """250 GB in 70 GB of room are 3.6 times too much; 4 divides the 12 sequences of a shard."""
    much = needing(prediction, parameters=10e9, activations=200e9, temporary=50e9)
    fitting = Trial(prediction)
    (found,) = advice(run, much, fitting)
    assert found.startswith("--set batch.microbatches=4: fits in 50 GB, ")
    assert [tried.batch.microbatches for tried in fitting.runs] == [4]


def test_state_that_alone_does_not_fit_is_sharded_further(prediction, run):
    trial = Trial(prediction)
    large = needing(prediction, parameters=30e9, optimizer_state=60e9)
    (found,) = advice(run, large, trial)
    assert found.startswith("--mesh fsdp=8: fits") and trial.runs[0].mesh == MeshShape(fsdp=8)
    assert advice(replace(run, mesh=MeshShape(fsdp=8)), large, trial) == []


@pytest.mark.parametrize(
    ("mesh", "axis", "microbatches", "expected"),
    [
        (MeshShape(fsdp=4, tensor=2), "tensor", 1, "--mesh fsdp=8"),
        (MeshShape(data=2, fsdp=4), "fsdp", 4, "--set batch.microbatches=2"),
        (MeshShape(data=2, fsdp=4), "data+fsdp", 1, "--mesh data=4,fsdp=2"),
    ],
)
def test_waiting_is_shortened_on_the_axis_that_it_is_for(
    prediction, run, mesh, axis, microbatches, expected
):
    run = replace(run, mesh=mesh, batch=replace(run.batch, microbatches=microbatches), remat="none")
    (found,) = advice(run, waiting(prediction, axis=axis), Trial(prediction, step_time=1.0))
    assert found.startswith(f"{expected}: 1 s a step instead of 10 s")


def test_a_bubble_wants_more_microbatches(prediction, run):
    bubble = replace(prediction, step_time=10.0, time=replace(prediction.time, bubble=8.0))
    run = replace(run, mesh=MeshShape(stage=8), remat="none")
    (found,) = advice(run, bubble, Trial(prediction, step_time=1.0))
    assert found.startswith("--set batch.microbatches=2: ")
