"""A saved model, and what it says of each token by itself: in numpy, without batches or padding."""

import numpy as np
import pytest

from scaling.meshes.shape import MeshShape


@pytest.fixture(scope="session")
def folder(toy, tmp_path_factory):
    """A run on four devices, saved as it begins but with larger weights: so tokens differ."""
    import jax

    from scaling.meshes.devices import host_mesh
    from scaling.run import run_dict, save_run
    from scaling.run.parallelism.rules import rules_for
    from scaling.training.checkpoint.checkpoints import Checkpoints
    from scaling.training.execution import execution_for
    from scaling.training.step import init_state
    from scaling.training.weights.naming import to_dict

    run, folder = toy(mesh={"fsdp": 4}), tmp_path_factory.mktemp("evaluated")
    execution = execution_for(run, rules_for(run, run.mesh), "cpu")
    with jax.set_mesh(host_mesh(run.mesh)), Checkpoints(folder / "checkpoints") as checkpoints:
        state = jax.jit(lambda: init_state(run, execution))()
        params = jax.tree.map(lambda x: 4 * x, state.params)
        state = state._replace(step=state.step + 3, params=params)
        checkpoints.save(3, to_dict(state), {}, run_dict(run))
    save_run(run, folder / "run.json")
    return folder


@pytest.fixture(scope="session")
def load(folder):
    """Model and run of the folder: load(MeshShape(), batch)."""
    from scaling.training.trained_model import newest_model, on_mesh, run_of_folder

    def loaded(mesh=None, batch=None, seq_len=None):
        run = on_mesh(run_of_folder(folder), mesh or MeshShape(), batch, seq_len)
        return newest_model(run, folder)[0], run

    return loaded


@pytest.fixture(scope="session")
def log_softmax(load):
    """float64 log-probabilities [tokens, V] of what follows each of some ids."""
    import jax

    model, run = load()
    whole = jax.jit(lambda model, tokens: model(tokens))

    def of(ids):
        padded = np.zeros((1, run.batch.seq_len), np.int32)
        padded[0, : len(ids)] = ids
        with jax.set_mesh(jax.tree.leaves(model)[0].sharding.mesh):
            logits = np.asarray(whole(model, padded), np.float64)[0, : len(ids)]
        return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))

    return of
