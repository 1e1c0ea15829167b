"""What a step that is not ours could leave out is named, with its line of code and its cost."""

import inspect

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import scaling as sc
from scaling.comparing.step_advice import _copies

Struct = jax.ShapeDtypeStruct
PEAK, BANDWIDTH = 989e12, 3.35e12  # of an H100, bf16
GROUPS, ROWS, K, N = 16, 4096, 1024, 2048
CACHE = (8, 16, 4096, 1024)
BYTES = 8 * 16 * 4096 * 1024 * 2


def line_of(function, words: str) -> str:
    """The place of the line of this file that has the words, inside a function."""
    lines, first = inspect.getsourcelines(function)
    return f"test_step_advice.py:{first + next(i for i, t in enumerate(lines) if words in t)}"


def advice(step, *arguments, donate=(), **where):
    jitted = jax.jit(step, donate_argnums=donate)
    return sc.predict_step(jitted, *arguments, cluster="dgx-h100", **where)


def experts(x, w, sizes):
    return jnp.tanh(jax.lax.ragged_dot(x, w, sizes))


def layers(x, w, sizes):
    back = jnp.swapaxes(w, 1, 2)
    layer = lambda x, _: (jax.lax.ragged_dot(experts(x, w, sizes), back, sizes), None)
    return jax.lax.scan(layer, x, length=3)[0]


def decode(cache, x, position):
    """Each layer gives its own part of the cache back, with one row written."""

    def layer(x, mine):
        mine = jax.lax.dynamic_update_slice(mine, x[:, None], (0, position, 0))
        scores = jax.nn.softmax(jnp.einsum("bd,btd->bt", x, mine))
        return x + jnp.einsum("bt,btd->bd", scores, mine), mine

    return jax.lax.scan(layer, x, cache)


def update(w, m, x):
    """One step of momentum, of float32 products."""
    grad = jax.grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(w)
    return w - 1e-3 * m, 0.9 * m + grad


EXPERTS = (
    Struct((ROWS, K), jnp.bfloat16),
    Struct((GROUPS, K, N), jnp.bfloat16),
    Struct((GROUPS,), jnp.int32),
)
DECODE = (
    Struct(CACHE, jnp.bfloat16),
    Struct((16, 1024), jnp.bfloat16),
    Struct((), jnp.int32),
)
SQUARE = Struct((8192, 8192), jnp.float32)


@pytest.mark.deviceless
@pytest.mark.parametrize("step, calls", [(experts, 1), (layers, 3)], ids=["alone", "in a scan"])
def test_a_ragged_product_that_runs_dense_costs_what_its_other_groups_do(step, calls):
    found = advice(step, *EXPERTS)
    said = max(found.step_advice, key=lambda said: said.place == line_of(experts, "ragged_dot"))
    assert (said.kind, said.place) == ("ragged_dot", line_of(experts, "ragged_dot"))
    dense = calls * 2 * GROUPS * ROWS * K * N / PEAK  # at the least
    assert (1 - 1 / GROUPS) * dense < said.seconds < found.step_time
    assert "each of 16 groups" in said.text and said.text in found.advice()
    assert vars(said) in found.to_dict()["advice"] and said.bytes is None
    assert f">{said.text}<" in found._repr_html_()


@pytest.mark.deviceless
def test_a_kernel_for_ragged_products_is_no_dense_one():
    def double(x_ref, out_ref):
        out_ref[...] = 2 * x_ref[...]

    @jax.named_scope("ragged_dot")
    def step(x):
        params = triton.CompilerParams()
        return pl.pallas_call(double, out_shape=x, compiler_params=params)(x)

    assert not advice(step, Struct((128, 128), jnp.float32), donate=0).step_advice


@pytest.mark.deviceless
def test_a_cache_that_a_scan_hands_through_is_copied():
    found = advice(decode, *DECODE, donate=0)
    (said,) = found.step_advice
    assert (said.kind, said.place) == ("loop_copies", line_of(decode, "jax.lax.scan"))
    # each layer's part is read and written once, the whole once more
    assert 4 * BYTES / BANDWIDTH < said.seconds < found.step_time
    assert f"bf16{list(CACHE)}".replace(" ", "") in said.text.replace(" ", "")


