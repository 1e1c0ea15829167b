"""Matrix products of 8-bit floating-point numbers (arXiv 2209.05433).

    s = max |x| / largest of the format      q = round(x / s)      x w ~ s_x s_w (q_x q_w)

    values     E4M3, up to 448: three bits of mantissa
    gradients  E5M2, up to 57344: two bits, and the range that gradients need

Each device scales by the largest number that it holds of a tensor at that moment ("current
scaling"): nothing is remembered from step to step, and nothing exchanged. Activations and gathered
weights stay bf16, parameters and sums of gradients are what they are with bf16; products are added
up in float32.
"""

import functools

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jax.sharding import reshard

from scaling.meshes.rules import Rules, named
from scaling.models.pipeline.shard_map import shard_map_per_stage

VALUES, GRADIENTS = jnp.float8_e4m3fn, jnp.float8_e5m2
TINY = 1e-30  # stands for the largest of zeros; its scale is still a normal float32


def quantized(x: jax.Array, dtype: jnp.dtype) -> tuple[jax.Array, jax.Array]:
    """`x` scaled to the range of an 8-bit format and rounded to nearest, and the scale (float32).

    A tensor that holds an infinity or NaN gets a scale, and so a product, that shows it.
    """
    largest = float(jnp.finfo(dtype).max)
    scale = jnp.maximum(jnp.abs(x).max().astype(jnp.float32), TINY) / largest
    # Clipped, as dividing may round up past the largest number, which E4M3 would make NaN.
    return jnp.clip(x.astype(jnp.float32) / scale, -largest, largest).astype(dtype), scale


def multiply(
    equation: str, formats: tuple[jnp.dtype, jnp.dtype], a: jax.Array, b: jax.Array
) -> jax.Array:
    """The product of one device's arrays in these 8-bit formats, in the format of `a`."""
    (a8, of_a), (b8, of_b) = quantized(a, formats[0]), quantized(b, formats[1])
    y = jnp.einsum(equation, a8, b8, preferred_element_type=jnp.float32)
    return (y * (of_a * of_b)).astype(a.dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def product(rules: Rules, equation: str, target: P, x: jax.Array, w: jax.Array) -> jax.Array:
    """`jnp.einsum(equation, x, w, out_sharding=target)`, it and its gradients in 8-bit formats.

    Args:
        rules: say whether it runs in stages of a pipeline.
        equation: of two operands, without repeated or lonely letters in one of them.
        target: spec of the result, `unreduced` where it is left as one sum per device.
        x, w: in the format of the result; a gradient arrives as the spec of its operand says
            (`reduced`: one sum per device).
    """
    return _on_devices(rules, equation, (VALUES, VALUES), x, w, target)


def _forward(rules: Rules, equation: str, target: P, x: jax.Array, w: jax.Array) -> tuple:
    return product(rules, equation, target, x, w), (x, w)


def _backward(rules: Rules, equation: str, target: P, kept: tuple, gradient: jax.Array) -> tuple:
    x, w = kept
    of_x, of_w, of_y = equation.replace("->", ",").split(",")
    to_x = f"{of_y},{of_w}->{of_x}", (GRADIENTS, VALUES), gradient, w, _of_gradient(x)
    to_w = f"{of_x},{of_y}->{of_w}", (VALUES, GRADIENTS), x, gradient, _of_gradient(w)
    return _on_devices(rules, *to_x), _on_devices(rules, *to_w)


product.defvjp(_forward, _backward)


def _on_devices(
    rules: Rules,
    equation: str,
    formats: tuple[jnp.dtype, jnp.dtype],
    a: jax.Array,
    b: jax.Array,
    target: P,
) -> jax.Array:
    """Every device multiplies what it has; sums over devices that `target` wants follow."""
    specs = tuple(P(*_spec(operand).partitions) for operand in (a, b))
    summed = named([*specs[0], *specs[1]]) - named(target.partitions)
    local = functools.partial(multiply, equation, formats)
    out = P(*target.partitions, unreduced=summed)
    alone = functools.partial(jnp.einsum, equation, out_sharding=out)
    mapped = shard_map_per_stage(rules, local, specs, out, abstract_impl=alone)
    return reshard(mapped(reshard(a, specs[0]), reshard(b, specs[1])), target)


def _of_gradient(operand: jax.Array) -> P:
    spec = _spec(operand)
    return P(*spec.partitions, unreduced=spec.reduced)


def _spec(x: jax.Array) -> P:
    return jax.typeof(x).sharding.spec
