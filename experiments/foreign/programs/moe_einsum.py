"""A layer of 8 experts with dispatch by einsum (GShard), 8 GPUs, one expert each, gradients.

Groups of 4096 tokens, capacity C = 2 x 4096 / 8. FLOPs a group: dispatch and combine 2 x 2 T E C D,
experts 4 E C D F, router 2 T D E (Lepikhin et al., arXiv 2006.16668, algorithm 1); three times with
gradients, combine's gradient of the mask among them; the input's and the dispatch mask's are not
asked for.
"""

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import scaling as sc
from experiments.foreign.work import Work

GROUPS, T, E, D, F, GPUS = 32, 4096, 8, 2048, 8192, 8
C = 2 * T // E


def layer(w, x):
    gates = jax.nn.softmax((x @ w["router"]).astype(jnp.float32))
    expert = jax.nn.one_hot(jnp.argmax(gates, -1), E)
    place = (jnp.cumsum(expert, 1) * expert - 1).astype(jnp.int32)
    mask = (expert[..., None] * jax.nn.one_hot(place, C)).astype(x.dtype)
    combine = mask * gates[..., None].astype(x.dtype)
    sent = jnp.einsum("gtec,gtd->egcd", mask, x)
    sent = jax.lax.with_sharding_constraint(sent, P("expert"))
    out = jnp.einsum("egcf,efd->egcd", jax.nn.gelu(jnp.einsum("egcd,edf->egcf", sent, w["up"])),
                     w["down"])  # fmt: skip
    out = jax.lax.with_sharding_constraint(out, P(None, "expert"))
    return jnp.einsum("gtec,egcd->gtd", combine, out)


@jax.jit
def gradients(w, x):
    return jax.grad(lambda w: jnp.square(layer(w, x).astype(jnp.float32)).mean())(w)


MASKED, EXPERTS, ROUTER = 2 * T * E * C * D, 2 * E * C * D * F, 2 * T * D * E
# dispatch once; combine, its gradients of mask and of values; experts: up has no gradient of x
WORK = Work(GROUPS / GPUS * (4 * MASKED + 5 * EXPERTS + 2 * ROUTER))


def price() -> sc.Prediction:
    mesh = sc.device_mesh("expert=8", cluster="dgx-h100")
    array = lambda shape, *spec: jax.ShapeDtypeStruct(
        shape, jnp.bfloat16, sharding=NamedSharding(mesh, P(*spec))
    )
    w = {"router": array((D, E)), "up": array((E, D, F), "expert"),
         "down": array((E, F, D), "expert")}  # fmt: skip
    return sc.predict_step(gradients, w, array((GROUPS, T, D), "expert"), cluster="dgx-h100")
