"""Blind: ZeRO-offload, an MLP of 1.6 billion weights over 8 GPUs, Adam's moments in host memory.

FLOPs of a GPU: 3 x 2 x rows x weights, less the gradient of the rows themselves. Bytes of device
memory: master weights read and written, both moments written and read on their way to the host
and back (Ren et al., arXiv 2101.06840, moves the same moments). Counted before it was priced.
"""

import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import scaling as sc
from experiments.foreign.work import Work

LAYERS, D, ROWS, GPUS = 24, 8192, 65_536, 8
WEIGHTS = LAYERS * D**2
WORK = Work(2 * ROWS / GPUS * (3 * WEIGHTS - D**2), WEIGHTS / GPUS * 4 * (2 + 4), dtype="bf16")
optimizer = optax.adam(1e-4)


def loss(weights, x):
    layer = lambda x, w: (jax.nn.relu(x @ w.astype(jnp.bfloat16)), None)
    return jnp.square(jax.lax.scan(layer, x, weights)[0].astype(jnp.float32)).mean()


def make_step(on_device, on_host):
    def step(weights, state, x):
        state = jax.device_put(state, on_device)
        updates, state = optimizer.update(jax.grad(loss)(weights, x), state)
        return optax.apply_updates(weights, updates), jax.device_put(state, on_host)

    return step


def price() -> sc.Prediction:
    mesh = sc.device_mesh("data=8", cluster="dgx-h100")
    weights = jax.ShapeDtypeStruct((LAYERS, D, D), jnp.float32)
    state = jax.eval_shape(optimizer.init, weights)
    cut = lambda x: P(None, None, "data") if x.ndim == 3 else P()
    on_device = jax.tree.map(lambda x: NamedSharding(mesh, cut(x)), state)
    on_host = jax.tree.map(
        lambda x: NamedSharding(mesh, cut(x), memory_kind="pinned_host" if x.ndim else "device"),
        state,
    )
    where = NamedSharding(mesh, P(None, None, "data")), on_host
    rows = NamedSharding(mesh, P("data"))
    step = jax.jit(
        make_step(on_device, on_host), in_shardings=(*where, rows), out_shardings=where,
        donate_argnums=(0, 1),
    )  # fmt: skip
    x = jax.ShapeDtypeStruct((ROWS, D), jnp.bfloat16)
    return sc.predict_step(step, weights, state, x, cluster="dgx-h100")
