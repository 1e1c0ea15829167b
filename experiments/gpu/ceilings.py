"""The best rates of this device: a large bf16 matrix product, a large copy in its memory.

    product   2 n^3 FLOPs           [n, n] x [n, n], random values (zeros run faster)
    copy      2 x bytes             read once, written once

Datasheet peaks are leads; these two are what a measured step can be held against.
"""

from typing import Any

import jax
import jax.numpy as jnp

from experiments.gpu.timing import QUICK, Effort, time_windows

SIDE = 8192  # 4096 tiles of 128 x 128 fill a large GPU many times over
COPIED = 1 << 30  # bytes, 8 times the largest L2 cache of the catalogue (126.5 MiB, B200)
TINY_SIDE, TINY_COPIED = 256, 1 << 20
SHORT = Effort(warm_up=5, windows=5, window_seconds=0.2, most_calls=200)
COPIES_AHEAD = 8  # each copy in flight holds memory, which would count as the peak of a later case


def measure_ceilings(device: jax.Device, tiny: bool = False) -> dict[str, Any]:
    """Rates of `device`: {"matmul": FLOP/s, "copy": bytes/s, each with its raw timing}."""
    with jax.default_device(device):
        return {"matmul": _matmul(tiny), "copy": _copy(tiny)}


def _matmul(tiny: bool) -> dict[str, Any]:
    side = TINY_SIDE if tiny else SIDE
    a, b = (_random(key, (side, side), jnp.bfloat16) for key in (0, 1))
    product = jax.jit(jnp.matmul)
    timed = time_windows(lambda: product(a, b), QUICK if tiny else SHORT)
    rate = 2 * side**3 / timed.median
    return {"shape": [side, side, side], "flops_per_second": rate, "time": timed.as_dict()}


def _copy(tiny: bool) -> dict[str, Any]:
    size = TINY_COPIED if tiny else COPIED
    x = _random(2, (size // 4,), jnp.float32)
    copy = jax.jit(jnp.copy)
    effort = QUICK if tiny else Effort(SHORT.warm_up, SHORT.windows, most_calls=COPIES_AHEAD)
    timed = time_windows(lambda: copy(x), effort)
    return {"bytes": size, "bytes_per_second": 2 * size / timed.median, "time": timed.as_dict()}


def _random(key: int, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    return jax.jit(lambda: jax.random.normal(jax.random.key(key), shape, dtype))()
