"""Cases of attention: the model's own call, forward, and forward with backward.

The backward pass alone is the difference of the two, repeat by repeat.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from scaling.calibration.timing import Case
from scaling.meshes.rules import make_rules
from scaling.meshes.shape import MeshShape
from scaling.models.attention import attend
from scaling.models.execution import Execution
from scaling.profiles.samples import AttentionSample, Sample

Size = tuple[int, int, int, int]  # sequences, heads, tokens, head_dim
HOST_QUICK: tuple[Size, ...] = ((2, 2, 64, 16), (2, 2, 128, 32))
HOST_FULL: tuple[Size, ...] = tuple(
    (batch, 2, tokens, head)
    for batch, tokens in ((1, 32), (2, 64), (2, 128), (1, 256), (1, 512))
    for head in (16, 64)
)
GPU_QUICK: tuple[Size, ...] = ((8, 16, 1024, 64), (2, 16, 4096, 128))
GPU_FULL: tuple[Size, ...] = tuple(
    (16384 // tokens, 16, tokens, head)
    for tokens in (512, 1024, 2048, 4096, 8192)
    for head in (64, 128)
)


def attention_cases(mesh: Mesh, quick: bool, flash: bool) -> Iterator[Case]:
    """Yields forward, and forward with backward, of every size; `flash`: by cuDNN's kernel."""
    implementation: Literal["cudnn", "xla"] = "cudnn" if flash else "xla"
    dtype: Literal["bf16", "fp32"] = "bf16" if flash else "fp32"
    execution = Execution(
        make_rules(MeshShape(data=mesh.size), False), compute=dtype, attention_kernel=implementation
    )
    host = mesh.devices.flat[0].platform == "cpu"
    sizes = (HOST_QUICK if quick else HOST_FULL) if host else (GPU_QUICK if quick else GPU_FULL)
    for batch, heads, tokens, head in sizes:
        sample = AttentionSample(dtype, batch, heads, tokens, tokens, head, "forward", ())
        shape = (batch, tokens, heads, head)
        kind = jnp.bfloat16 if flash else jnp.float32
        yield Case(sample, mesh, _forward(execution), (shape,) * 3, kind, shared=True)
        both = replace(sample, direction="backward")
        yield Case(both, mesh, _both(execution), (shape,) * 4, kind, shared=True)


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


def _forward(execution: Execution) -> Callable[..., jax.Array]:
    return lambda q, k, v: attend(q, k, v, execution, None)


def _both(execution: Execution) -> Callable[..., tuple[jax.Array, ...]]:
    def run(q: jax.Array, k: jax.Array, v: jax.Array, slope: jax.Array) -> tuple[jax.Array, ...]:
        out, back = jax.vjp(_forward(execution), q, k, v)
        return out, *back(slope)

    return run
