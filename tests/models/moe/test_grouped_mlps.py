"""The experts' MLPs by kernels of our own, interpreted, against plain products of each row."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import PartitionSpec as P

from scaling.meshes import catalog
from scaling.meshes.devices import absent_mesh
from scaling.meshes.shape import MeshShape
from scaling.models.accounting.expert_buffers import kernels_divide
from scaling.models.config import ModelConfig, Moe
from scaling.models.moe import triton_tiles
from scaling.models.moe.dispatch import combine, dispatch, sorted_indices, weights_of_rows
from scaling.models.moe.grouped_mlps import GroupedMlps, grouped_mlps
from scaling.models.moe.triton_tiles import Load, Rows, block

EXACT = jax.lax.Precision.HIGHEST
TOKENS, CHOICES, EXPERTS, LOCAL, MODEL, HIDDEN = 30, 2, 6, 4, 16, 32
SLOW = pytest.mark.slow
ROOM = 50  # rows, more than are used


@pytest.fixture
def interpreted(monkeypatch):
    """Tiles of 16 rows and columns, so that few rows are many tiles."""
    monkeypatch.setattr(triton_tiles, "INTERPRET", True)
    monkeypatch.setattr(triton_tiles, "ROWS", 16)
    monkeypatch.setattr(triton_tiles, "BLOCKS", (16,))


def choices(noise, most: int) -> np.ndarray:
    """Experts of each token, of which the second has none and those from `LOCAL` on are others'."""
    every = np.stack([noise.permutation(most)[:CHOICES] for _ in range(TOKENS)])
    return np.where(every == 1, EXPERTS, every)


def gathered(how: GroupedMlps, x, idx, weight_R, sizes_E, weights, biases, down):
    """The same with the rows copied and each one's matrices picked, by jax's own gradients."""
    f32 = functools.partial(jnp.asarray, dtype=jnp.float32)
    number = jnp.arange(idx.assignment_R.size)
    group_R = jnp.minimum((number[:, None] >= jnp.cumsum(sizes_E)).sum(axis=1), LOCAL - 1)
    times = lambda rows, w: jnp.einsum("rk,rkn->rn", f32(rows), f32(w)[group_R], precision=EXACT)
    rounded = lambda y: f32(y.astype(x.dtype))
    pre = [times(dispatch(x, idx), w) for w in weights]
    for i, b in enumerate(biases):
        pre[i] += f32(b)[group_R]
    h = how.units(*map(rounded, pre)) * weight_R[:, None]
    h = jnp.where(idx.is_used_R[:, None], rounded(h), 0)
    return combine(times(h, down), idx).astype(x.dtype)


def check(kind: str, dtype, has_bias: bool, kept: int, most: int = EXPERTS) -> None:
    noise = np.random.default_rng(0)
    draw = lambda *shape: jnp.asarray(noise.standard_normal(shape) / shape[-2] ** 0.5, dtype)
    idx, sizes_E = sorted_indices(jnp.int32(choices(noise, most)), LOCAL, ROOM)
    assert int(sizes_E.sum()) < ROOM and int(sizes_E.min()) == 0
    n = 1 if kind in ("gelu", "relu") else 2
    weights = tuple(draw(LOCAL, MODEL, HIDDEN) for _ in range(n))
    biases = tuple(draw(LOCAL, HIDDEN).astype(jnp.float32) for _ in range(n * has_bias))
    down, x, dy = draw(LOCAL, HIDDEN, MODEL), 4 * draw(TOKENS, MODEL), 4 * draw(TOKENS, MODEL)
    weight_TK = jnp.asarray(noise.random((TOKENS, CHOICES)), jnp.float32)
    how = GroupedMlps(kind, Load(40, EXACT), kept)

    def by_kernels(x, weight_TK, *matrices):
        source_R = jnp.where(idx.is_used_R, idx.assignment_R % TOKENS, 0)
        rows = Rows(source_R, weights_of_rows(weight_TK, idx), sizes_E)
        return grouped_mlps(how, x, rows, idx.row_KT, *matrices)

    def by_hand(x, weight_TK, *matrices):
        return gathered(how, x, idx, weights_of_rows(weight_TK, idx), sizes_E, *matrices)

    @functools.partial(jax.jit, static_argnums=0)
    def both_passes(function, *operands):
        y, backward = jax.vjp(function, *operands)
        return jax.tree.leaves((y, backward(dy)))

    operands = x, weight_TK, weights, biases, down
    found, expected = (both_passes(f, *operands) for f in (by_kernels, by_hand))
    error = 2e-6 if dtype == jnp.float32 else 1.5e-2  # of the largest; bf16 has 8 bits
    for own, true in zip(found, expected, strict=True):
        own, true = (np.asarray(a, np.float64) for a in (own, true))
        np.testing.assert_allclose(own, true, atol=error * np.abs(true).max())


