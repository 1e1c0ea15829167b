"""What a pipeline takes: refusals with the numbers and every choice that fits, and its line."""

import math
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.meshes.errors import InputError
from scaling.meshes.shape import MeshShape
from scaling.models.config import ModelConfig
from scaling.run import Batch, Overlap, Pipeline, Run
from scaling.run.parallelism.pipeline import (
    check_parts,
    pipeline_line,
)
from scaling.run.parallelism.rules import rules_for

MODEL = ModelConfig(64, d_model=64, n_layers=12, n_heads=8, d_ff=64)
RUN = Run("toy", MODEL, Batch(64, 64, 8), pipeline=Pipeline("gpipe"))


@pytest.mark.parametrize(
    ("stages", "rounds", "said"),
    [
        (4, 1000000, "4,000,000 parts of model.n_layers=12, .* pipeline.virtual_stages up to 3$"),
        (4, 4, "stage=4 x pipeline.virtual_stages=4 = 16 parts .* up to 3$"),
        (24, 2, "48 parts of model.n_layers=12, .* use stage up to 12$"),
        (24, 1, "stage=24 parts of model.n_layers=12, .* use stage up to 12$"),
    ],
)
def test_a_part_without_a_layer_is_refused_in_any_software(stages, rounds, said):
    run = replace(RUN, pipeline=Pipeline("interleaved", rounds))
    with pytest.raises(InputError, match=said):
        check_parts(run, MeshShape(stage=stages))
    check_parts(run, MeshShape(data=stages))


@pytest.mark.parametrize(
    ("stages", "microbatches", "virtual"), [(3, 12, 1), (4, 6, 1), (4, 9, 1), (4, 8, 2)]
)
def test_dualpipe_takes_pairs_of_stages_and_enough_microbatches(stages, microbatches, virtual):
    shape, good = MeshShape(stage=stages), MeshShape(stage=4)
    run = replace(RUN, pipeline=Pipeline("dualpipe", virtual), software="megatron")
    with pytest.raises(InputError, match="even number of stages"):
        check_parts(replace(run, batch=Batch(microbatches, 32, microbatches)), shape)
    check_parts(replace(run, batch=Batch(8, 32, 8), pipeline=Pipeline("dualpipe")), good)


def interleaved(rounds: int, microbatches: int = 8, layers: int = 12) -> Run:
    model = replace(MODEL, n_layers=layers)
    return replace(
        RUN,
        model=model,
        batch=Batch(64, 64, microbatches),
        pipeline=Pipeline("interleaved", rounds),
    )


def refused(run: Run, shape: MeshShape) -> str:
    with pytest.raises(InputError) as raised:
        rules_for(run, shape)
    return str(raised.value)


def test_layers_that_do_not_divide_are_refused_with_every_stage_that_fits():
    said = refused(RUN, MeshShape(stage=8))
    assert "model.n_layers=12 is not divisible by stage=8" in said
    assert "stage of 1, 2, 3, 4, 6, 12, or model.n_layers of 16" in said


def test_parts_of_several_rounds_name_the_rounds_that_fit():
    said = refused(interleaved(4), MeshShape(stage=2))
    assert "n_layers=12 is not divisible by stage=2 x pipeline.virtual_stages=4 = 8" in said
    assert (
        "stage of 1, 3, or pipeline.virtual_stages of 1, 2, 3, 6, or model.n_layers of 16" in said
    )


@given(st.integers(1, 12), st.integers(2, 8), st.integers(1, 6))
def test_every_choice_that_a_refusal_names_is_accepted(layers, stages, rounds):
    shape = MeshShape(stage=stages)
    all_divide = math.lcm(*range(1, 13))
    run = replace(interleaved(rounds, layers=layers), batch=Batch(*[all_divide] * 3))
    if layers % (stages * rounds) == 0:
        rules_for(run, shape)
        return
    said = refused(run, shape)
    of_stage = re.search(r"stage of ([\d, ]+\d)", said)
    of_rounds = re.search(r"virtual_stages of ([\d, ]+\d)", said)
    of_layers = int(re.search(r"model.n_layers of (\d+)", said)[1])
    for n in map(int, of_stage[1].split(",")) if of_stage else ():
        rules_for(run, MeshShape(stage=n))
    for n in map(int, of_rounds[1].split(",")) if of_rounds else ():
        rules_for(replace(run, pipeline=Pipeline("interleaved", n)), shape)
    rules_for(replace(run, model=replace(MODEL, n_layers=of_layers)), shape)


def test_several_rounds_take_groups_of_microbatches():
    said = refused(interleaved(2, 2), MeshShape(stage=3))
    assert "batch.microbatches=2 is not a multiple of stage=3" in said
    assert "use batch.microbatches of 3" in said
    rules_for(interleaved(1, 2), MeshShape(stage=4))  # one round takes any number


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_several_rounds_are_for_the_interleaved_schedule(schedule):
    run = replace(RUN, pipeline=Pipeline(schedule, 2))
    said = refused(run, MeshShape(stage=2))
    assert "virtual_stages=2 is for pipeline.schedule 'interleaved'" in said
    assert repr(schedule) in said
    rules_for(run, MeshShape(data=2))  # without stages it says nothing
    if schedule == "1f1b":  # which Megatron interleaves
        check_parts(replace(run, software="megatron"), MeshShape(stage=2))


@pytest.mark.parametrize(
    ("shape", "seq_len", "said"),
    [
        (MeshShape(stage=4), 66, "seq_len=66 is not divisible by stage=4: .* of 68"),
        (MeshShape(stage=4, tensor=2), 68, "by tensor=2 x stage=4 = 8: .* of 72"),
        (MeshShape(stage=3, context=2), 64, "by context=2 x stage=3 = 6: .* of 66"),
    ],
)
def test_a_sequence_that_stages_cannot_share_out_is_refused(shape, seq_len, said):
    run = replace(RUN, batch=Batch(8, seq_len, 8))  # one sequence: tensor cuts it, not the batch
    assert re.search(said, refused(run, shape))


def test_the_line_says_layers_ticks_and_idle_share():
    assert pipeline_line(RUN, MeshShape(data=4)) is None
    said = pipeline_line(RUN, MeshShape(stage=4))
    assert "stage=4: 3 layer(s) on each, schedule gpipe, which runs as 1f1b; 11 iter" in said
    assert "idle for 27% of them" in said
    assert "2 parts of 3 layer(s)" in pipeline_line(interleaved(2), MeshShape(stage=2))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"pipeline": Pipeline("dualpipe")}, "'dualpipe' is of other software; use 1f1b"),
        ({"pipeline": Pipeline("zero_bubble")}, "'zero_bubble' is of other software"),
        (
            {"software": "megatron", "pipeline": Pipeline("zero_bubble", 2)},
            "virtual_stages=2 is for pipeline.schedule 'interleaved'",
        ),
        (
            {"software": "megatron", "overlap": Overlap(experts=True)},
            "pipeline.schedule='gpipe' ends all forward passes before any backward",
        ),
    ],
)
def test_schedules_that_cannot_be_are_refused_in_closed_forms(changes, said):
    run = replace(RUN, batch=Batch(64, 64, 8), **changes)
    with pytest.raises(InputError, match=said):
        check_parts(run, MeshShape(stage=4))
    check_parts(run, MeshShape(data=4))
