"""CLIP's contrastive loss over 64 GPUs by shard_map: 65,536 pairs, features gathered, gradients.

FLOPs of a GPU: heads 2 x 2 x rows x D E for both towers, logits 2 x rows x 65,536 x E
(Radford et al., arXiv 2103.00020, figure 3); the logits' two gradients, the heads' one.
"""

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import scaling as sc
from experiments.foreign.work import Work

PAIRS, D, E, GPUS = 65_536, 1024, 768, 64
ROWS = PAIRS // GPUS


def loss(heads, pictures, texts):
    a, b = (x @ w / jnp.linalg.norm(x @ w, axis=-1, keepdims=True)
            for x, w in zip((pictures, texts), heads, strict=True))  # fmt: skip
    everybody = jax.lax.all_gather(b, "data", tiled=True)
    logits = 20 * (a @ everybody.T).astype(jnp.float32)
    own = jax.lax.axis_index("data") * ROWS + jnp.arange(ROWS)
    correct = jnp.take_along_axis(logits, own[:, None], 1)[:, 0]
    return jax.lax.pmean((jax.nn.logsumexp(logits, -1) - correct).mean(), "data")


WORK = Work(3 * 2 * ROWS * PAIRS * E + 2 * 2 * 2 * ROWS * D * E)


def price() -> sc.Prediction:
    mesh = sc.device_mesh("data=64", cluster="dgx-h100")
    whole = jax.shard_map(loss, mesh=mesh, in_specs=(P(), P("data"), P("data")), out_specs=P())
    array = lambda shape, *spec: jax.ShapeDtypeStruct(
        shape, jnp.bfloat16, sharding=NamedSharding(mesh, P(*spec))
    )
    x = array((PAIRS, D), "data")
    return sc.predict_step(jax.jit(jax.grad(whole)), (array((D, E)),) * 2, x, x, cluster="dgx-h100")
