"""Matrix products in 8-bit floating point (arXiv 2209.05433).

    s = max |x| / largest of the format      q = round(x / s)      x w ~ s_x s_w (q_x q_w)

    values     E4M3, up to 448: three bits of mantissa
    gradients  E5M2, up to 57344: two bits, and the range that gradients need

Each device scales by the largest absolute value of its own shard of a tensor ("current scaling"):
no state is kept from step to step, and nothing is communicated. Activations and gathered weights
are bf16, parameters and sums of gradients as under bf16; products are accumulated in float32.
"""

import functools

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jax.sharding import reshard

from scaling.meshes.rules import Rules, named
from scaling.models.execution import spec_of
from scaling.models.pipeline.shard_map import shard_map_per_stage

Formats = tuple[jax.typing.DTypeLike, jax.typing.DTypeLike]  # of two operands
VALUES, GRADIENTS = jnp.float8_e4m3fn, jnp.float8_e5m2
TINY = 1e-30  # replaces a largest value of zero; its scale is still a normal float32


def quantized(x: jax.Array, dtype: jax.typing.DTypeLike) -> tuple[jax.Array, jax.Array]:
    """`x` scaled to the range of an 8-bit format and rounded to nearest, and the scale (float32).

    An infinity or NaN in the tensor shows in the scale, and so in the product.
    """
    largest = float(jnp.finfo(dtype).max)
    scale = jnp.maximum(jnp.abs(x).max().astype(jnp.float32), TINY) / largest
    # Clipped: dividing may round up past the largest number, which is NaN in E4M3.
    return jnp.clip(x.astype(jnp.float32) / scale, -largest, largest).astype(dtype), scale


def multiply(equation: str, formats: Formats, a: jax.Array, b: jax.Array) -> jax.Array:
    """The product of one device's arrays quantized to these formats; in the format of `a`."""
    (a8, scale_a), (b8, scale_b) = quantized(a, formats[0]), quantized(b, formats[1])
    y = jnp.einsum(equation, a8, b8, preferred_element_type=jnp.float32)
    return (y * (scale_a * scale_b)).astype(a.dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def local_product(equation: str, x: jax.Array, w: jax.Array) -> jax.Array:
    """`jnp.einsum(equation, x, w)` and its gradients in 8-bit formats, inside a `shard_map`."""
    return multiply(equation, (VALUES, VALUES), x, w)


def _local_gradients(equation: str, saved: tuple, gradient: jax.Array) -> tuple:
    (x, w), (to_x, to_w) = saved, _transposed(equation)
    dx = multiply(to_x, (GRADIENTS, VALUES), gradient, w)
    return dx, multiply(to_w, (VALUES, GRADIENTS), x, gradient)


local_product.defvjp(
    lambda equation, x, w: (local_product(equation, x, w), (x, w)), _local_gradients
)


def _transposed(equation: str) -> tuple[str, str]:
    """Equations of the gradients: of x from (y, w), of w from (x, y)."""
    x, w, y = equation.replace("->", ",").split(",")
    return f"{y},{w}->{x}", f"{x},{y}->{w}"


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def product(rules: Rules, equation: str, target: P, x: jax.Array, w: jax.Array) -> jax.Array:
    """`jnp.einsum(equation, x, w, out_sharding=target)` and its gradients in 8-bit formats.

    Saved for the backward pass: `x` and `w`, unquantized.

    Every letter of the equation is in two of x, w and the result. `target` is the result's spec,
    `unreduced` where it stays one partial sum per device. A gradient has the sharding of its
    operand, one partial sum per device over axes that the operand is marked `reduced` over.
    """
    return _on_devices(rules, equation, (VALUES, VALUES), x, w, target)


def _gradients(rules: Rules, equation: str, target: P, saved: tuple, gradient: jax.Array) -> tuple:
    (x, w), (of_x, of_w) = saved, _transposed(equation)
    to_x = of_x, (GRADIENTS, VALUES), gradient, w, _gradient_spec(x)
    to_w = of_w, (VALUES, GRADIENTS), x, gradient, _gradient_spec(w)
    return _on_devices(rules, *to_x), _on_devices(rules, *to_w)


product.defvjp(
    lambda rules, equation, target, x, w: (product(rules, equation, target, x, w), (x, w)),
    _gradients,
)


def _on_devices(
    rules: Rules, equation: str, formats: Formats, a: jax.Array, b: jax.Array, target: P
) -> jax.Array:
    """Every device multiplies its shards; sums over devices follow as `target` demands."""
    specs = tuple(P(*spec_of(operand).partitions) for operand in (a, b))
    summed = named([*specs[0], *specs[1]]) - named(target.partitions)
    partial_sum = lambda a, b: jax.lax.pcast(
        multiply(equation, formats, a, b), tuple(sorted(summed)), to="unreduced"
    )
    out = P(*target.partitions, unreduced=summed)
    alone = functools.partial(jnp.einsum, equation, out_sharding=out)
    mapped = shard_map_per_stage(rules, partial_sum, specs, out, abstract_impl=alone)
    return reshard(mapped(reshard(a, specs[0]), reshard(b, specs[1])), target)


def _gradient_spec(operand: jax.Array) -> P:
    spec = spec_of(operand)
    return P(*spec.partitions, unreduced=spec.reduced)
