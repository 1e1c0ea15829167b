"""The programs: one idea of a line or two each, for one H100 unless it says otherwise.

N = 8192 is a side, so that a product of squares in bf16 takes 2 N^3 = 1.1 TFLOP.
"""

from collections.abc import Iterator
from functools import cache, partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
from jax.sharding import PartitionSpec as P

import scaling as sc
from experiments.xla_estimates.case import Case, Count, abstract

CLUSTER = "dgx-h100"
N, LAYERS = 8192, 32
BATCH, HEADS, TOKENS, HEAD_DIM = 4, 16, 4096, 128
PRODUCT = 2.0 * N**3
HALF, SINGLE = 2, 4  # bytes of bf16 and float32
TABLE, ROW, TAKEN = 10_000_000, 256, 65_536  # a table of 10 GB in float32, rows looked up
EDGES, NODES, WIDTH = 2**22, 2**18, 128  # of a graph
KEYS = 2**24  # sorted
IMAGES, SIDE, CHANNELS, WINDOW = 64, 56, 256, 3
SINGULAR = 2048  # side of the matrix that is decomposed
TILE = 128
TRIPS, DEEP = 64, 4  # of the loop; layers
SQUARES = 3 * HALF * N**2  # bytes of three matrices


@cache
def _mesh(devices: int) -> jax.sharding.Mesh:
    return sc.device_mesh({"data": devices}, CLUSTER)


def _square(dtype: Any = jnp.bfloat16, side: int = N) -> Any:
    return jax.ShapeDtypeStruct((side, side), dtype)


def _array(*shape: int, dtype: Any = jnp.float32) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)


def _scan(x: Any, w: Any) -> Any:
    return lax.scan(lambda c, _: (c @ w, None), x, None, length=LAYERS)[0]


def _while(x: Any, w: Any, steps: Any) -> Any:
    return lax.fori_loop(0, steps, lambda _, c: c @ w, x)


def _deep(weights: Any, x: Any, keep: bool) -> Any:
    layer = lambda c, w: jnp.tanh(c @ w)
    layer = layer if keep else jax.checkpoint(layer)
    for w in weights:
        x = layer(x, w)
    return x.astype(jnp.float32).sum()


def _attend(q: Any, k: Any, v: Any, library: Literal["xla", "cudnn"]) -> Any:
    return jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation=library)


def _heads() -> tuple[Any, ...]:
    return (_array(BATCH, TOKENS, HEADS, HEAD_DIM, dtype=jnp.bfloat16),) * 3


def _tile(x_ref: Any, w_ref: Any, o_ref: Any) -> None:
    o_ref[...] = plgpu.dot(x_ref[...], w_ref[...]).astype(o_ref.dtype)


