"""What does not fit is found before anything is compiled; a compiled program is compiled once."""

import json
from dataclasses import replace

import jax
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

from scaling.cli import main as cli
from scaling.compile.options import compiler_options, use_compilation_cache
from scaling.meshes.devices import host_mesh
from scaling.meshes.errors import InputError
from scaling.meshes.shape import MeshShape, parse_mesh
from scaling.models.config import Moe
from scaling.run import Batch, Precision, run_dict
from scaling.training import prepare as preparing
from scaling.training.prepare import Programs, compile_programs, place_tokens, plan
from tests.harness import abstract_arguments

DEVICES = 8  # of this process
CUBE = MeshShape(data=2, fsdp=2, tensor=2)


def test_a_plan_holds_the_run_with_its_mesh_and_data(toy, words_file):
    planned = plan(replace(toy(), mesh=CUBE))
    assert planned.run == replace(toy(), mesh=CUBE)
    assert planned.mesh.axis_names == CUBE.device_order
    assert str(words_file) in planned.source.description
    planned = plan(replace(toy(), mesh=None))  # all devices are fsdp
    assert planned.run.mesh == MeshShape(fsdp=DEVICES)
    assert planned.mesh.shape["fsdp"] == planned.mesh.size == DEVICES


MISFITS = {
    "mesh data=2,fsdp=2 needs 4 devices .* 8 are present": {"mesh": MeshShape(data=2, fsdp=2)},
    "global_batch=6.*8": {"batch": Batch(6, 16)},
    "global_batch=8.*microbatches=3": {"batch": Batch(8, 16, 3)},
    "n_heads=4.*tensor=8": {"mesh": MeshShape(tensor=8)},
    "n_layers=2 is not divisible by stage=4": {"mesh": MeshShape(stage=4, fsdp=2)},
    "unknown optimizer 'sgd'; known: adamw, lion": {"optimizer": "sgd"},
    "dropout 0.1 is not yet trained": {"dropout": 0.1},
    "software 'megatron' is not yet trained": {"software": "megatron"},
    "precision.compute 'fp16' is not yet": {"precision": Precision(compute="fp16")},
    "precision.parameters 'bf16' is not yet": {"precision": Precision(parameters="bf16")},
    "n_experts=6 is not divisible by expert=4; use": {
        "mesh": MeshShape(expert=4, data=2),
        "moe": Moe(6, 2),
    },
    "d_ff_expert=33 is not divisible by tensor=2; use": {
        "mesh": MeshShape(tensor=2, expert=4),
        "moe": Moe(8, 2, 33),
    },
}


@pytest.mark.parametrize("message", MISFITS)
def test_a_run_that_does_not_fit_says_the_numbers(toy, message):
    changes = {"mesh": MeshShape(fsdp=DEVICES), **MISFITS[message]}
    model = replace(toy().model, moe=changes.pop("moe", None))
    with pytest.raises(InputError, match=message):
        plan(replace(toy(), model=model, **changes))


@pytest.mark.parametrize(
    "setting",
    [
        {"steps": 0},
        {"keep_checkpoints": 0},
        {"warmup_steps": -1},
        {"learning_rate": 0.0},
        {"clip_norm": float("nan")},
        {"weight_decay": float("inf")},
        {"pgle_runs": -1},
        {"pgle_runs": 2},  # there are no GPUs here
        {"seed": 1 << 64},
    ],
    ids=str,
)
def test_a_setting_that_means_nothing_is_named(toy, setting):
    (name,) = setting
    with pytest.raises(InputError, match=name):
        plan(replace(toy(**setting), mesh=MeshShape(fsdp=DEVICES)))


@pytest.fixture
def never_compiled(monkeypatch):
    """jax is started first: else `--devices 4` would leave this test process with four devices."""
    assert jax.device_count() == DEVICES

    def refuse(planned):
        raise AssertionError("compiled")

    monkeypatch.setattr(preparing, "compile_programs", refuse)
    monkeypatch.setattr("scaling.compile.options.use_compilation_cache", lambda: None)


def run_file(toy, folder, **changes):
    path = folder / "run.json"
    path.write_text(json.dumps({**run_dict(toy()), "mesh": {"fsdp": DEVICES}, **changes}))
    return str(path)


@pytest.mark.parametrize(
    ("contents", "name", "message"),
    [
        (None, "words.txt", "no such file"),
        (b"abc" * 5, "short.txt", "15 tokens"),
    ],
)
def test_data_that_cannot_be_used_is_exit_code_2_before_any_compile(
    toy, tmp_path, capsys, never_compiled, contents, name, message
):
    if contents is not None:
        (tmp_path / name).write_bytes(contents)
    train = {"steps": 2, "data": str(tmp_path / name)}
    folder = tmp_path / "run"
    words = ["train", run_file(toy, tmp_path, train=train), "--run-dir", str(folder)]
    assert cli.main(words) == 2
    out, err = capsys.readouterr()
    assert message in err and err.startswith("error: ") and out == ""
    assert not folder.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["demoo"], "demo"),
        (["demo", "--mesh", "tensr=8"], "tensor"),
        (["demo", "--mesh", "tensor=3"], "tensor=3"),
        (["demo", "--steps", "0"], "--steps=0"),
        (["demo", "--devices", "4"], "already runs with 8"),
        (["demo", "--record-profile", "7"], "FROM:TO"),
        (["demo", "--restarts", "-1"], "--restarts -1"),
        (["nowhere/run.json"], "cannot read nowhere/run.json"),
        (["nowhere.py:run"], "no file nowhere.py"),
    ],
)
def test_bad_words_are_exit_code_2_in_one_message(tmp_path, capsys, never_compiled, words, message):
    assert cli.main(["train", *words, "--run-dir", str(tmp_path / "run")]) == 2
    err = capsys.readouterr().err.strip()
    assert err.startswith("error: ") and message in err and "\n" not in err


