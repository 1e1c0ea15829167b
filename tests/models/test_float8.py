"""Products in 8-bit floating point: rounding, scales, and exactness where nothing is rounded."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import PartitionSpec as P
from jax.sharding import reshard

from scaling.meshes.devices import host_mesh
from scaling.meshes.rules import make_rules
from scaling.meshes.shape import MeshShape
from scaling.models.float8 import GRADIENTS, VALUES, local_product, multiply, product, quantized

LARGEST = {VALUES: 448.0, GRADIENTS: 57344.0}  # arXiv 2209.05433, table 1
MANTISSA = {VALUES: 3, GRADIENTS: 2}  # bits
SUBNORMAL = {VALUES: 2.0**-9, GRADIENTS: 2.0**-16}  # the smallest number but zero
FORMATS = pytest.mark.parametrize("dtype", [VALUES, GRADIENTS])
finite = st.floats(-(2.0**60), 2.0**60, width=32, allow_subnormal=False)

rounded = jax.jit(quantized, static_argnums=1)


@FORMATS
@given(st.lists(finite, min_size=1, max_size=40))
def test_a_number_is_off_by_half_a_step_of_the_format_at_most(dtype, numbers) -> None:
    x = np.zeros(40, np.float32)  # one shape: nothing compiles twice
    x[: len(numbers)] = numbers
    q, scale = rounded(x, dtype)
    found = np.asarray(q, np.float64) * float(scale)
    steps = np.maximum(np.abs(x) * 2.0 ** -MANTISSA[dtype], SUBNORMAL[dtype] * float(scale))
    assert (np.abs(found - x) <= steps / 2 * (1 + 1e-5)).all()  # the division rounds in float32


@FORMATS
def test_the_largest_number_of_a_tensor_becomes_that_of_the_format(dtype) -> None:
    q, scale = quantized(jnp.asarray([0.5, -7.0, 3.0]), dtype)
    assert np.abs(np.asarray(q, np.float32)).max() == LARGEST[dtype]
    assert float(scale) == pytest.approx(7 / LARGEST[dtype])


@FORMATS
def test_zeros_stay_zeros(dtype) -> None:
    q, scale = quantized(jnp.zeros((3, 4)), dtype)
    assert not np.asarray(q, np.float32).any() and 0 < float(scale) < 1e-20


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_is_seen_in_the_product(bad: float) -> None:
    a = jnp.ones((16, 16)).at[3, 4].set(bad)
    assert not np.isfinite(multiply("ab,bc->ac", (VALUES, VALUES), a, jnp.ones((16, 16)))).all()


def test_a_product_of_experts_and_its_gradients_are_those_of_rounded_operands() -> None:
    noise = np.random.default_rng(0)
    draw = lambda *shape: jnp.asarray(noise.standard_normal(shape), jnp.float32)
    x, w, dy = draw(2, 16, 32), draw(2, 32, 8), draw(2, 16, 8)

    def near(x: jax.Array, dtype: jnp.dtype) -> jax.Array:
        q, scale = quantized(x, dtype)
        return q.astype(jnp.float32) * scale

    y, back = jax.vjp(functools.partial(local_product, "ecd,edf->ecf"), x, w)
    close = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5)
    x8, w8, dy8 = near(x, VALUES), near(w, VALUES), near(dy, GRADIENTS)
    close(y, jnp.einsum("ecd,edf->ecf", x8, w8))
    close(back(dy)[0], jnp.einsum("ecf,edf->ecd", dy8, w8))
    close(back(dy)[1], jnp.einsum("ecd,ecf->edf", x8, dy8))


# --- products and gradients on a mesh -------------------------------------------------------------

MESH = MeshShape(data=2, fsdp=2, tensor=2)
# equation; shapes and logical dimensions of x and w; dimensions of the product
TOKENS = ("batch", None, None)
PRODUCTS = {
    "up": ("bsd,df->bsf", (8, 4, 16), TOKENS, (16, 32), (None, "mlp"), ("batch", None, "mlp")),
    "down": ("bsf,fd->bsd", (8, 4, 32), ("batch", None, "mlp"), (32, 16), ("mlp", None), TOKENS),
    "heads": (
        "bsnk,nkd->bsd",
        (8, 4, 4, 8),
        ("batch", None, "heads", None),
        (4, 8, 16),
        ("heads", None, None),
        TOKENS,
    ),
}


def exact(shape: tuple[int, ...], largest: float, seed: int) -> np.ndarray:
    """Small whole numbers, which both formats hold, and the largest of one in every device's part:
    so scales are 1 and nothing is rounded."""
    x = np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32)
    x[..., ::8] = largest
    return x


def computed(name: str, mesh: MeshShape) -> list[np.ndarray]:
    """The product and both gradients."""
    equation, x_shape, x_dims, w_shape, w_dims, y_dims = PRODUCTS[name]
    rules = make_rules(mesh, sequence_parallel=True)
    x_spec, w_spec, y_spec = (P(*rules.spec(*dims)) for dims in (x_dims, w_dims, y_dims))
    y_shape = np.einsum(equation, np.zeros(x_shape), np.zeros(w_shape)).shape
    arrays = exact(x_shape, 448, 0), exact(w_shape, 448, 1), exact(y_shape, 57344, 2)
    summed = () if name == "up" else rules.axes("mlp")
    target = P(*y_spec, unreduced=frozenset(summed))

    def run(x: jax.Array, w: jax.Array, gradient: jax.Array) -> tuple:
        marked = reshard(w, P(*w_spec, reduced=frozenset(rules.axes("batch"))))
        made = lambda x, w: reshard(product(rules, equation, target, x, w), y_spec)
        y, pull = jax.vjp(made, x, marked)
        to_x, to_w = pull(gradient)
        return y, to_x, reshard(to_w, w_spec)

    with jax.set_mesh(host_mesh(mesh)):
        placed = map(jax.device_put, arrays, (x_spec, w_spec, y_spec))
        return [np.asarray(part) for part in jax.jit(run)(*placed)]


@pytest.mark.parametrize("mesh", [MESH, MeshShape()], ids=str)
@pytest.mark.parametrize("name", PRODUCTS)
def test_numbers_that_the_formats_hold_are_multiplied_exactly_on_any_mesh(name, mesh) -> None:
    equation, x_shape, _, w_shape, *_ = PRODUCTS[name]
    x, w = exact(x_shape, 448, 0).astype(np.float64), exact(w_shape, 448, 1).astype(np.float64)
    of_x, of_w, of_y = equation.replace("->", ",").split(",")
    gradient = exact(np.einsum(equation, x, w).shape, 57344, 2).astype(np.float64)
    by_hand = (
        (equation, x, w),
        (f"{of_y},{of_w}->{of_x}", gradient, w),
        (f"{of_x},{of_y}->{of_w}", x, gradient),
    )
    for found, (letters, a, b) in zip(computed(name, mesh), by_hand, strict=True):
        wanted, of_sizes = np.einsum(letters, a, b), np.einsum(letters, abs(a), abs(b))
        assert (np.abs(found - wanted) <= 1e-6 * of_sizes).all()  # float32 adds up


def test_a_scale_is_a_devices_own_so_one_that_holds_small_numbers_keeps_their_bits() -> None:
    x, w = np.full((8, 4, 16), 1e-6, np.float32), np.ones((16, 32), np.float32)
    x[:4] = 1e6  # of the devices of data=0; together these would push the others to zero
    rules = make_rules(MESH, sequence_parallel=True)
    specs = (P(*rules.spec(*dims)) for dims in (TOKENS, (None, "mlp")))
    target = P(*rules.spec("batch", None, "mlp"))
    with jax.set_mesh(host_mesh(MESH)):
        placed = map(jax.device_put, (x, w), specs)
        y = jax.jit(functools.partial(product, rules, "bsd,df->bsf", target))(*placed)
        np.testing.assert_allclose(np.asarray(y), x @ w, rtol=1e-6)
