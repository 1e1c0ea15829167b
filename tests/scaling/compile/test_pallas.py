"""The kernels of a traced step: what their authors say, what grid and body tell."""

import inspect

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jax.sharding import AxisType

from scaling.compile.pallas import traced_kernels
from scaling.hlo.user_hints import Work

X = jax.ShapeDtypeStruct((64, 64), jnp.bfloat16)


def multiplied(x: jax.Array, flops: int | None = 1000, name: str | None = "mine") -> jax.Array:
    def kernel(a, b, out):
        out[...] = (a[...] @ b[...]).astype(out.dtype)

    estimate = flops and pl.CostEstimate(flops=flops, transcendentals=5, bytes_accessed=64)
    call = pl.pallas_call(kernel, out_shape=X, name=name, cost_estimate=estimate)
    return call(x, x)


def kernels(function, *arguments):
    return traced_kernels(jax.jit(function).trace(*arguments or (X,)).jaxpr)


def works(function):
    return {kernel.name: kernel.work for kernel in kernels(function)}


def test_an_estimate_goes_before_the_count_in_the_format_of_the_products():
    expected = Work(flops=1000.0, bytes=64.0, dtype="bf16", transcendentals=5.0)
    assert works(multiplied) == {"mine": expected}
    assert works(lambda x: multiplied(x, None)) == {"mine": Work(flops=2.0 * 64**3, dtype="bf16")}


def test_a_call_without_a_name_has_that_of_its_function_and_one_in_loops_and_gradients_counts():
    def layers(x):
        inner = jax.jit(lambda h: multiplied(h, name=None))
        return jax.lax.scan(lambda h, _: (inner(h), None), x, length=3)[0]

    assert set(works(layers)) == {"kernel"}


def test_calls_that_differ_are_kernels_of_their_own():
    both = kernels(lambda x: multiplied(multiplied(x), 2000))
    assert sorted(kernel.work.flops for kernel in both) == [1000, 2000]
    assert len(kernels(lambda x: multiplied(multiplied(x)))) == 1
    assert both[0].operands == ((64, 64), (64, 64)) and both[0].results == ((64, 64),)


def test_a_kernel_without_products_has_vector_arithmetic():
    def doubled(x):
        def kernel(a, out):
            out[...] = jnp.exp(a[...] * 2)

        return pl.pallas_call(kernel, out_shape=X, name="double", grid=(3,))(x)

    assert works(doubled) == {"double": Work(flops=3.0 * 64**2, transcendentals=3.0 * 64**2)}