# Tokens on the devices


@pytest.mark.parametrize(
    ("mesh", "microbatches"), [("data=1", 2), ("fsdp=4", 1), ("data=2,fsdp=2,tensor=2", 2)]
)
def test_rows_go_to_the_devices_in_order_split_into_microbatches(toy, mesh, microbatches):
    shape = parse_mesh(mesh)
    run = replace(toy(microbatches=microbatches), mesh=shape)
    programs = abstract_programs(run)
    inputs = np.arange(8 * 16, dtype=np.int32).reshape(8, 16)
    placed = place_tokens(programs, (inputs, inputs + 1))
    per_microbatch = 8 // microbatches
    assert placed.inputs.shape == (microbatches, per_microbatch, 16)
    np.testing.assert_array_equal(np.asarray(placed.inputs).reshape(8, 16), inputs)
    np.testing.assert_array_equal(placed.targets, placed.inputs + 1)
    for shard in placed.inputs.addressable_shards:
        assert shard.data.shape[:2] == (microbatches, per_microbatch // shape.batch_shards)
    assert placed.inputs.sharding == programs.tokens.inputs.sharding


@pytest.mark.parametrize("mesh", ["context=4", "data=2,context=2,tensor=2"])
def test_over_context_each_device_gets_an_early_and_a_late_chunk_of_inputs_and_targets(toy, mesh):
    shape = parse_mesh(mesh)
    programs = abstract_programs(replace(toy(), mesh=shape))
    inputs = np.tile(np.arange(16, dtype=np.int32), (8, 1))  # every token is its own position
    placed = place_tokens(programs, (inputs, inputs + 1))
    chunk, last = 16 // (2 * shape.context), 2 * shape.context - 1
    for part, ahead in ((placed.inputs, 0), (placed.targets, 1)):
        for number, device in enumerate(programs.tokens.inputs.sharding.mesh.devices.flat):
            i = shape.coordinates(number)["context"]
            chunks = [range(n * chunk, (n + 1) * chunk) for n in (i, last - i)]
            (shard,) = [s for s in part.addressable_shards if s.device == device]
            assert (np.asarray(shard.data) == np.concatenate(chunks) + ahead).all()


def test_a_step_takes_the_place_of_the_state_that_it_is_given(toy, prepare):
    plan, programs = prepare(toy(mesh={"fsdp": 4}))
    zeros = np.zeros((8, 16), np.int32)
    with jax.set_mesh(plan.mesh):
        given = programs.init()
        made, _ = programs.step(given, place_tokens(programs, (zeros, zeros)))
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(given))
    held = sum(leaf.addressable_shards[0].data.nbytes for leaf in jax.tree.leaves(made))
    assert programs.step.memory_analysis().alias_size_in_bytes >= held


@pytest.fixture
def jax_profiles_no_step():
    yield
    jax.config.update("jax_enable_pgle", False)
    jax.config.update("jax_pgle_profiling_runs", 0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:PGLE collected an empty trace")  # of CPUs
def test_a_profiled_step_gives_the_same_numbers(toy, prepare, monkeypatch, jax_profiles_no_step):
    plan, programs = prepare(toy(mesh={"fsdp": 4}))
    run = replace(plan.run, train=replace(plan.run.train, pgle_runs=1))
    guided = compile_programs(replace(plan, run=run))
    zeros = np.zeros((8, 16), np.int32)
    with jax.set_mesh(plan.mesh):
        tokens = place_tokens(programs, (zeros, zeros))
        states = [programs.init(), programs.init()]
        for _ in range(3):  # the second is compiled anew
            states[0], one = programs.step(states[0], tokens)
            states[1], other = guided.run_step(states[1], tokens)
            assert float(one["loss"]) == float(other["loss"])
    assert jax.config.jax_pgle_profiling_runs == 1


def abstract_programs(run):
    """Programs without the programs: the shapes that the step would take."""
    with jax.set_mesh(host_mesh(run.mesh)):
        return Programs(None, abstract_arguments(run)[1], None, None, None, None)


# Compilation


@pytest.fixture
def cache_events(monkeypatch, tmp_path):
    """A compilation cache of this test's own; names of what happens to it."""
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = {name: getattr(jax.config, name) for name in names}
    monkeypatch.setenv("SCALING_CACHE", str(tmp_path / "cache"))
    events = []
    listen = lambda event, **_: events.append(event.rpartition("/")[2])
    jax.monitoring.register_event_listener(listen)
    compilation_cache.reset_cache()
    yield events
    jax.monitoring.unregister_event_listener(listen)
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


def test_a_second_start_takes_its_programs_from_the_cache(toy, tmp_path, cache_events):
    folder = use_compilation_cache()
    assert folder.is_relative_to(tmp_path / "cache") and jax.__version__ in folder.name
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)  # also where it is fast
    planned = plan(replace(toy(steps=3), mesh=MeshShape(fsdp=DEVICES)))
    compile_programs(planned)
    assert "cache_misses" in cache_events and any(folder.iterdir())
    cache_events.clear()
    compile_programs(planned)
    assert "cache_hits" in cache_events and "cache_misses" not in cache_events


def test_a_cache_that_cannot_be_written_stops_nobody(tmp_path, cache_events, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SCALING_CACHE", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="SCALING_CACHE"):
        use_compilation_cache()


def test_gpu_options_are_for_gpus_only_and_each_callers_own():
    scheduler = "xla_gpu_enable_latency_hiding_scheduler"
    compiler_options("gpu")[scheduler] = False
    assert compiler_options("gpu")[scheduler] is compiler_options("cuda")[scheduler] is True
    assert compiler_options("cpu") == compiler_options("tpu") == {}
