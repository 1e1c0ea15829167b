"""Blind: numpyro's SVI.update of a Bayesian MLP (784, 2048, 2048, 10) on 32,768 rows, AutoNormal.

FLOPs: 2 x rows x weights forward, three times, less the gradient of the rows. One draw of the
weights for the evidence bound (Hoffman et al., arXiv 1206.7051). Counted, and committed, before it
was priced.
"""

import jax
import jax.numpy as jnp
import numpyro
from numpyro import distributions as dist
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal

import scaling as sc
from experiments.foreign.work import Work

NEEDS = "others"
SOURCE = f"numpyro {numpyro.__version__}"
ROWS, SIZES = 32_768, (784, 2048, 2048, 10)
LAYERS = tuple(zip(SIZES, SIZES[1:], strict=False))
WORK = Work(2 * ROWS * (3 * sum(a * b for a, b in LAYERS) - SIZES[0] * SIZES[1]), dtype="tf32")


def model(x, y):
    for i, shape in enumerate(LAYERS):
        w = numpyro.sample(f"w{i}", dist.Normal(0, 1 / shape[0] ** 0.5).expand(shape).to_event(2))
        x = jax.nn.relu(x @ w) if i < len(LAYERS) - 1 else x @ w
    with numpyro.plate("rows", ROWS):
        numpyro.sample("y", dist.Categorical(logits=x), obs=y)


svi = SVI(model, AutoNormal(model), numpyro.optim.Adam(1e-3), Trace_ELBO())


def price() -> sc.Prediction:
    x = jax.ShapeDtypeStruct((ROWS, SIZES[0]), jnp.float32)
    y = jax.ShapeDtypeStruct((ROWS,), jnp.int32)
    state = jax.eval_shape(svi.init, jax.random.key(0), x, y)
    return sc.predict_step(jax.jit(svi.update), state, x, y, cluster="dgx-h100")
