"""What the programs of AXLearn share: its trainer of a named configuration, and the lowered step.

As in its `compile_train_step`, whose batch would be read from a data set, and which compiles.
"""

import tempfile

import jax
import jax.numpy as jnp
import numpy as np
from axlearn.common.utils import set_data_dir
from axlearn.experiments.text.gpt import c4_trainer

jax.config.update("jax_default_prng_impl", "rbg")  # as its launcher does


def lowered_step(name: str, *, data: int, fsdp: int, batch: int, length: int) -> jax.stages.Lowered:
    """Return the lowered step of a configuration over `data` x `fsdp` devices."""
    shape = (1, data, 1, fsdp, 1, 1)
    with set_data_dir("FAKE"):
        config = c4_trainer.named_trainer_configs()[name]()
        config.dir, config.mesh_shape = tempfile.mkdtemp(), shape
        trainer = config.instantiate(parent=None, devices=np.reshape(jax.devices(), shape))
    tokens = jax.ShapeDtypeStruct((batch, length), jnp.int32)
    examples = {"input_ids": tokens, "target_labels": tokens}
    with trainer.mesh(), trainer._context_manager():
        array = lambda spec: jax.ShapeDtypeStruct(spec.shape, spec.dtype)
        state = jax.tree.map(array, trainer.trainer_state_specs)
        return trainer._pjit_train_step().lower(state, examples)
