"""A framework's set-up: a hybrid mesh of 8 nodes, state from a jitted init, device_put.

FLOPs of a GPU: 8 layers of 2 x rows x D^2, three times with
gradients.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import scaling as sc
from experiments.foreign.work import Work

LAYERS, D, ROWS = 8, 8192, 8192


class Trainer:
    """Asks jax for its devices, as frameworks do."""

    def __init__(self):
        nodes = jax.process_count()
        devices = mesh_utils.create_hybrid_device_mesh(
            (1, jax.local_device_count()), (nodes, 1), process_is_granule=True
        )
        self.mesh = Mesh(devices, ("data", "model"))
        cut = NamedSharding(self.mesh, P(None, None, "model"))
        make = lambda: jnp.zeros((LAYERS, D, D), jnp.bfloat16)
        self.weights = jax.jit(make, out_shardings=cut)()
        rows = np.zeros((ROWS * nodes, D), jnp.bfloat16)
        self.batch = jax.device_put(rows, NamedSharding(self.mesh, P("data")))

    @staticmethod
    @jax.jit
    def step(weights, x):
        def loss(weights):
            layer = lambda x, w: (jax.nn.relu(x @ w), None)
            return jnp.square(jax.lax.scan(layer, x, weights)[0].astype(jnp.float32)).mean()

        return jax.tree.map(lambda w, g: w - 1e-3 * g, weights, jax.grad(loss)(weights))


WORK = Work(3 * LAYERS * 2 * ROWS * D**2 / 8)


def price() -> sc.Prediction:
    with sc.pretend("dgx-h100", nodes=8):
        trainer = Trainer()
        return sc.predict_step(trainer.step, trainer.weights, trainer.batch, cluster="dgx-h100")
