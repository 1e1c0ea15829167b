"""The same models here: from Hugging Face files to logits, on any mesh."""

from pathlib import Path
from typing import Any

import jax
import numpy as np

from scaling.meshes.devices import host_mesh
from scaling.meshes.shape import MeshShape
from scaling.models.execution import Execution
from scaling.models.huggingface.read import read_config
from scaling.models.transformer import Transformer
from scaling.run import Batch, Run
from scaling.run.parallelism.rules import rules_for
from scaling.training.step import abstract_state
from scaling.training.weights.imported import import_weights

QUICK: dict[str, Any] = {
    "xla_backend_optimization_level": 0
}  # of LLVM's code, not of XLA's program


def load(folder: Path, tokens: np.ndarray, shape: MeshShape) -> tuple[Transformer, np.ndarray]:
    """The model of a folder on a mesh, in float32, and its logits [B, S, V].

    Args:
        folder: config.json and weights.
        tokens: int [B, S].
        shape: of fake devices.
    """
    run = Run("parity", read_config(folder), Batch(*tokens.shape))
    execution = Execution(rules_for(run, shape), compute="fp32")
    mesh = host_mesh(shape)
    with jax.set_mesh(mesh):
        model = import_weights(folder, abstract_state(run, execution).params)
        sharding = jax.NamedSharding(mesh, execution.spec("batch", "sequence"))
        placed = jax.device_put(tokens.astype(np.int32), sharding)
        forward = jax.jit(lambda model, tokens: model(tokens)).lower(model, placed)
        return model, np.asarray(forward.compile(compiler_options=QUICK)(model, placed))
