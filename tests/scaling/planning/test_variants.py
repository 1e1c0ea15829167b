"""A wider space: what each variant stands for, and that the best of all is found."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import scaling as sc
from scaling.meshes import catalog
from scaling.meshes.errors import InputError
from scaling.meshes.shape import AXES, MeshShape
from scaling.planning.bounds import least_memory
from scaling.planning.objectives import Goal, Tariff, critical_batch_of, value_of
from scaling.planning.search import PlanTarget, search
from scaling.planning.space import ChoicesBatch
from scaling.planning.variants import batch_band, pipelines, variants
from scaling.profiles.io import profile_of
from scaling.profiles.profile import CollectiveFit
from scaling.run import Pipeline, Train
from scaling.run.parallelism.checks import check_trainable
from scaling.run.recipes import recipe
from scaling.simulate.batch import calls_of
from scaling.simulate.memory import memory_use
from tests.scaling.cli.running import check_refused
from tests.scaling.cli.running import run as run_command
from tests.scaling.host_profile import HERE, host_profile

H100 = catalog.load("dgx-h100")
PROFILE = profile_of(H100.accelerator)
RUN = replace(recipe("gpt2-124m"), mesh=None)
RUN = replace(RUN, batch=replace(RUN.batch, global_batch=8))
MEGATRON, NEMO = replace(RUN, software="megatron"), replace(RUN, software="nemo")
FEW = {"max_context": 1, "max_data": 1, "fixed": {"mesh.stage": 4}, "top": 1}


@pytest.mark.parametrize("run", [RUN, NEMO], ids=["jax", "nemo"])
def test_no_configuration_is_there_twice(run):
    seen = set()
    for variant in variants(run, True, [], []):
        for choices in variant.choices(4):
            cut = tuple(a for a in variant.run.device_order if getattr(choices.mesh, a) > 1)
            pipeline = variant.run.pipeline if choices.mesh.stage > 1 else None
            key = tuple(choices.mesh.sizes[axis] for axis in AXES), cut, pipeline, variant.partial
            assert key not in seen
            seen.add(key)
            runs = {choices.run(variant.run, i) for i in range(choices.count)}
            assert len(runs) == choices.count and variant.partial == all(
                run.pipeline.remat_layers is not None for run in runs
            )
    base = {key[0] for key in seen}
    assert len(base) == len({tuple(m.mesh.sizes[a] for a in AXES) for m in _plain(run)})
    assert len(seen) > 2 * len(base)


def _plain(run):
    (alone,) = variants(run, False, [], [])
    return list(alone.choices(4))


def test_our_trainer_is_offered_what_it_runs():
    for variant in variants(RUN, True, [], []):
        mesh = MeshShape(stage=2, fsdp=2)
        batch = replace(variant.run.batch, microbatches=4)
        check_trainable(replace(variant.run, batch=batch, mesh=mesh), mesh)
    assert {p.layers for p in pipelines(RUN)} == {"even"}
    assert Pipeline("1f1b", layers="by-cost") in list(pipelines(MEGATRON))
    split = replace(RUN, pipeline=Pipeline(layers="by-cost"))
    with pytest.raises(InputError, match="by-cost"):
        check_trainable(split, MeshShape(stage=2))


@pytest.mark.parametrize(
    "run", [pytest.param(RUN, marks=pytest.mark.slow), NEMO], ids=["jax", "nemo"]
)
def test_no_variant_is_below_its_bound(run):
    for variant in variants(run, True, [], []):
        target = PlanTarget(variant.run, H100, PROFILE, lambda seconds, devices: seconds)
        for choices in variant.choices(8):
            if choices.refusal or choices.mesh.stage < 4 or choices.mesh.context > 1:
                continue
            least = choices.mesh.batch_shards * np.asarray(choices.grid.microbatches)
            choices = choices.only(least <= RUN.batch.global_batch)
            batch = ChoicesBatch((choices,))
            program = target.program(batch)
            peak = memory_use(program).peak
            assert np.all(least_memory(variant.run, batch) <= peak * (1 + 1e-9)), variant
            calls = calls_of(program, target.prices)
            for bound in (target.bound(batch), calls.least()):
                assert np.all(bound <= calls.timeline().total * (1 + 1e-9)), variant


@pytest.mark.slow
def test_the_best_of_the_wide_space_is_the_best_of_its_variants():
    found = sc.plan(MEGATRON, "dgx-h100", wide=True, **FEW)
    each = []
    for variant in variants(MEGATRON, True, [], []):
        target = PlanTarget(variant.run, H100, PROFILE, lambda seconds, devices: seconds)
        meshes = (c for c in variant.choices(8) if c.mesh.stage == 4)
        kept = [c for c in meshes if c.mesh.context == 1 and c.mesh.data == 1]
        each += [hit.step_time for hit in search([(target, kept)], 1).best[:1]]
    assert found.step_time == pytest.approx(min(each)) and len(each) > 3
    assert found.best.besides and found.best.besides in str(found)


@pytest.mark.slow
@pytest.mark.parametrize("run", [MEGATRON, NEMO], ids=["megatron", "nemo"])
def test_a_wide_search_leaves_nothing_better_out(run):
    """Whole spaces of all variants, as targets of one search."""
    spaces = lambda: [
        (PlanTarget(v.run, H100, PROFILE, lambda seconds, devices: seconds), v.choices(4))
        for v in variants(run, True, [], [])
    ]
    found, whole = (search(spaces(), top) for top in (2, 10**6))
    assert whole.pruned == 0 and found.pruned > 0 and found.space == whole.space
    assert [h.value for h in found.best[:2]] == pytest.approx([h.value for h in whole.best[:2]])
    keys = [tuple(getattr(h.choices.mesh, axis) for axis in AXES) for h in whole.best]
    assert len(keys) == len(set(keys))  # one for each mesh


def test_stages_that_compute_some_layers_again_are_priced_as_each_alone():
    run = replace(NEMO, batch=replace(RUN.batch, global_batch=16))
    (variant,) = [v for v in variants(run, False, [], [], partial=True) if v.partial]
    target = PlanTarget(run, H100, PROFILE, lambda seconds, devices: seconds)
    meshes = [MeshShape(stage=4, fsdp=2), MeshShape(stage=2, tensor=2, data=2)]
    spaces = [c for c in variant.choices(8) if c.mesh.sizes in [mesh.sizes for mesh in meshes]]
    for choices in spaces:
        batch = ChoicesBatch((choices.only(np.arange(choices.count) % 25 == 7),))
        program = target.program(batch)
        seconds = calls_of(program, target.prices).timeline().total
        peaks = np.broadcast_to(memory_use(program).peak, (batch.count,))
        for i in range(batch.count):
            alone = sc.predict(batch.run(run, i), "dgx-h100", source="analytic")
            assert seconds[i] == pytest.approx(float(alone.step_time), rel=1e-9)
            assert peaks[i] == pytest.approx(float(alone.memory.peak), rel=1e-9)


def test_remat_of_some_layers_is_fixed_where_software_has_it():
    options = {"max_context": 1, "max_data": 1, "max_tensor": 1, "top": 1}
    fixed = {"mesh.stage": 2, "pipeline.remat_layers": 3}
    found = sc.plan(MEGATRON, "dgx-h100", fixed=fixed, **options)
    assert found.best.run.remat == "full" and found.best.run.pipeline.remat_layers == 3
    assert "pipeline.remat_layers=3" in found.best.besides and "remat_layers': 3" in found.next
    with pytest.raises(InputError, match="software 'jax' runs one program in all stages"):
        sc.plan(RUN, "dgx-h100", fixed=fixed, **options)
    with pytest.raises(InputError, match="deepspeed is not known to tell layers"):
        sc.plan(replace(RUN, software="deepspeed"), "dgx-h100", fixed=fixed, **options)
    with pytest.raises(InputError, match="remat_fewer=1.0: megatron .* price nemo"):
        stated = {"remat": "full", "pipeline": {"remat_layers": 3, "remat_fewer": 1.0}}
        sc.predict(MEGATRON, "dgx-h100", source="analytic", set=stated)


def test_the_command_after_a_wide_plan_prices_the_plan(capsys):
    words = ["gpt2-124m", "--cluster", "dgx-h100", "--set", "software=megatron", "--json"]
    words += ["--set", "batch.global_batch=8", "--wide", "--fixed", "mesh.stage=4", "--top", "1"]
    code, out, _ = run_command(capsys, "plan", *words, "--max-context", "1", "--max-data", "1")
    found = json.loads(out)
    again = found["next"].removeprefix("scaling ").removesuffix(" --explain").split()
    assert code == 0 and "--set pipeline." in found["next"]
    code, out, _ = run_command(capsys, *again, "--source", "analytic", "--json")
    assert code == 0
    assert json.loads(out)["step_time"] == found["plans"][0]["prediction"]["step_time"]


def test_what_varies_can_be_fixed():
    run, options = MEGATRON, {"wide": True, "max_context": 1, "max_data": 1, "top": 1}
    fixed = {"pipeline.schedule": "interleaved", "mesh.stage": 2, "pipeline.virtual_stages": 2}
    found = sc.plan(run, "dgx-h100", fixed=fixed, **options)
    assert found.best.run.pipeline == Pipeline("interleaved", 2) and found.mesh.stage == 2
    assert "--fixed pipeline.virtual_stages=2" in found.constraints
    with pytest.raises(InputError, match="virtual_stages.*3.*there are 1, 2, 4"):
        sc.plan(run, "dgx-h100", fixed={"pipeline.virtual_stages": 3}, **options)


def test_a_batch_of_the_critical_size_takes_twice_the_fewest_tokens():
    goal = Goal(critical=4e6, least_batch=1.0)
    assert goal.growth(4e6) == pytest.approx(2, rel=1e-6) and goal.growth(1.0) == 1
    assert Goal().growth(4e6) == 1
    assert 5e6 < critical_batch_of(recipe("llama3-8b").model) < 8e6  # by hand: 6.6e6


@given(st.floats(1e5, 1e8), st.integers(1, 10))
def test_larger_batches_never_take_fewer_tokens(critical, doublings):
    goal = Goal(critical=critical, least_batch=1e5)
    sizes = 1e5 * 2.0 ** np.arange(doublings + 1)
    growth = np.array([goal.growth(size) for size in sizes])
    assert np.all(np.diff(growth) > 0) and np.all(np.diff(growth / sizes) < 0)  # and fewer steps
    tariff = Tariff("chip", None)
    value = value_of(goal, tariff, sizes[-1], np.array(1.0), 8)
    assert float(value) == pytest.approx(growth[-1] / sizes[-1])


def test_a_band_of_batches_is_compared_at_one_loss():
    options = {"max_stage": 1, "max_context": 1, "max_tensor": 1, "max_data": 1, "top": 1}
    found = sc.plan("gpt2-124m", "dgx-h100", batch="8:16", tokens="1T", **options)
    each = [sc.plan("gpt2-124m", "dgx-h100", batch=n, tokens="1T", **options) for n in (8, 16)]
    assert found.critical_batch and "B_crit" in str(found)
    goal = Goal(critical=found.critical_batch, least_batch=8 * 1024.0)
    totals = [p.best.total_time * goal.growth(p.best.run.batch.tokens) for p in each]
    assert found.best.total_time == pytest.approx(min(totals))
    assert found.space == sum(p.space for p in each)
    tiny = sc.plan("gpt2-124m", "dgx-h100", batch="8:16", critical_batch="1k", **options)
    assert tiny.best.run.batch.global_batch <= found.best.run.batch.global_batch


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("8:64", [8, 16, 32, 64]),
        ("6:20", [6, 12, 20]),
        ("5", [5]),
        (7, [7]),
        ("1k:2k", [1000, 2000]),
    ],
)
def test_sizes_of_a_band(text, sizes):
    assert batch_band(text) == sizes


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--batch", "8:4"], ["--batch 8:4 is empty", "4:8"]),
        (["--batch", "x"], ["--batch 'x'", "512:2048"]),
        (["--batch", "0:4"], ["--batch=0"]),
        (["--precision", "bf16,fp9"], ["'fp9'", "fp8"]),
        (["--critical-batch", "0"], ["--critical-batch"]),
        (["--batch", "8", "--set", "batch.global_batch=4"], ["give one"]),
    ],
)
def test_what_is_refused(capsys, options, parts):
    check_refused(run_command(capsys, "plan", "tiny", "--cluster", "dgx-h100", *options), *parts)


def test_formats_are_tried_where_the_chip_multiplies_them():
    options = {"max_stage": 1, "max_context": 1, "max_tensor": 1, "max_data": 1, "top": 1}
    found = sc.plan(RUN, ["dgx-h100", "dgx-a100"], precision="bf16,fp8", **options)
    assert {plan.run.precision.compute for plan in found.clusters} <= {"bf16", "fp8"}
    (a100,) = [plan for plan in found.clusters if plan.cluster.name == "dgx-a100"]
    assert a100.run.precision.compute == "bf16"


@pytest.mark.slow
def test_our_trainer_runs_the_first_choice_for_this_machine(tmp_path):
    """As well as the first with each of its pipelines."""
    kinds = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "permute")
    lines = tuple(CollectiveFit(k, n, 8 // n, 1e-5, 1e9, HERE) for k in kinds for n in (2, 4, 8))
    measured = host_profile(8, collectives=lines)
    run = replace(recipe("tiny"), mesh=None, train=Train(steps=1))
    model, batch = replace(run.model, n_layers=8), replace(run.batch, global_batch=16)
    run = replace(run, model=model, batch=batch)
    two = {"mesh.stage": 2, "mesh.fsdp": 4}
    found = [sc.plan(run, "host", calibration=measured, wide=True, top=1)]
    for pipeline in [run.pipeline, *pipelines(run)][:3]:  # 1f1b, interleaved
        staged = replace(run, pipeline=pipeline)
        found.append(sc.plan(staged, "host", calibration=measured, fixed=two, top=1))
    for number, plans in enumerate(found):
        trained = sc.train(plans.best.run, devices=8, run_dir=tmp_path / str(number))
        assert trained.step == 1 and trained.loss < 7