@pytest.mark.deviceless
def test_products_of_float32_and_state_that_is_not_donated():
    found = advice(update, SQUARE, SQUARE, SQUARE)
    products, kept = found.step_advice
    assert (products.kind, products.place) == ("fp32_products", line_of(update, "x @ w"))
    # two products of 2 n^3 FLOPs, at half the rate of 16 bits or less
    assert 2 * 2 * 8192**3 / PEAK < products.seconds < found.step_time
    assert (kept.kind, kept.bytes, kept.seconds) == ("not_donated", 2 * 4 * 8192**2, None)
    donated = advice(update, SQUARE, SQUARE, SQUARE, donate=(0, 1))
    assert [said.kind for said in donated.step_advice] == ["fp32_products"]


@pytest.mark.deviceless
def test_what_donation_frees_is_said():
    step = lambda w, m: (w - 1e-3 * m, 0.9 * m)
    kept, donated = (advice(step, SQUARE, SQUARE, donate=given) for given in ((), (0, 1)))
    (said,) = kept.step_advice
    assert said.bytes == pytest.approx(float(kept.memory.peak - donated.memory.peak), rel=1e-3)
    assert donated.step_advice == ()


@pytest.mark.deviceless
def test_arguments_that_lie_whole_on_several_devices():
    (*_, said) = advice(update, *3 * [SQUARE], donate=(0, 1), mesh="data=8").step_advice
    assert (said.kind, said.bytes) == ("replicated_arguments", 3 * 4 * 8192**2 * 7 / 8)
    assert "whole on up to 8 devices" in said.text and "all of them do the whole step" in said.text


@pytest.mark.deviceless
def test_copies_are_those_of_the_arguments_that_are_named():
    mesh = sc.device_mesh("data=4,model=2", "dgx-h100")
    place = lambda *spec: NamedSharding(mesh, P(*spec))
    weights = Struct((8192, 8192), jnp.bfloat16, sharding=place("data"))
    batch = {"inputs": Struct((256, 8192), jnp.bfloat16, sharding=place())}
    (said,) = advice(lambda params, batch: batch["inputs"] @ params, weights, batch).step_advice
    assert "params: whole on up to 2 devices each" in said.text


@pytest.mark.deviceless
def test_nothing_is_said_where_nothing_is_to_be_left_out():
    mesh = sc.device_mesh("data=4,model=2", "dgx-h100")
    place = lambda *spec: NamedSharding(mesh, P(*spec))
    sharded = lambda shape, *spec: Struct(shape, jnp.bfloat16, sharding=place(*spec))
    weights = sharded((4096, 8192), "data", "model")
    step = lambda w, x: (w - jax.grad(lambda w: jnp.sum(x @ w))(w), x)
    found = advice(step, weights, sharded((8192, 4096), "data"), donate=(0, 1))
    assert found.step_advice == () and found.advice() == found.to_dict()["advice"] == []


@pytest.mark.deviceless
@pytest.mark.parametrize(
    "shape, dtype",
    [((2048, 2048), jnp.complex64), ((8, 8), jnp.bfloat16)],
    ids=["no format of 16 bits", "a few bytes"],
)
def test_nothing_is_said_that_cannot_be_done_or_frees_nothing(shape, dtype):
    step = lambda w, x: (x @ w).sum(axis=0) if dtype == jnp.complex64 else x @ w
    assert advice(step, Struct(shape, dtype), Struct(shape, dtype)).step_advice == ()


@pytest.mark.deviceless
def test_what_a_product_makes_anew_in_a_loop_is_no_copy_to_be_left_out():
    power = lambda x: jax.lax.fori_loop(0, 64, lambda _, y: y @ y, x)
    assert advice(power, Struct((4096, 4096), jnp.bfloat16), donate=0).step_advice == ()


@pytest.mark.deviceless
def test_a_step_without_a_line_has_none_of_ours():
    (said,) = advice(jax.lax.ragged_dot, *EXPERTS).step_advice
    assert said.place == "jit(ragged_dot)/ragged_dot_general"


@pytest.mark.parametrize(
    "sharding, copies",
    [
        ("{replicated}", 8),
        ("{devices=[8,1]<=[8]}", 1),
        ("{devices=[4,1,2]<=[8] last_tile_dim_replicate}", 2),
        ("{devices=[2,1,4]<=[4,2]T(1,0) last_tile_dims={replicated}}", 4),
        ("{maximal device=0}", 1),
        ("", 1),
    ],
)
def test_how_many_devices_hold_a_part(sharding, copies):
    assert _copies(sharding, 8) == copies
