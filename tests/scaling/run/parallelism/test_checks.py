"""What the trainer refuses: by its name in run.json, with what to use instead."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.meshes.errors import InputError
from scaling.meshes.shape import MeshShape
from scaling.models.accounting.remat import SavedTensors
from scaling.models.config import Mla, Moe
from scaling.models.lora import Lora
from scaling.models.presets import preset_names
from scaling.run import Batch, Pipeline, Precision, Run, Sharding, Train
from scaling.run.parallelism.checks import check_settings, check_trainable
from scaling.run.recipes import recipe

TINY = recipe("tiny")
ONE = MeshShape()
MLA = Mla(8, 8, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=8)


def with_model(**changes) -> Run:
    return replace(TINY, model=replace(TINY.model, **changes))


def refused(run: Run, mesh: MeshShape = ONE) -> str:
    """What the trainer refuses `run` with."""
    with pytest.raises(InputError) as raised:
        check_trainable(run, mesh)
    return str(raised.value)


def test_a_sequence_whose_rotary_tables_no_program_holds_is_refused():
    long = replace(TINY, batch=replace(TINY.batch, seq_len=10**9))
    assert "batch.seq_len 1,000,000,000" in refused(long) and "33,554,432 tokens" in refused(long)
    check_trainable(replace(long, batch=replace(TINY.batch, seq_len=2**25)), ONE)


def test_a_schedule_that_is_not_trained_is_refused_only_where_there_are_stages():
    run = replace(TINY, pipeline=Pipeline("zero_bubble"))
    said = refused(run, MeshShape(stage=2, fsdp=2))
    assert "pipeline.schedule 'zero_bubble' is not yet trained; use 1f1b, interleaved" in said
    check_trainable(run, MeshShape(fsdp=2))


def test_experts_are_trained_in_stages_by_every_schedule_and_in_every_layer():
    run, mesh = recipe("tiny-moe"), MeshShape(stage=2)
    for pipeline in (Pipeline("gpipe"), Pipeline("1f1b"), Pipeline("interleaved", 2)):
        check_trainable(replace(run, pipeline=pipeline), mesh)
    moe = replace(run.model.moe, first_dense_layers=1)
    said = refused(replace(run, model=replace(run.model, moe=moe)), mesh)
    assert "first_dense_layers 1 on mesh axis stage=2 is not yet trained; use 0" in said


@pytest.mark.parametrize(
    "remat", ["qkv_proj_offloaded", SavedTensors(offload=("query", "key", "value"))]
)
def test_tensors_are_not_offloaded_in_stages(remat):
    run = replace(TINY, remat=remat)
    said = refused(run, MeshShape(stage=2))
    assert "remat with query, key, value offloaded on mesh axis stage=2 is not yet" in said
    assert "keep them on the device" in said
    check_trainable(run, MeshShape(fsdp=2))


@pytest.mark.parametrize(
    ("run", "name", "instead"),
    [
        (with_model(moe=Moe(4, 2, 64, 1), bias=True), "experts with biases", "bias to false"),
        (with_model(mla=MLA, sinks=True), "latent attention with sinks", "sinks to false"),
        (with_model(mla=MLA, bias=True), "latent attention with biases", "bias to false"),
        (with_model(mla=MLA, qk_norm=True), "latent attention with qk_norm", "qk_norm to false"),
        (with_model(mla=Mla(8, 8, 8, 3, 8)), "mla.qk_rope_head_dim=3", "even qk_rope_head_dim"),
        (with_model(positions="alibi"), "'alibi'", "rope"),
        (replace(TINY, dropout=0.1), "dropout 0.1", "0.0"),
        (replace(TINY, software="megatron"), "software 'megatron'", "jax"),
        (replace(TINY, precision=Precision("fp16")), "precision.compute 'fp16'", "bf16"),
        *(
            (replace(TINY, precision=Precision(**{name: "bf16"})), f"{name} 'bf16'", "fp32")
            for name in ("parameters", "gradients")
        ),
    ],
)
def test_features_that_are_not_trained_are_named_with_what_is(run, name, instead):
    what, fix = refused(run).split(";")
    assert name in what and "not yet trained" in what and instead in fix


@pytest.mark.parametrize(("stage", "fix"), [(0, "use 1 or 3, or the data"), (2, "use 1 (weights")])
def test_zero_stages_that_are_not_trained_are_refused_over_fsdp_only(stage, fix):
    run = replace(TINY, sharding=Sharding(zero_stage=stage))
    message = refused(run, MeshShape(fsdp=2))
    assert f"sharding.zero_stage {stage} over fsdp" in message and fix in message
    check_trainable(run, MeshShape(data=2))


def test_values_longer_than_keys_are_trained_on_sequences_that_are_cut():
    check_trainable(with_model(mla=replace(MLA, v_head_dim=16)), MeshShape(context=2))


def test_stages_share_whole_patterns_of_layers_out():
    """24 layers, with and without a window in turn."""
    run = recipe("gpt-oss-20b")
    check_trainable(run, MeshShape(stage=4))
    check_trainable(replace(run, pipeline=Pipeline("interleaved", 3)), MeshShape(stage=4))
    said = refused(run, MeshShape(stage=8))
    assert "24 layers in patterns of 2 on mesh axis stage=8 is not yet trained; use as many" in said
    refused(replace(run, pipeline=Pipeline("interleaved", 2)), MeshShape(stage=4))
    maverick = recipe("llama4-maverick")  # 48 layers, every other one with experts, 4 in a pattern
    check_trainable(maverick, MeshShape(stage=12, expert=8))
    refused(maverick, MeshShape(stage=16))


def test_chunks_divide_the_parts_of_a_device_unless_they_begin_with_documents():
    run = replace(recipe("llama4-scout"), batch=Batch(64, 32_768))
    check_trainable(run, MeshShape(context=2))
    assert "use chunks that divide a device's parts of 4096" in refused(run, MeshShape(context=4))
    packed = replace(run, train=replace(run.train, documents="packed"))
    check_trainable(packed, MeshShape(context=4))


@pytest.mark.parametrize("name", preset_names())
@given(sizes=st.tuples(*[st.integers(1, 64)] * 6))
def test_any_mix_of_the_axes_is_trained(name, sizes):
    """Without experts, `expert` is one more axis of replicas; dense layers first take no
    stages, and a pattern of layers only some."""
    run = recipe(name)
    stages = {"stage": 1} if run.model.moe and run.model.moe.first_dense_layers else {}
    stages |= {"stage": 1} if run.model.layers else {}
    check_trainable(run, replace(MeshShape(*sizes), **stages))


# --- settings -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(
            (name, value)
            for name in ("steps", "keep_checkpoints", "eval_batches")
            for value in (0, -1)
        ),
        *((name, -1) for name in ("warmup_steps", "checkpoint_every", "eval_every")),
        *((name, -0.5) for name in ("checkpoint_minutes", "clip_norm", "z_loss", "weight_decay")),
        *(("learning_rate", value) for value in (0.0, -1e-3, float("nan"), float("inf"))),
        *((name, float("nan")) for name in ("clip_norm", "z_loss", "weight_decay")),
        ("seed", 2**70),
    ],
)
def test_settings_that_mean_nothing_are_refused_by_name(name, value):
    with pytest.raises(InputError, match=f"train.{name}={value}"):
        check_settings(replace(TINY, train=replace(Train(), **{name: value})))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lora": Lora(), "freeze": ("*",)}, "train.lora and train.freeze are both there"),
        ({"trainable": ("*",), "freeze": ("*",)}, "train.trainable and train.freeze are both"),
        ({"lora": Lora(targets=("query", "gates"))}, "train.lora.targets: no matrix gates"),
        ({"ema": 1.0}, "train.ema=1.0 must be at least 0 and below 1"),
        ({"ema": -0.1}, "train.ema=-0.1 must be"),
    ],
)
def test_what_is_trained_and_averaged_must_mean_something(settings, message):
    run = replace(TINY, train=replace(TINY.train, **settings))
    assert message in refused(run)
    with pytest.raises(InputError, match=message):  # also where nothing is trained: priced only
        check_settings(run)


def test_a_format_of_frozen_matrices_needs_frozen_matrices():
    run = replace(TINY, precision=Precision(frozen="bf16"))
    assert "precision.frozen='bf16', but nothing is frozen" in refused(run)
    check_trainable(replace(run, train=replace(run.train, lora=Lora())), ONE)


def test_optimizers_that_look_at_whole_matrices_do_not_train_adapters():
    run = replace(TINY, optimizer="muon", train=replace(TINY.train, lora=Lora()))
    assert "train.lora with optimizer 'muon'" in refused(run) and "adamw" in refused(run)


def test_modules_that_a_model_lacks_are_not_computed_again():
    for module in ("mla_up_proj", "moe_act"):
        run = replace(TINY, software="megatron", remat="selective", recompute=(module,))
        with pytest.raises(InputError, match=f"the model tiny has no {module}"):
            check_settings(run)
    check_settings(replace(run, recompute=("layernorm",)))


def test_tokens_are_dispatched_in_fp8_for_products_in_fp8():
    run = replace(TINY, software="megatron", precision=Precision("bf16", dispatch="fp8"))
    with pytest.raises(InputError, match="precision.compute is 'bf16'; set precision.compute=fp8"):
        check_settings(run)
    check_settings(replace(run, precision=Precision("fp8", dispatch="fp8")))