@given(
    grid=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    tile=st.tuples(st.sampled_from([8, 16]), st.sampled_from([8, 32]), st.sampled_from([4, 16])),
    length=st.integers(1, 9),
    dtype=st.sampled_from(
        [("bfloat16", "bf16"), ("float32", "tf32"), ("int8", "int8"), ("float8_e4m3fn", "fp8")]
    ),
)
def test_products_count_in_each_program_and_iteration(grid, tile, length, dtype):
    """Once by a loop of known length, once by one whose length depends on the place in the grid."""
    (m, n, k), (name, known) = tile, dtype
    kind = jnp.float32 if name != "int8" else jnp.int32
    a, b = (jax.ShapeDtypeStruct(shape, name) for shape in ((m, k), (k, n)))
    out = jax.ShapeDtypeStruct((m, n), kind)

    def called(bound):
        def kernel(a, b, out):
            add = lambda i, total: total + jnp.dot(a[...], b[...], preferred_element_type=kind)
            out[...] = jax.lax.fori_loop(0, bound(), add, jnp.zeros((m, n), kind))

        return kernels(pl.pallas_call(kernel, out_shape=out, grid=grid), a, b)[0]

    one, (rows, columns) = 2.0 * m * n * k, grid
    whole = called(lambda: length)
    assert (whole.work.flops, whole.work.dtype) == (one * rows * columns * length, known)
    triangle = called(lambda: (pl.program_id(1) * 3 + 2) // 2 + pl.num_programs(0))
    trips = sum((j * 3 + 2) // 2 + rows for j in range(columns))
    assert (triangle.work.flops, triangle.is_complete) == (one * rows * trips, True)


def test_a_loop_inside_of_a_loop_and_a_branch_follow_the_place():
    """Steps 0 to 5, each with as many products as its number, in programs 1 and 2 of three."""

    def kernel(a, out):
        def inner(i, total):
            return jax.lax.fori_loop(0, i, lambda _, t: t + a[...] @ a[...], total)

        @pl.when(pl.program_id(0) > 0)
        def _():
            out[...] = jax.lax.fori_loop(0, 6, inner, jnp.zeros((64, 64), X.dtype))

    (found,) = kernels(pl.pallas_call(kernel, out_shape=X, grid=(3,)), X)
    assert found.work.flops == 2 * sum(range(6)) * 2 * 64**3 and found.is_complete


@pytest.mark.parametrize("decided", ["loop", "branch"])
def test_what_values_decide_leaves_the_least(decided):
    def kernel(a, n, out):
        out[...] = a[...] @ a[...]
        add = lambda _, t: t + a[...] @ a[...]
        if decided == "loop":
            out[...] = jax.lax.fori_loop(0, n[0], add, out[...])
        else:
            out[...] = jax.lax.cond(n[0] > 3, lambda: add(0, out[...]), lambda: out[...])

    n = jax.ShapeDtypeStruct((1,), jnp.int32)
    (found,) = kernels(pl.pallas_call(kernel, out_shape=X), X, n)
    assert (found.work.flops, found.is_complete) == (2 * 64**3, False)


@pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning")
def test_the_attention_that_comes_with_jax_is_counted_by_blocks():
    """Causal, of blocks of 128: block i of queries meets i + 1 of keys, in two products."""
    from jax.experimental.pallas.ops.gpu.attention import mha

    q = jax.ShapeDtypeStruct((2, 512, 4, 64), jnp.bfloat16)
    (found,) = kernels(lambda q: mha(q, q, q, None, causal=True), q)
    assert found.work.flops == 2 * 2 * 4 * sum(range(1, 5)) * 2 * 128 * 128 * 64
    assert found.work.dtype == "bf16" and found.is_complete


def mosaic(body, out, scratch, **options):
    """A kernel over a mesh; jax 0.10.2 has other names for two of its arguments."""
    newer = "out_type" in inspect.signature(plgpu.kernel).parameters
    names = ("out_type", "scratch_types") if newer else ("out_shape", "scratch_shapes")
    shapes = dict(zip(names, (out, scratch), strict=True))
    return plgpu.kernel(body, grid_names=("g",), **shapes, **options)


def test_a_kernel_of_mosaic_multiplies_in_the_threads_that_come_to_it():
    """Two of three warpgroups, 64 x 128 x 64 each, in a grid of 4."""
    tiling = (plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))
    shared = lambda *shape: plgpu.SMEM(shape, jnp.bfloat16, transforms=tiling)

    def body(x, out, a, b):
        @pl.when(jax.lax.axis_index("wg") < 2)
        def _():
            def add(acc):
                plgpu.wgmma(acc, a, b)
                return acc[...]

            out[...] = pl.run_scoped(add, plgpu.ACC((64, 128))).astype(out.dtype)

    out, scratch = jax.ShapeDtypeStruct((64, 128), jnp.bfloat16), [shared(64, 64), shared(64, 128)]
    run = mosaic(body, out, scratch, grid=(4,), num_threads=3, thread_name="wg")
    (found,) = kernels(run, X)
    assert (found.work.flops, found.work.dtype) == (4 * 2 * 2 * 64 * 128 * 64, "bf16")
    assert found.is_complete and found.is_local


def test_a_kernel_that_writes_to_another_device_is_not_local():
    mesh = jax.sharding.AbstractMesh((2,), ("x",), axis_types=(AxisType.Auto,))

    def body(x, out):
        plgpu.remote_ref(out, 1 - jax.lax.axis_index("x"))[...] = x[...]

    run = mosaic(body, X, (), grid=(1,))
    spec = jax.sharding.PartitionSpec("x")
    mapped = jax.shard_map(run, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    whole = jax.ShapeDtypeStruct((128, 64), X.dtype)
    (found,) = kernels(mapped, whole)
    assert not found.is_local
