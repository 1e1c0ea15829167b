"""A run with adapters and a running mean: from weights to resume, evaluation and export."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scaling.cli import main as cli
from scaling.meshes.devices import host_mesh
from scaling.meshes.errors import InputError
from scaling.meshes.shape import MeshShape
from scaling.models.lora import Lora
from scaling.models.transformer import Transformer
from scaling.training.prepare import initial_state
from scaling.training.run_folder.folder import Options
from scaling.training.run_folder.metrics import read_metrics
from scaling.training.starting import options_of
from scaling.training.trained_model import newest_model, on_mesh, run_of_folder
from scaling.training.weights.exported import export_weights
from scaling.training.weights.naming import to_dict
from tests.harness import execution_of
from tests.scaling.training.checkpoint.test_resume import Interrupted, final_state
from tests.scaling.training.fakes import train, with_step

LORA = Lora(4, 8.0, ("query", "out", "down"))
EMA = 0.5
MESH = {"fsdp": 2, "tensor": 2}


def losses(folder):
    return [line["loss"] for line in read_metrics(folder) if "loss" in line]


@pytest.fixture(scope="module")
def weights(toy, tmp_path_factory):
    """Safetensors of another model of the same shape, and its arrays by name."""
    run, folder = toy(), tmp_path_factory.mktemp("base") / "weights"
    with jax.set_mesh(host_mesh(run.mesh)):
        params = Transformer(run.model, execution_of(run), jax.random.key(9))
        export_weights(params, folder, run.batch.seq_len)
    return folder, {name: np.asarray(array) for name, array in to_dict(params).items()}


@pytest.fixture(scope="module")
def tuned(toy, prepare, weights, tmp_path_factory):
    """Plan and programs of a run with adapters that begins with those weights, and its folder."""
    folder = tmp_path_factory.mktemp("tuned")
    run = toy(mesh=MESH, lora=LORA, ema=EMA, eval_every=4, checkpoint_every=4)
    prepared = prepare(replace(run, precision=replace(run.precision, frozen="bf16")))
    train(*prepared, Options(folder, initial=weights[0]))
    return prepared, folder


def arrays_of(folder, weights=None):
    """Parameters of the newest checkpoint by name."""
    run = on_mesh(run_of_folder(folder), MeshShape(**MESH))
    params, _ = newest_model(run, folder, weights=weights)
    return {name: np.asarray(array) for name, array in to_dict(params).items()}


def test_it_begins_with_the_weights_and_fresh_adapters(weights, tuned):
    plan, programs = tuned[0]
    with jax.set_mesh(plan.mesh):
        state = initial_state(plan, programs, weights[0])
    for mean, tree in (("", state.params), ("mean", state.ema)):
        for name, array in to_dict(tree).items():
            if "adapters" not in name:
                assert not mean  # which is of the trained parameters
                expected = weights[1][name]
                expected = expected if name.endswith("scale") else expected.astype(jnp.bfloat16)
                assert array.dtype == expected.dtype
                np.testing.assert_array_equal(np.asarray(array), expected)
            elif name.endswith("/b"):
                assert not np.asarray(array).any()
    found = losses(tuned[1])
    assert found[-1] < found[0]


def test_a_resumed_run_is_the_uninterrupted_one_bit_for_bit(tuned, weights, tmp_path):
    prepared, folder = tuned

    def stop(step):
        if step == 6:
            raise Interrupted

    with pytest.raises(Interrupted):
        train(*with_step(prepared, act=stop), Options(tmp_path, initial=weights[0]))
    train(*prepared, Options(tmp_path, resume=True))
    assert losses(tmp_path)[-4:] == losses(folder)[-4:]
    (arrays, place), (expected, other) = (final_state(prepared, f) for f in (tmp_path, folder))
    assert place == other and any(name.startswith("ema/") for name in arrays)
    assert [n for n in arrays if arrays[n].tobytes() != expected[n].tobytes()] == []


def test_the_exported_model_has_the_adapters_in_its_matrices(tuned, tmp_path):
    """Of the running mean, unless the last weights are asked for."""
    prepared, folder = tuned
    saved, _ = final_state(prepared, folder)
    for weights, source in (("last", "params"), (None, "ema"), ("ema", "ema")):
        arrays, place = arrays_of(folder, weights), "layers/attention"
        a, b = (saved[f"{source}/{place}/adapters/query_DNK/{factor}"] for factor in "ab")
        change = LORA.scale * np.einsum("ldr,lrnk->ldnk", a, b)
        whole = saved[f"params/{place}/query_DNK"].astype(np.float32) + change
        np.testing.assert_allclose(arrays[f"{place}/query_DNK"], whole, rtol=1e-5, atol=1e-7)
        np.testing.assert_array_equal(
            arrays["embedding/table_VD"], saved["params/embedding/table_VD"]
        )
        assert not any("adapters" in name for name in arrays)
    out = tmp_path / "out"
    assert cli.main(["export", str(folder), "--output", str(out), "--weights", "last"]) == 0
    assert len(list(out.glob("*.safetensors"))) == 1


def test_the_running_mean_has_a_held_out_loss_of_its_own(tuned):
    line = [line for line in read_metrics(tuned[1]) if "held_out_loss" in line][-1]
    assert line["held_out_loss"] != line["held_out_loss_ema"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lora": None}, r'train.lora=.*"rank": 4.*, not null'),
        ({"lora": replace(LORA, rank=2)}, r'train.lora=.*"rank": 4.*, not .*"rank": 2'),
        ({"ema": None}, "train.ema=0.5, not null"),
        ({"lora": None, "freeze": ("embedding/*",)}, "train.lora"),
    ],
)
def test_another_choice_of_what_is_trained_is_not_resumed(toy, tuned, changes, message):
    run = replace(tuned[0][0].run, train=replace(tuned[0][0].run.train, **changes))
    with pytest.raises(InputError, match=f"--resume: .* was trained with {message}"):
        options_of(run, tuned[1], True, None, None, (False, False))


def test_a_run_without_a_running_mean_has_none_to_choose(toy, tmp_path):
    with pytest.raises(InputError, match="keeps no running mean"):
        newest_model(toy(), tmp_path, weights="ema")