def test_kernels_are_the_weighted_sums_of_the_experts_and_their_gradients(interpreted) -> None:
    """With an empty group, unused rows, parts of tiles, and rows whose inputs are not kept."""
    check("gelu", jnp.float32, has_bias=False, kept=20)  # few kernels: each is compiled


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["swiglu", "geglu", "gelu", "relu", "clamped_swiglu"])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize(
    "has_bias, kept, most", [(False, ROOM, EXPERTS), (True, 1, EXPERTS), (True, 20, 3)]
)
def test_every_activation_and_format(interpreted, kind, dtype, has_bias, kept, most) -> None:
    check(kind, dtype, has_bias, kept, most)


def test_sides_that_no_block_divides_have_no_kernel() -> None:
    assert [block(size) for size in (4096, 14336, 2880, 176, 7)] == [128, 128, 64, 16, 0]


@pytest.mark.deviceless
@pytest.mark.parametrize(
    "dtype", [jnp.bfloat16, pytest.param(jnp.float32, marks=SLOW)], ids=["bf16", "fp32"]
)
@pytest.mark.parametrize(
    "cluster",
    ["dgx-h100", *(pytest.param(c, marks=SLOW) for c in ("dgx-a100", "dgx-b200", "rtx4090-8"))],
)
def test_the_kernels_compile_for_absent_gpus_inside_a_shard_map(cluster: str, dtype) -> None:
    """Both passes; each call says what it computes."""
    mesh = absent_mesh(MeshShape(fsdp=2), catalog.load(cluster))
    how = GroupedMlps("swiglu", Load(512, jax.lax.Precision.DEFAULT), 640)

    def local(x, source, row, sizes, gate, up, down):
        gate, up, down = (
            jax.lax.pcast(w.astype(dtype), ("fsdp",), to="varying") for w in (gate, up, down)
        )
        rows = Rows(source, jnp.abs(x[:, 0]).astype(jnp.float32).repeat(2), sizes)
        return grouped_mlps(how, x, rows, row, (up, gate), (), down)

    cut, whole = P("fsdp"), P()
    specs = cut, cut, P(None, "fsdp"), cut, whole, whole, whole
    mapped = jax.shard_map(local, in_specs=specs, out_specs=cut)
    loss = lambda *operands: jnp.square(mapped(*operands).astype(jnp.float32)).sum()
    shapes = [(1024, 4096), (2048,), (2, 1024), (8,), *[(4, 4096, 176)] * 2, (4, 176, 4096)]
    formats = [dtype, *[jnp.int32] * 3, *[dtype] * 3]
    operands = [
        jax.ShapeDtypeStruct(dims, kind, sharding=jax.NamedSharding(mesh, spec))
        for dims, kind, spec in zip(shapes, formats, specs, strict=True)
    ]
    with jax.set_mesh(mesh):
        step = jax.jit(jax.grad(loss, argnums=(0, 4, 5, 6)))
        text = step.lower(*operands).compile({"xla_gpu_autotune_level": 0}).as_text()
    one = 2 * 512 * 4096 * 176
    counts = {name: text.count(f"{flops}\\22") for name, flops in (("one", one), ("two", 2 * one))}
    assert text.count("serialized_metadata") == 10  # of which one has no rows, two add up rows
    assert counts == {"one": 5, "two": 2}


@given(st.integers(1, 300), st.integers(1, 300), st.sampled_from([1, 2, 4, 8]))
def test_kernels_divide_what_has_a_block_on_each_side(model: int, width: int, tensor: int) -> None:
    config = ModelConfig(64, model, 1, 1, width * tensor, head_dim=2, moe=Moe(8, 2))
    assert kernels_divide(config, tensor) == bool(block(model) and block(width))
