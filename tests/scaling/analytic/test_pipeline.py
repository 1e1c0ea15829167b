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
from scaling.run import Batch, Pipeline, Precision, Run, Sharding

BF16, FP32 = 2, 4
MODEL = ModelConfig(1000, d_model=64, n_layers=24, n_heads=8, n_kv_heads=4, head_dim=8, d_ff=128)
RUNS = st.builds(
    lambda sequences, groups, remat: Run(
        "toy",
        MODEL,
        Batch(16 * sequences * 4 * groups, 128, 4 * groups),
        remat=remat,
        precision=Precision("fp32"),
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


def moved(run: Run, shape: MeshShape, schedule: str = "1f1b", rounds: int = 1) -> Table:
    return expected_bytes(replace(run, pipeline=Pipeline(schedule, rounds)), shape, smallest=0)


def test_llama3_8b_in_four_stages_over_tensor_8_by_hand():
    # Two microbatches of two sequences: five ticks of eight layers on a stage.
    run = Run("deep", preset("llama3-8b"), Batch(4, 8192, 2))
    stream = BF16 * 2 * 8192 * 4096
    layer = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336
    shape = MeshShape(stage=4, tensor=8)
    # Look-ups of M + S microbatches; the head's tokens are shared out.
    in_layers, ends = 5 * 8 * 4, 2 + 4 + 2 / 4
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


def test_matrices_are_gathered_in_every_tick_and_tables_where_microbatches_come_and_leave():
    run = Run("deep", preset("llama3-8b"), Batch(8, 8192, 2), sharding=Sharding(3))
    layer = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336
    shape = MeshShape(fsdp=4, stage=2)
    # Three ticks of 16 layers, five of 8; the head of each microbatch, the look-up in M + S.
    for schedule, parts, layers in (("1f1b", 1, 3 * 16), ("gpipe", 1, 48), ("interleaved", 2, 40)):
        asked = moved(run, shape, schedule, parts)["fsdp", "all-gather"]
        assert asked == BF16 * (2 * layers * layer + (2 + 2 + 2) * 128_256 * 4096)


@given(RUNS, MESHES, st.sampled_from([("1f1b", 1), ("interleaved", 2)]))
def test_flops_are_those_of_the_model_in_all_ticks(run: Run, shape: MeshShape, how) -> None:
    run = replace(run, pipeline=Pipeline(*how))
    flops = train_flops(run.model, run.batch.global_batch, run.batch.seq_len).groups
    found = flops_in_ticks(run, shape, dict(flops))
    M, S = run.batch.microbatches * how[1], shape.stage
    overhead = (M + S - 1) / M
    assert found["head"] == flops["head"]
    for name in ("projections", "attention", "mlp"):
        assert found[name] == pytest.approx(flops[name] * overhead)
    assert flops_in_ticks(run, replace(shape, stage=1), flops) == flops
