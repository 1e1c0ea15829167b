"""The estimate that the author of a Pallas kernel gives is found in the traced step."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from scaling.compile.pallas import estimated_work
from scaling.hlo.user_hints import Work

X = jax.ShapeDtypeStruct((64, 64), jnp.bfloat16)


def multiplied(x: jax.Array, flops: int | None = 1000, name: str | None = "mine") -> jax.Array:
    def kernel(a, b, out):
        out[...] = (a[...] @ b[...]).astype(out.dtype)

    estimate = flops and pl.CostEstimate(flops=flops, transcendentals=5, bytes_accessed=64)
    call = pl.pallas_call(kernel, out_shape=X, name=name, cost_estimate=estimate)
    return call(x, x)


def works(function):
    return estimated_work(jax.jit(function).trace(X).jaxpr)


def test_the_work_is_the_estimate_in_the_format_of_its_products():
    expected = Work(flops=1000.0, bytes=64.0, dtype="bf16", transcendentals=5.0)
    assert works(multiplied) == {"mine": expected}


def test_a_call_without_a_name_has_that_of_its_function():
    assert set(works(lambda x: multiplied(x, name=None))) == {"kernel"}


def test_kernels_inside_loops_and_gradients_are_found():
    def layers(x):
        return jax.lax.scan(lambda h, _: (jax.jit(multiplied)(h), None), x, length=3)[0]

    assert set(works(layers)) == {"mine"}


def test_without_an_estimate_or_with_several_nothing_is_said():
    assert works(lambda x: multiplied(x, None)) == {}
    assert works(lambda x: multiplied(multiplied(x), 2000)) == {}
    two = works(lambda x: multiplied(multiplied(x), 2000, "other"))
    assert {name: work.flops for name, work in two.items()} == {"mine": 1000, "other": 2000}


def test_a_kernel_without_products_has_vector_arithmetic():
    def doubled(x):
        def kernel(a, out):
            out[...] = a[...] * 2

        estimate = pl.CostEstimate(flops=9, transcendentals=0, bytes_accessed=0)
        return pl.pallas_call(kernel, out_shape=X, name="double", cost_estimate=estimate)(x)

    assert works(doubled) == {"double": Work(flops=9.0)}