def _pallas(x: Any, w: Any) -> Any:
    rows = pl.BlockSpec((TILE, TILE), lambda i, j: (i, 0))
    columns = pl.BlockSpec((TILE, TILE), lambda i, j: (0, j))
    grid = (N // TILE, N // TILE)
    out = pl.BlockSpec((TILE, TILE), lambda i, j: (i, j))
    shape = jax.ShapeDtypeStruct((N, N), jnp.bfloat16)
    return pl.pallas_call(
        _tile,
        shape,
        grid=grid,
        in_specs=[rows, columns],
        out_specs=out,
        compiler_params=plgpu.CompilerParams(),
    )(x, w)


def _convolve(x: Any, w: Any) -> Any:
    return lax.conv_general_dilated(
        x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def _sums(x: Any, senders: Any, receivers: Any) -> Any:
    return jax.ops.segment_sum(x[senders], receivers, NODES)


def _sharded() -> tuple[Any, ...]:
    mesh = _mesh(8)
    rows = abstract(mesh, (8 * N, N), jnp.bfloat16, "data")
    weights = abstract(mesh, (N, N), jnp.bfloat16, "data")
    return rows, weights


def _gathered(x: Any, w: Any) -> Any:
    return x @ lax.with_sharding_constraint(w, jax.NamedSharding(_mesh(8), P()))


def cases() -> Iterator[Case]:
    """Return the programs, those first of which XLA's count is right."""
    yield from _plain()
    yield from _loops()
    yield from _layers()
    yield from _calls()
    yield from _rows()
    yield from _others()


def _one(function: Any, *arrays: Any) -> Any:
    """Arrays go to the GPU when the program is made: only then is its compiler needed."""
    on_gpu = lambda x: abstract(_mesh(1), x.shape, x.dtype)
    return lambda: (function, jax.tree.map(on_gpu, arrays))


def _plain() -> Iterator[Case]:
    yield Case(
        "product",
        "a product of bf16",
        _one(jnp.matmul, _square(), _square()),
        Count(PRODUCT, SQUARES, "2 N^3; three matrices"),
    )
    yield Case(
        "fusion",
        "arithmetic in one kernel",
        _one(lambda x, y: jnp.maximum(x * 2 + y, 0), *[_square(jnp.float32)] * 2),
        Count(3 * N**2, 3 * SINGLE * N**2, "3 operations an element; three matrices", dtype=""),
    )


def _loops() -> Iterator[Case]:
    """XLA copies what the loop carries in each iteration, for a product is not in place."""
    each = SQUARES + 2 * HALF * N**2
    how = "{} products, and as many copies of the carry"
    yield Case(
        "scan",
        f"a scan of {LAYERS} layers",
        _one(_scan, _square(), _square()),
        Count(LAYERS * PRODUCT, LAYERS * each, how.format(LAYERS)),
    )
    yield Case(
        "while",
        f"a loop of {TRIPS} iterations, which only the caller knows",
        _one(_while, _square(), _square(), _array(dtype=jnp.int32)),
        Count(TRIPS * PRODUCT, TRIPS * each, how.format(TRIPS)),
        words={"trips": {"while": TRIPS}},
    )


def _layers() -> Iterator[Case]:
    weights, batch = [_square()] * DEEP, _square()
    for name, keep in (("kept", True), ("remat", False)):
        yield Case(
            name,
            f"gradients of {DEEP} layers" + ("" if keep else ", which are computed twice"),
            _one(jax.grad(partial(_deep, keep=keep)), weights, batch),
            Count((3 * DEEP - 1) * PRODUCT, how="the model's: 3 products a layer, one less below"),
        )
    half = 2 * 2 * BATCH * HEADS * TOKENS**2 * HEAD_DIM / 2
    yield Case(
        "causal",
        "causal attention by XLA",
        _one(partial(_attend, library="xla"), *_heads()),
        Count(half, how="2 products of the scores that the mask leaves"),
    )


def _calls() -> Iterator[Case]:
    half = 2 * 2 * BATCH * HEADS * TOKENS**2 * HEAD_DIM / 2
    whole = HALF * BATCH * TOKENS * HEADS * HEAD_DIM
    yield Case(
        "cudnn",
        "causal attention by cuDNN",
        _one(partial(_attend, library="cudnn"), *_heads()),
        Count(half, 4 * whole, "2 products of the scores that the mask leaves; q, k, v, result"),
    )
    pixels, weights = IMAGES * SIDE**2, WINDOW**2 * CHANNELS**2
    inside = IMAGES * (WINDOW * SIDE - 2) ** 2  # pairs of pixels, without those over the edge
    yield Case(
        "convolution",
        "a convolution by cuDNN",
        _one(
            _convolve,
            _array(IMAGES, SIDE, SIDE, CHANNELS, dtype=jnp.bfloat16),
            _array(WINDOW, WINDOW, CHANNELS, CHANNELS, dtype=jnp.bfloat16),
        ),
        Count(
            2.0 * inside * CHANNELS**2,
            HALF * (2 * pixels * CHANNELS + weights),
            "windows without what lies over the edge; images, weights, result",
        ),
    )
    yield Case(
        "pallas",
        "a Pallas kernel for Triton, told by `kernels`",
        _one(_pallas, *[_array(*s, dtype=jnp.bfloat16) for s in ((N, TILE), (TILE, N))]),
        Count(2.0 * N**2 * TILE, HALF * (N**2 + 2 * N * TILE), "2 N^2 K; three matrices"),
        words={"kernels": {"_tile": sc.Work(flops=2.0 * N**2 * TILE, dtype="bf16")}},
    )
    yield Case(
        "svd",
        "an SVD by cuSOLVER",
        _one(
            lambda x: jnp.linalg.svd(x, full_matrices=False),
            _square(jnp.float32, SINGULAR),
        ),
        Count(22 * SINGULAR**3, how="22 n^3 (Golub and Van Loan, 5.4.5)", dtype="fp32"),
    )


def _rows() -> Iterator[Case]:
    table, numbers = _array(TABLE, ROW), _array(TAKEN, dtype=jnp.int32)
    row = SINGLE * ROW
    yield Case(
        "lookup",
        "65,536 rows of a table of 10 GB",
        _one(lambda t, i: t[i] * 2, table, numbers),
        Count(TAKEN * ROW, TAKEN * (2 * row + SINGLE), "rows, their numbers, result", dtype=""),
    )
    yield Case(
        "update",
        "65,536 rows of it added to, in place",
        _one(lambda t, i, u: t.at[i].add(u), table, numbers, _array(TAKEN, ROW)),
        Count(
            TAKEN * ROW,
            TAKEN * (3 * row + SINGLE),
            "rows read and written, their numbers, what is added",
            dtype="",
        ),
        donated=(0,),
    )
    edge = SINGLE * WIDTH
    yield Case(
        "graph",
        "sums over 4 million edges of a graph",
        _one(_sums, _array(NODES, WIDTH), *[_array(EDGES, dtype=jnp.int32)] * 2),
        Count(
            EDGES * WIDTH,
            EDGES * (3 * edge + 2 * SINGLE) + NODES * edge,
            "for an edge a row read, one read and written, as if none stayed in the cache",
            dtype="",
        ),
    )


def _others() -> Iterator[Case]:
    yield Case(
        "sort",
        "2^24 floats",
        _one(jnp.sort, _array(KEYS)),
        Count(
            bytes=KEYS * SINGLE * (2 * SINGLE + 1),
            how="CUB's radix sort: 4 passes, and one to count",
        ),
    )
    yield Case(
        "network",
        "a weight gathered over 8 GPUs, then a product",
        lambda: (_gathered, _sharded()),
        Count(PRODUCT, SQUARES, "each GPU's product; 117 MB come over NVLink besides"),
        devices=8,
    )
