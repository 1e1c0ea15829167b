"""What other software sends in which format, and beside what: options of a run, recipes' values."""

import itertools
import math
from collections import defaultdict
from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaling.analytic.memory import buffers
from scaling.analytic.program import analytic_program
from scaling.analytic.saved import activations
from scaling.analytic.software import traits_of
from scaling.analytic.step import step_sizes
from scaling.meshes import catalog
from scaling.meshes.errors import InputError
from scaling.meshes.shape import MeshShape
from scaling.models.config import Mla, ModelConfig, Moe
from scaling.profiles.io import profile_of
from scaling.program.ir import Collective, Loop, collectives
from scaling.run import Batch, Module, Overlap, Pipeline, Precision, Run, Sharding
from scaling.simulate.step import price

MODEL = ModelConfig(51_200, d_model=2048, n_layers=24, n_heads=16, d_ff=8192)
RUN = Run(
    "toy",
    MODEL,
    Batch(512, 2048, 16),
    sharding=Sharding(zero_stage=1),
    precision=Precision("fp8", parameters="bf16"),
    pipeline=Pipeline("interleaved", 3),
    software="megatron",
)
SHAPE = MeshShape(fsdp=16, stage=4, tensor=2)
KINDS = "all-reduce", "all-gather"


def sent(kind, **formats):
    run = replace(RUN, precision=replace(RUN.precision, **formats))
    return moved(analytic_program(run, SHAPE).schedule)[kind]


