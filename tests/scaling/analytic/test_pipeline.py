"""What a pipeline has to move: numbers by hand, and schedules against each other."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.analytic.flops import flops_in_ticks
from scaling.analytic.table import Table, expected_bytes
from scaling.meshes.shape import MeshShape
from scaling.models.accounting import train_flops
from scaling.models.config import ModelConfig
from scaling.models.presets import preset
from scaling.run import Batch, Pipeline, Precision, Run

BF16, FP32 = 2, 4
MODEL = ModelConfig(1000, d_model=64, n_layers=24, n_heads=8, n_kv_heads=4, head_dim=8, d_ff=128)
RUNS = st.builds(
    lambda sequences, groups, remat: Run(
        "toy",
        MODEL,
        Batch(16 * sequences * 4 * groups, 128, 4 * groups),
        remat=remat,
        precision=Precision("fp32"),
        pipeline=Pipeline("gpipe"),
    ),
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from(["none", "selective", "full"]),
)
MESHES = st.builds(
    MeshShape,
    data=st.sampled_from([1, 2]),
    fsdp=st.sampled_from([1, 2, 4]),
    stage=st.sampled_from([2, 4]),
    context=st.sampled_from([1, 2]),
    tensor=st.sampled_from([1, 2, 4]),
)
STAGE = tuple(("stage", kind) for kind in ("permute", "reduce-scatter", "all-gather"))


def moved(run: Run, shape: MeshShape, schedule: str = "gpipe", rounds: int = 1) -> Table:
    return expected_bytes(replace(run, pipeline=Pipeline(schedule, rounds)), shape, smallest=0)


def test_llama3_8b_in_four_stages_over_tensor_8_by_hand():
    # Two microbatches of two sequences: five ticks of eight layers on a stage.
    run = Run("deep", preset("llama3-8b"), Batch(4, 8192, 2), pipeline=Pipeline("gpipe"))
    stream = BF16 * 2 * 8192 * 4096
    layer = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336
    shape = MeshShape(stage=4, tensor=8)
    in_layers, ends = 5 * 8 * 4, 2 * (1 + 1 / 4)  # the head's tokens are shared out
    assert expected_bytes(run, shape) == {
        ("stage", "permute"): 2 * 5 * stream / 8,
        ("stage", "reduce-scatter"): 2 * stream / 8,
        ("stage", "all-gather"): 2 * stream / 8,
        ("stage", "all-reduce"): FP32 * 2 * 128_256 * 4096 / 8,  # both tables
        ("tensor", "all-gather"): (in_layers + ends) * stream,
        ("tensor", "reduce-scatter"): (in_layers + ends) * stream,
    }
    sharded = expected_bytes(run, MeshShape(data=2, stage=4, tensor=8))
    assert sharded["data", "all-reduce"] == FP32 * 8 * layer / 8


def test_a_tick_that_is_computed_again_gathers_its_matrices_a_third_time():
    run = Run("deep", preset("llama3-8b"), Batch(8, 8192, 2), pipeline=Pipeline("gpipe"))
    layer = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336
    shape = MeshShape(fsdp=4, stage=2)
    # Head in each microbatch; embedding once, by 1F1B in each of its three forward passes.
    for schedule, times, embeddings in (("gpipe", 2, 1), ("1f1b", 2, 3), ("circular", 3, 1)):
        asked = moved(run, shape, schedule)["fsdp", "all-gather"]
        tables = (2 + embeddings) * 128_256 * 4096
        assert asked == BF16 * (3 * 16 * times * layer + tables)


@given(RUNS, MESHES, st.sampled_from([("gpipe", 1), ("1f1b", 1), ("circular", 2)]))
def test_flops_are_those_of_the_model_in_all_ticks(run: Run, shape: MeshShape, how) -> None:
    run = replace(run, pipeline=Pipeline(*how))
    flops = train_flops(run.model, run.batch.global_batch, run.batch.seq_len).groups
    found = flops_in_ticks(run, shape, dict(flops))
    M, S = run.batch.microbatches * how[1], shape.stage
    overhead = (M + S - 1) / M
    again = 1 / 3 if how[0] == "circular" else 0  # a forward pass beside one and twice that
    assert found["head"] == flops["head"]
    one_layer = MODEL.n_layers == how[1] * S
    for name in ("projections", "attention") if one_layer else ("projections", "attention", "mlp"):
        assert found[name] == pytest.approx(flops[name] * overhead * (1 + again))
    assert flops_in_ticks(run, replace(shape, stage=1), flops) == flops


def test_a_part_of_one_layer_does_not_need_its_last_product_again():
    model = replace(MODEL, n_layers=2)
    run = Run("toy", model, Batch(16, 128, 4), pipeline=Pipeline("circular"))
    flops = train_flops(model, 16, 128)
    found = flops_in_ticks(run, MeshShape(stage=2), dict(flops.groups))
    forward = flops.groups["mlp"] / 3
    again = forward * 2 / 3  # gate and up, not down
    assert found["mlp"] == pytest.approx((flops.groups["mlp"] + again) * 5 / 4)
    shape = MeshShape(fsdp=2, stage=2)
    matrices = 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128
    gathered = 5 * (3 * matrices - 64 * 128) + (4 + 1) * 1000 * 64
    assert moved(run, shape, "circular")["fsdp", "all-gather"] == BF16 * gathered
