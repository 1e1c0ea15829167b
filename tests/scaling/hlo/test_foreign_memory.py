"""The peak of steps that are not ours against what XLA planned for H100s that are not here."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from scaling.compile.jitted import mesh, program_and_text
from scaling.meshes import catalog
from scaling.simulate.memory import memory_use

pytestmark = [pytest.mark.slow, pytest.mark.deviceless]
BOUND = 0.02  # relative
F32, BF16 = jnp.float32, jnp.bfloat16


def product(x, w):
    return jnp.tanh(jnp.tanh(x @ w) @ w) @ w


def summed(x, w):
    return jax.lax.with_sharding_constraint(x.T @ w, PartitionSpec())


def embedding(table, tokens, grad):
    loss = lambda table: (table[tokens] * grad).sum()
    return table - 1e-3 * jax.grad(loss)(table)


def cross_entropy(h, w, labels):
    def loss(h):
        logits = (h @ w).astype(F32)
        chosen = jnp.take_along_axis(logits, labels[:, None], axis=-1)[:, 0]
        return (jax.nn.logsumexp(logits, axis=-1) - chosen).mean()

    return jax.grad(loss)(h)


def adam(p, g, mu, nu):
    mu, nu = 0.9 * mu + 0.1 * g, 0.99 * nu + 0.01 * g * g
    return p - 1e-3 * mu / (jnp.sqrt(nu) + 1e-8), mu, nu


def layers(ws, x):
    return jax.grad(lambda ws: jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, ws)[0].sum())(
        ws
    )


def ring(x, w):
    """Each of eight devices adds what it makes of the rows that its neighbour made."""

    def turn(_, rows):
        sent = jax.lax.ppermute(rows, "data", [(i, (i + 1) % 8) for i in range(8)])
        return jax.nn.softmax(sent @ w) @ w.T

    def local(x, w):
        return jax.lax.fori_loop(0, 8, turn, x)[:1]

    rows = PartitionSpec("data")
    return jax.shard_map(local, in_specs=(rows, PartitionSpec()), out_specs=rows)(x, w)


STATE = [((8192, 4096), F32, "data")] * 4
CASES = {
    "products": (product, [((65536, 4096), BF16, "data"), ((4096, 4096), BF16)], ()),
    "summed over devices": (summed, [((8192, 8192), BF16, "data")] * 2, ()),
    "cholesky": (jnp.linalg.cholesky, [((4096, 4096), F32)], ()),
    "svd": (jnp.linalg.svd, [((2048, 2048), F32)], ()),
    "gradient of an embedding": (
        embedding,
        [((128256, 1024), F32), ((32768,), jnp.int32, "data"), ((32768, 1024), F32, "data")],
        (0,),
    ),
    "gradient of a loss": (
        cross_entropy,
        [((32768, 1024), BF16, "data"), ((1024, 128256), BF16), ((32768,), jnp.int32, "data")],
        (),
    ),
    "adam, donated": (adam, STATE, (0, 2, 3)),
    "adam, not donated": (adam, STATE, ()),
    "rows that are sent around": (
        ring,
        [((131072, 1024), BF16, "data"), ((1024, 2048), BF16)],
        (),
    ),
    "scanned layers": (layers, [((12, 2048, 2048), BF16), ((16384, 2048), BF16, "data")], ()),
}


@pytest.mark.parametrize("case", CASES)
def test_the_walk_finds_the_peak_that_the_compiler_planned(case: str) -> None:
    function, arrays, donated = CASES[case]
    cluster = catalog.load("dgx-h100")
    place = mesh({"data": 8}, cluster)
    arguments = tuple(
        jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(place, PartitionSpec(*axes)))
        for shape, dtype, *axes in arrays
    )
    jitted = jax.jit(function, donate_argnums=donated)
    program, _ = program_and_text(jitted, arguments, cluster)
    assert memory_use(program).peak == pytest.approx(program.compiler_peak, rel=BOUND)
