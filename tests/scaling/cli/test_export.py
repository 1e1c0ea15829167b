"""A run's weights leave it as safetensors, and another run begins with them."""

import sys
from dataclasses import replace

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

from scaling.api import export
from scaling.cli import main as cli
from scaling.meshes.devices import host_mesh
from scaling.run import Pipeline, load_run, run_dict, save_run
from scaling.run.parallelism.rules import rules_for
from scaling.training.checkpoint.checkpoints import Checkpoints
from scaling.training.data.sources import open_source
from scaling.training.execution import execution_for
from scaling.training.prepare import PreparedRun, Programs, initial_state
from scaling.training.run_folder.folder import Options
from scaling.training.step import abstract_state, init_state
from scaling.training.trained_model import newest_model, on_mesh
from scaling.training.weights.naming import layer_order_of, to_dict
from tests.scaling.training.fakes import train

QUICK = {"xla_backend_optimization_level": 0}  # of LLVM's code, not of XLA's program


def planned(run):
    """Plan of a run, and programs without a step."""
    rules = rules_for(run, run.mesh)
    mesh = host_mesh(run.mesh)
    source = open_source(run.train.data, run.model.vocab_size, run.batch.seq_len)
    plan = PreparedRun(run, execution_for(run, rules, "cpu"), mesh, source)
    with jax.set_mesh(mesh):
        like = abstract_state(run, plan.execution)
        init = jax.jit(lambda: init_state(run, plan.execution))
        init = init.lower().compile(compiler_options=QUICK)
    return plan, Programs(like, None, init, None, None, None)


def saved(run, folder):
    """Plan, programs and folder of a run, saved as it begins."""
    plan, programs = planned(run)
    with jax.set_mesh(plan.mesh), Checkpoints(folder / "checkpoints") as checkpoints:
        checkpoints.save(2, to_dict(programs.init()), {}, run_dict(run))
    save_run(run, folder / "run.json")
    return plan, programs, folder


@pytest.fixture(scope="module")
def trained(toy, tmp_path_factory):
    """A run on four devices."""
    run = toy(mesh={"fsdp": 2, "tensor": 2}, steps=2, seed=3)
    return saved(run, tmp_path_factory.mktemp("export"))


@pytest.fixture(scope="module")
def exported(trained, tmp_path_factory):
    """The folder that `scaling export` wrote."""
    output = tmp_path_factory.mktemp("weights") / "out"
    assert cli.main(["export", str(trained[2]), "--output", str(output)]) == 0
    return output


def test_a_run_begins_with_the_weights_of_another_bit_for_bit(trained, exported):
    plan, programs, folder = trained
    saved, _ = newest_model(on_mesh(load_run(folder / "run.json"), plan.run.mesh), folder)
    with jax.set_mesh(plan.mesh):
        state = initial_state(plan, programs, exported)
        fresh = initial_state(plan, programs, None)
    for ours, theirs in zip(*map(jax.tree.leaves, (state.params, saved)), strict=True):
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))
    rest, expected = ((s.step, s.optimizer) for s in (state, fresh))
    for ours, theirs in zip(*map(jax.tree.leaves, (rest, expected)), strict=True):
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))
        assert ours.sharding.is_equivalent_to(theirs.sharding, ours.ndim)


@pytest.mark.slow
def test_virtual_stages_have_the_layers_of_the_files_in_its_own_order(toy, tmp_path):
    """Saved from one, exported, and begun with again: the same rows on the same stages."""
    run = toy(mesh={"data": 2, "stage": 2}, microbatches=2, seed=3)
    run = replace(run, model=replace(run.model, n_layers=4), pipeline=Pipeline("interleaved", 2))
    plan, programs, folder = saved(run, tmp_path)
    assert cli.main(["export", str(folder), "--output", str(tmp_path / "out")]) == 0
    with jax.set_mesh(plan.mesh):
        before, after = programs.init(), initial_state(plan, programs, tmp_path / "out")
    for ours, theirs in zip(*map(jax.tree.leaves, (after, before)), strict=True):
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))
        assert ours.sharding.is_equivalent_to(theirs.sharding, ours.ndim)
    tensors = load_file(tmp_path / "out" / "model.safetensors")
    stack = np.asarray(before.params.layers.mlp.up_DF[...])
    for layer, row in enumerate(np.argsort(layer_order_of(run, 4))):
        tensor = tensors[f"model.layers.{layer}.mlp.up_proj.weight"]
        np.testing.assert_array_equal(tensor.T, stack[row])
    assert layer_order_of(run, 4).tolist() != [0, 1, 2, 3]


@pytest.mark.slow
def test_training_goes_on_from_the_weights(toy, prepare, tmp_path):
    """The first loss is that of the trained model, not that of a random one."""
    plan, programs = prepare(toy(mesh={"fsdp": 4}, steps=8))
    train(plan, programs, Options(tmp_path / "before"))
    exported = tmp_path / "out"
    assert cli.main(["export", str(tmp_path / "before"), "--output", str(exported)]) == 0
    losses = {}
    for name, options in {
        "from weights": Options(tmp_path / "weights", initial=exported),
        "random": Options(tmp_path / "random"),
    }.items():
        train(plan, programs, options)
        losses[name] = (options.folder / "metrics.jsonl").read_text().splitlines()[0]
    first = {name: float(line.split('"loss": ')[1].split(",")[0]) for name, line in losses.items()}
    assert first["from weights"] < first["random"] - 0.1


def test_weights_go_through_the_memory_of_the_host(monkeypatch):
    class Accelerators:
        def devices(self, platform):
            assert platform == "cpu"
            return ["the host", "another"]

    monkeypatch.setitem(sys.modules, "jax", Accelerators())
    assert export._host() == ["the host"]

    def absent(platform):
        raise RuntimeError("Unknown backend cpu")

    monkeypatch.setattr(Accelerators, "devices", lambda self, platform: absent(platform))
    assert export._host() is None


def test_what_was_written_is_said(trained, tmp_path, capsys):
    words = ["export", str(trained[2]), "--output", str(tmp_path / "out"), "--dtype", "bf16"]
    assert cli.main(words) == 0
    said = capsys.readouterr().out
    size = (tmp_path / "out" / "model.safetensors").stat().st_size
    assert f"config.json (llama) and 1 file(s) of weights, {size:,} bytes in bf16" in said
    assert cli.main(words) == 2
    assert "is not empty" in capsys.readouterr().err


def test_weights_of_another_model_are_exit_code_2_before_any_compile(
    trained, exported, tmp_path, capsys
):
    words = ["train", "tiny", "--run-dir", str(tmp_path / "run"), "--init"]
    assert cli.main([*words, str(exported)]) == 2
    said = capsys.readouterr().err
    assert "does not hold this model" in said and "is [256, 32], not [256, 64]" in said
    assert cli.main([*words, str(tmp_path)]) == 2
    assert "holds neither model.safetensors nor" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_folder_without_a_run_cannot_be_exported(tmp_path, capsys):
    assert cli.main(["export", str(tmp_path), "--output", str(tmp_path / "out")]) == 2
    assert "not a run folder" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_model_that_no_family_expresses_is_not_exported(trained, tmp_path, capsys):
    run = load_run(trained[2] / "run.json")
    save_run(replace(run, model=replace(run.model, mlp="relu")), tmp_path / "run.json")
    assert cli.main(["export", str(tmp_path), "--output", str(tmp_path / "out")]) == 2
    assert "differs in mlp='relu'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
