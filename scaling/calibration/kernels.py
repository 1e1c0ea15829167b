"""Cases of matrix products and of attention, each on all devices at once.

Attention is the model's own call, forward, and forward with backward: the backward pass alone is
the difference of the two, repeat by repeat.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from scaling.calibration.sizes import Sizes
from scaling.calibration.timing import Case
from scaling.meshes.rules import make_rules
from scaling.meshes.shape import MeshShape
from scaling.models.attention import attend
from scaling.models.execution import Execution
from scaling.profiles.samples import AttentionSample, MatmulSample, Sample

DTYPES = {"fp32": jnp.float32, "tf32": jnp.float32, "bf16": jnp.bfloat16, "fp16": jnp.float16}


def matmul_cases(mesh: Mesh, sizes: Sizes) -> Iterator[Case]:
    """Yields every shape in every dtype, and square ones in the other dtypes.

    Products are as in the models: true fp32 for "fp32", else as the device likes.
    """
    for dtype in (*sizes.dtypes, *sizes.other_dtypes):
        highest = dtype == "fp32"
        precision = jax.lax.Precision.HIGHEST if highest else jax.lax.Precision.DEFAULT
        product = partial(jnp.matmul, precision=precision)
        for batch, m, n, k in sizes.shapes:
            if dtype in sizes.dtypes or (batch == 1 and m == n == k):
                sample = MatmulSample(dtype, batch, m, n, k, ())
                shapes = ((batch, m, k), (batch, k, n)) if batch > 1 else ((m, k), (k, n))
                yield Case(sample, mesh, product, shapes, DTYPES[dtype])


def attention_cases(mesh: Mesh, sizes: Sizes, flash: bool) -> Iterator[Case]:
    """Yields forward, and forward with backward, of every size; `flash`: by cuDNN's kernel."""
    dtype: Literal["bf16", "fp32"] = "bf16" if flash else "fp32"
    rules = make_rules(MeshShape(data=mesh.size), False)
    kernel: Literal["cudnn", "xla"] = "cudnn" if flash else "xla"
    execution = Execution(rules, compute=dtype, attention_kernel=kernel)

    def forward(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        return attend(q, k, v, execution, None)

    def both(q: jax.Array, k: jax.Array, v: jax.Array, slope: jax.Array) -> tuple[jax.Array, ...]:
        out, back = jax.vjp(forward, q, k, v)
        return out, *back(slope)

    for batch, heads, tokens, head in sizes.attention:
        sample = AttentionSample(dtype, batch, heads, tokens, tokens, head, "forward", ())
        shape = (batch, tokens, heads, head)
        yield Case(sample, mesh, forward, (shape,) * 3, DTYPES[dtype], shared=True)
        sample = replace(sample, direction="backward")
        yield Case(sample, mesh, both, (shape,) * 4, DTYPES[dtype], shared=True)


def backward_alone(samples: Sequence[Sample]) -> list[AttentionSample]:
    """The samples of attention; backward seconds without those of the forward pass."""
    attention = [sample for sample in samples if isinstance(sample, AttentionSample)]
    alone = []
    for forward, both in zip(attention[::2], attention[1::2], strict=True):
        assert both == replace(forward, direction="backward", seconds=both.seconds)
        pairs = zip(forward.seconds, both.seconds, strict=True)
        rest = tuple(b - f for f, b in pairs if b > f)
        alone += [forward, replace(both, seconds=rest)] if rest else [forward]
    return alone