def seconds(run, shape=SHAPE):
    cluster = catalog.load("dgx-h100", -(-shape.devices // 8))
    program = analytic_program(run, shape)
    return float(price(program, cluster, profile_of(cluster.accelerator)).timeline.total)


def moved(block, times=1.0):
    """Bytes of a step over fsdp, by kind."""
    found = defaultdict(float)
    for op in block:
        if isinstance(op, Loop):
            for key, size in moved(op.body, times * float(op.trips)).items():
                found[key] += size
        elif isinstance(op, Collective) and op.axes == ("fsdp",):
            found[op.kind] += times * float(op.part * op.bytes)
    return found


def test_gradients_travel_in_bf16_as_in_the_recipes_unless_a_run_says_otherwise():
    assert sent("reduce-scatter") == sent("reduce-scatter", reduce="bf16")
    assert sent("reduce-scatter", reduce="fp32") == 2 * sent("reduce-scatter")
    assert sent("reduce-scatter", reduce="fp32", gradients="bf16") == sent("reduce-scatter")


def test_fp8_weights_travel_as_fp8_but_for_tables():
    assert sent("all-gather", compute="bf16") == sent("all-gather", gather="bf16")
    tables = 2 * MODEL.vocab_size * MODEL.d_model / SHAPE.tensor  # the head's, in bf16
    layers = sent("all-gather", gather="bf16") - tables
    assert sent("all-gather") == pytest.approx(layers / 2 + tables)


@settings(max_examples=15, deadline=None)
@given(st.sampled_from([2, 4, 8]), st.sampled_from([1, 3]), st.sampled_from([2, 4, 16]))
def test_weights_move_once_whatever_they_run_beside(stages, virtual, microbatches):
    run = replace(RUN, batch=Batch(512, 2048, microbatches))
    shape = MeshShape(fsdp=16, stage=stages)
    plain = analytic_program(replace(run, pipeline=Pipeline()), shape)
    turns = analytic_program(replace(run, pipeline=Pipeline("interleaved", virtual)), shape)
    assert moved(turns.schedule) == pytest.approx(moved(plain.schedule))


@settings(max_examples=10, deadline=None)
@given(st.sampled_from(["tensor", "weights", "pipeline"]), st.sampled_from([1, 3]), st.booleans())
def test_nothing_is_faster_without_its_overlap(what, virtual, is_deepspeed):
    run = replace(
        RUN,
        pipeline=Pipeline("interleaved", virtual),
        precision=Precision(parameters="bf16"),
        software="deepspeed" if is_deepspeed else "megatron",
    )
    off, on = (seconds(replace(run, overlap=Overlap(**{what: value}))) for value in (False, True))
    assert on <= off * (1 + 1e-9)
    assert seconds(run) == pytest.approx(off if is_deepspeed else on)


def test_virtual_stages_communicate_beside_one_another():
    """Few microbatches hide little: MLPerf Training v3.1, GPT-3 on 8,192 H100."""
    run, shape = replace(RUN, batch=Batch(4096, 2048, 8)), MeshShape(fsdp=512, stage=8)
    apart = replace(run, overlap=Overlap(pipeline=False))
    assert seconds(run, shape) < 0.97 * seconds(apart, shape)


def test_the_trainer_has_no_such_options():
    with pytest.raises(InputError, match="other software"):
        replace(RUN, software="jax", overlap=Overlap(tensor=True))
    plain = replace(RUN, software="jax", precision=Precision())
    for changes in (
        {"precision": Precision(gather="fp8")},
        {"precision": Precision(dispatch="fp8")},
        {"overlap": Overlap(experts=True)},
        {"dispatcher": "deepep"},
        {"recompute": ("layernorm",), "remat": "selective"},
        {"pipeline": Pipeline(scatter=True)},
    ):
        with pytest.raises(InputError, match="other *software"):
            replace(plain, **changes)


NANOTRON = replace(
    RUN,
    software="nanotron",
    precision=Precision(parameters="bf16"),
    pipeline=Pipeline(),
    sharding=Sharding(zero_stage=1, sequence_parallel=True),
)


def test_nanotrons_zero_1_all_reduces_whole_gradients_and_gathers_weights_beside_nothing():
    found = list(collectives(analytic_program(NANOTRON, MeshShape(fsdp=16))))
    calls = [(op, n) for op, n in found if op.axes == ("fsdp",)]
    assert {op.kind for op, _ in calls} == {"all-reduce", "all-gather"}
    assert not any(op.asynchronous for op, _ in calls)
    total = {kind: sum(op.bytes * n for op, n in calls if op.kind == kind) for kind in KINDS}
    assert total["all-reduce"] == pytest.approx(2 * total["all-gather"])  # float32, bf16


def test_its_zero_1_copies_each_tensor_of_each_rank_by_an_operation_of_its_own():
    late = lambda shape: [
        op.issue for op, _ in analytic_program(NANOTRON, shape).operations if getattr(op, "late", 0)
    ]
    assert late(MeshShape(fsdp=16)) == [pytest.approx(16 * (6 * 24 + 3) * 8e-6)]
    assert not any(late(MeshShape(data=16)))


def test_its_plain_replicas_are_summed_beside_the_last_backward_pass():
    found = list(collectives(analytic_program(NANOTRON, MeshShape(data=16))))
    layers = [op for op, _ in found if op.axes == ("data",) and "layers" in op.origin.layer]
    assert all(op.apart for op in layers)
    beside = [op.part for op in layers if op.asynchronous]  # nothing is beside the last layer's
    assert beside and beside == [pytest.approx(1 - 1 / MODEL.n_layers)] * len(beside)


@pytest.mark.parametrize(("stages", "late"), [(1, 0.0), (4, 2 * 0.25)])
def test_a_host_takes_its_time_for_each_of_ten_collectives_of_a_layer(stages, late):
    """Four forward, four backward, two that gather again; more beside a pipeline over nodes."""
    traits = replace(traits_of("nanotron"), launch=0.0, collective=1.0, crossing=0.25)
    run = replace(NANOTRON, batch=Batch(16, 512, 16))
    times = []
    for layers in (24, 48):
        longer = replace(run, model=replace(MODEL, n_layers=layers))
        shape, place = MeshShape(stage=stages, tensor=2), catalog.load("dgx-h100")
        program = analytic_program(longer, shape, traits=traits, node=4)
        times.append(float(price(program, place, profile_of(place.accelerator)).timeline.total))
    trips = 16 / stages + 1 - 1 / stages  # of a layer: microbatches, and the bubble
    assert times[1] - times[0] == pytest.approx(24 * trips * 10 * (1 + late), rel=0.01)


EXPERTS = replace(
    RUN,
    model=replace(MODEL, moe=Moe(64, 4, d_ff_expert=2048)),
    precision=Precision(parameters="bf16"),
    pipeline=Pipeline(),
)
SPREAD = MeshShape(stage=2, expert=16)  # experts on two nodes


def exchanged(run, shape=SPREAD):
    """Bytes of each exchange of a pass."""
    found = collectives(analytic_program(run, shape))
    return {op.name: float(op.bytes) for op, _ in found if "tokens of experts" in op.name}


def test_a_microbatch_exchanges_its_tokens_beside_the_layers_of_another():
    beside = replace(EXPERTS, overlap=Overlap(experts=True))
    assert seconds(beside, SPREAD) < 0.9 * seconds(EXPERTS, SPREAD)
    parts = MeshShape(stage=2, expert=8, tensor=2)  # whose sums over tensor wait for no exchange
    assert seconds(beside, parts) < 0.9 * seconds(EXPERTS, parts)
    sums = {run: sum(op.bytes * op.part * n for op, n in collectives(analytic_program(run, SPREAD)))
            for run in (EXPERTS, beside)}  # fmt: skip
    assert sums[beside] == pytest.approx(sums[EXPERTS])
    one = replace(EXPERTS, batch=Batch(512, 2048, 1))  # with nothing beside
    assert seconds(replace(one, overlap=Overlap(experts=True)), SPREAD) == seconds(one, SPREAD)
    whole = MeshShape(stage=2, fsdp=8)  # which exchanges none
    kept, plain = (activations(step_sizes(run, whole)) for run in (beside, EXPERTS))
    assert kept == plain


@pytest.mark.parametrize(("groups", "chosen"), [(1, 1), (2, 1), (2, 2), (4, 2), (4, 1), (8, 3)])
def test_deepep_sends_a_token_once_to_each_node_that_has_an_expert_of_it(groups, chosen):
    """By counting every choice of groups: how often four experts of them are all on one node."""
    moe = replace(EXPERTS.model.moe, n_groups=groups, groups_per_token=chosen)
    run = replace(EXPERTS, model=replace(MODEL, moe=moe))
    rows, tokens = exchanged(run), exchanged(replace(run, dispatcher="deepep"))
    size, counted = 64 // groups, []
    for choice in itertools.combinations(range(groups), chosen):
        first = sum(group * size + i < 32 for group in choice for i in range(size))  # on that node
        others = chosen * size - first
        alone = math.comb(first, 4) + math.comb(others, 4)
        counted.append(2 - alone / math.comb(first + others, 4))
    copies = sum(counted) / len(counted)
    assert tokens == pytest.approx({name: size * copies / 4 for name, size in rows.items()})
    inside = MeshShape(stage=2, expert=8)
    assert exchanged(run, inside) == exchanged(replace(run, dispatcher="deepep"), inside)


def test_tokens_are_dispatched_in_fp8_with_their_scales_and_combined_in_bf16():
    run = replace(EXPERTS, precision=replace(EXPERTS.precision, dispatch="fp8"))
    whole = exchanged(EXPERTS)
    for name, size in exchanged(run).items():
        is_dispatch = name.startswith(("forward experts out", "backward experts back"))
        share = (1 + 4 / 128) / 2 if is_dispatch else 1
        assert size == pytest.approx(share * whole[name])


def test_modules_that_are_computed_again_cost_time_and_save_memory():
    latent = replace(MODEL, moe=Moe(64, 4, d_ff_expert=2048), mla=Mla(512, 256, 128, 64, 128))
    run = replace(EXPERTS, model=latent, remat="selective")
    found = []
    for modules in ((), ("layernorm",), ("layernorm", "moe_act"), get_args(Module)):
        one = replace(run, recompute=modules)
        found.append((seconds(one, SPREAD), -float(activations(step_sizes(one, SPREAD)))))
    assert found == sorted(found) and len({*found}) == len(found)
    none = replace(run, remat="none")
    assert found[0][0] == pytest.approx(seconds(none, SPREAD))


def test_layers_with_experts_alone_are_of_the_stages_behind_the_first():
    """61 layers on 16 stages, the first three dense: no stage has five."""
    run = replace(EXPERTS, model=replace(MODEL, n_layers=61, moe=Moe(64, 4, first_dense_layers=3)))
    step = step_sizes(run, MeshShape(stage=16))
    assert [(moe, step.worked(n)) for moe, n in step.layer_kinds] == [(False, 0), (True, 4)]
    step = step_sizes(run, MeshShape())
    assert [(moe, step.worked(n)) for moe, n in step.layer_kinds] == [(False, 3), (True, 58)]


def test_stages_send_a_part_for_each_device_of_tensor_and_gather_them():
    run = replace(RUN, precision=Precision(), pipeline=Pipeline(scatter=True))
    shape = MeshShape(stage=4, tensor=8)

    def between(run):
        found = collectives(analytic_program(run, shape))
        return {op.kind: float(op.bytes) for op, _ in found if "stream between" in op.name}

    stream = 512 / 16 * 2048 * 2048 * 2
    assert between(run) == {"permute": stream / 8, "all-gather": stream}
    own_tokens = replace(run, sharding=Sharding(zero_stage=1, sequence_parallel=True))
    assert between(own_tokens) == {"permute": stream / 8}
    assert between(replace(run, pipeline=Pipeline())) == {"permute": stream}


def test_devices_of_dualpipe_that_hold_the_same_stages_sum_their_gradients():
    """Whole among replicas; where ZeRO shares out the optimizer's state, each updates a half."""
    plain = replace(RUN, precision=Precision(), pipeline=Pipeline())
    dual = replace(plain, pipeline=Pipeline("dualpipe"))

    def sent(shape):
        bytes = defaultdict(float)
        for op, n in collectives(analytic_program(dual, shape)):
            if "stream" not in op.name:
                bytes[op.kind] += float(op.bytes * op.part * n)
        return bytes

    def state_of_weights(run, shape):
        table = buffers(step_sizes(run, shape))
        return float(table["optimizer state"].bytes / table["parameters"].bytes)

    copies, shards = MeshShape(stage=4, data=2), MeshShape(stage=4, fsdp=2)
    assert sent(copies)["permute"] == pytest.approx(sent(copies)["all-reduce"])
    assert state_of_weights(dual, copies) == pytest.approx(state_of_weights(plain, copies))
    halves = sent(shards)["reduce-scatter"] / 4 + sent(shards)["all-gather"] / 4
    assert sent(shards)["permute"] == pytest.approx(halves)
    assert state_of_weights(dual, shards) == pytest.approx(state_of_weights(plain, shards) / 2)
