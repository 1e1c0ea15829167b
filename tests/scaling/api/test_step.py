"""`sc.predict_step`: other people's steps in one call, and what is said of bad ones."""

import math
import sys
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import scaling as sc
from scaling.profiles.profile import CollectiveFit
from tests.scaling.host_profile import HERE, host_profile

deviceless = pytest.mark.deviceless
H100 = "dgx-h100"
SIZE = 1024
X = jax.ShapeDtypeStruct((SIZE, SIZE), jnp.bfloat16)
SUMS = [CollectiveFit("all-reduce", n, 8 // n, 1e-5, 1e9, HERE) for n in (2, 4, 8)]
ON_HOST = {"cluster": "host", "calibration": host_profile(collectives=tuple(SUMS))}


def product(x: jax.Array, w: jax.Array) -> jax.Array:
    return x @ w


@pytest.fixture(scope="module")
def mesh():
    return sc.device_mesh("rows=4,model=2", "host")


def on(mesh, *spec, shape=(64, 64)):
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))


def test_a_lowered_step_has_the_price_of_the_jitted_one(mesh):
    arguments = on(mesh, "rows", "model"), on(mesh, "model")
    jitted = jax.jit(product)
    p = sc.predict_step(jitted, *arguments, **ON_HOST)
    lowered = jitted.lower(*arguments)
    assert sc.predict_step(lowered, **ON_HOST) == p
    assert sc.predict_step(lowered.compile(), **ON_HOST) == p
    assert sc.predict_step(jitted, arguments[0], w=arguments[1], **ON_HOST) == p
    assert (p.mesh, p.collectives[0].axis) == ("rows=4,model=2", "model")


def test_keywords_of_the_step_that_have_a_name_of_ours_come_in_a_mapping(mesh):
    step = jax.jit(lambda x, *, name: x * name)
    p = sc.predict_step(step, on(mesh), **ON_HOST, name="scaled", step_kwargs={"name": on(mesh)})
    assert p.name == "scaled"


def test_with_tokens_and_model_flops_a_step_has_its_rate_and_its_mfu(mesh):
    step, x = jax.jit(product), on(mesh)
    p = sc.predict_step(step, x, x, **ON_HOST, tokens=512, model_flops=2 * 64**3 * 8)
    assert p.tokens_per_second == pytest.approx(512 / p.step_time)
    assert p.tokens_per_second_per_device == pytest.approx(p.tokens_per_second / 8)
    assert p.hfu is None or p.mfu == pytest.approx(p.hfu)
    assert p.to_dict()["causal_flops"] is None
    assert p.what_if("peak x1").tokens_per_second == p.tokens_per_second
    plain = sc.predict_step(step, x, x, **ON_HOST)
    assert (plain.tokens_per_second, plain.model_flops, plain.mfu) == (None, None, None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"node": 2}, "neither the step nor predict_step has 'node'; did you mean 'nodes'"),
        ({"tokens": 0}, "tokens=0 must be a positive number"),
        ({"tokens": 10**400}, "must be a positive number up to 1e[+]30"),
        ({"options": {3: 1}}, "options: 3 is 1; write flags of XLA by name"),
        ({"options": {"xla_flag": None}}, "options: 'xla_flag' is None; write flags"),
        ({"model_flops": math.nan}, "model_flops=nan must be a positive number"),
        ({"step_kwargs": [1]}, r"step_kwargs=\[1\] must be a mapping"),
        ({"step_kwargs": {"y": 1}, "y": 1}, "y is given twice"),
        ({"trips": {"while": 3}}, "the program has no loop of unknown length 'while'"),
        ({"kernels": {"mine": "global"}}, "kernels: 'mine' is given 'global'"),
        ({"kernels": ["mine"]}, "kernels: the program has no custom kernel 'mine'"),
        ({"kernels": ["mine="]}, "'mine=' is no pair: write NAME=NUMBER, such as kernels="),
        ({"mesh": 8}, "mesh=8 must be a jax mesh or axes such as 'data=8'"),
        ({"cluster": "dgx-a100"}, "the step is for cpu, dgx-a100 has NVIDIA A100"),
    ],
)
def test_what_cannot_be_meant_is_said_before_it_is_priced(mesh, options, message):
    step = jax.jit(lambda x, y=1: x)
    with pytest.raises(sc.InputError, match=message):
        sc.predict_step(step, on(mesh), **{**ON_HOST, **options})


def test_what_is_no_step_is_named(mesh):
    compiled = jax.jit(jnp.sum).lower(on(mesh)).compile()
    with pytest.raises(sc.InputError, match="has its arguments already: give it alone"):
        sc.predict_step(compiled, on(mesh), **ON_HOST)
    with pytest.raises(sc.InputError, match="sc.predict_hlo prices dumps and texts"):
        sc.predict_step("HloModule step", **ON_HOST)
    with pytest.raises(sc.InputError, match=r"^\{ lambda .* is not jitted: give jax.jit"):
        sc.predict_step(jax.make_jaxpr(jnp.sin)(1.0), **ON_HOST)


def test_a_mesh_may_be_abstract_or_empty(mesh):
    x = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    step = jax.jit(product, in_shardings=(P("rows", "model"), P("model")), out_shardings=P("rows"))
    p = sc.predict_step(step, x, x, mesh=mesh.abstract_mesh, **ON_HOST)
    assert p == sc.predict_step(step, x, x, mesh=mesh, **ON_HOST)
    assert p.mesh == "rows=4,model=2"
    given = on(mesh, "rows")
    for empty in (jax.sharding.get_mesh(), jax.sharding.get_abstract_mesh()):
        assert sc.predict_step(jax.jit(jnp.sum), given, mesh=empty, **ON_HOST).devices == 8


@pytest.mark.parametrize("name", ["", "données", 'a"b', "a\\b"])
def test_names_of_axes_at_which_xla_would_end_the_process_are_refused(mesh, name):
    named = jax.sharding.Mesh(mesh.devices.flatten(), (name,))
    with pytest.raises(sc.InputError, match="mesh axis .*: XLA needs names of ASCII letters"):
        sc.predict_step(jax.jit(jnp.sum), on(named), **ON_HOST)


def test_a_mesh_has_each_device_once(mesh):
    twice = jax.sharding.Mesh(mesh.devices.flatten()[[0, 1, 1, 2]], ("rows",))
    with pytest.raises(sc.InputError, match="device 1 stands 2 times in the mesh"):
        sc.predict_step(jax.jit(jnp.sum), on(twice), **ON_HOST)


def test_a_step_cannot_be_priced_while_jax_traces_the_caller():
    with pytest.raises(sc.InputError, match="outside of functions that jax traces"):
        jax.jit(lambda x: sc.predict_step(jax.jit(jnp.sum), X, cluster=H100))(1.0)


def test_modules_of_the_user_may_have_the_names_of_our_folders(monkeypatch):
    """A script with a models.py beside it, as Flax's own examples have."""
    for name in ("models", "meshes"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(__name__=name))
    assert sc.load_run("tiny").model.n_layers == 2


# For GPUs that are not here


@deviceless
def test_without_a_mesh_one_gpu_does_it():
    p = sc.predict_step(jax.jit(product), X, jnp.ones((SIZE, SIZE), jnp.bfloat16), cluster=H100)
    assert p.devices == 1 and p.hfu > 0
    committed = jax.device_put(np.ones((64, 64)), jax.devices()[0])
    assert sc.predict_step(jax.jit(jnp.sum), committed, cluster=H100, mesh="data=8").devices == 8


@deviceless
def test_a_step_of_another_size_than_the_cluster_gets_hosts_or_a_message():
    with sc.pretend(H100, nodes=2) as devices:
        mesh = jax.sharding.Mesh(np.array(devices), ("data",))
    step = jax.jit(jnp.sum, in_shardings=NamedSharding(mesh, P("data")))
    assert sc.predict_step(step, X, cluster=H100).cluster.nodes == 2
    with pytest.raises(sc.InputError, match="16 devices, dgx-h100 with 1 .* use nodes=2"):
        sc.predict_step(step, X, cluster=H100, nodes=1)


@deviceless
def test_functions_of_the_host_are_calls_in_the_price():
    def step(x):
        jax.debug.print("{}", x.sum())
        return jax.pure_callback(np.asarray, X, x) + 1

    assert sc.predict_step(jax.jit(step), X, cluster=H100).step_time > 0


@deviceless
@pytest.mark.filterwarnings("ignore:Using ``pl.pallas_call`` for Mosaic GPU:DeprecationWarning")
def test_a_kernel_of_mosaic_that_stays_on_its_device_is_counted():
    """jax's own attention: two products of 2 x 8 heads, 512 queries and keys, 64 long."""
    from jax.experimental.pallas.ops.gpu import attention_mgpu

    config = attention_mgpu.TuningConfig(block_q=64, block_kv=64, max_concurrent_steps=2)
    q, k = (jax.ShapeDtypeStruct((2, 512, heads, 64), jnp.float16) for heads in (8, 4))
    p = sc.predict_step(
        jax.jit(lambda q, k: attention_mgpu.attention(q, k, k, config)), q, k, cluster=H100
    )
    flops = 2 * 2 * 2 * 8 * 512**2 * 64
    assert not p.unknown and sum(k.flops for k in p.pricing.program.schedule) == flops
    assert p.step_time_low >= flops / p.cluster.accelerator.peak("fp16")
    assert p.grade == "datasheet"  # no fit describes a kernel that somebody wrote


@deviceless
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated:DeprecationWarning")
def test_the_estimate_of_a_pallas_kernel_is_its_work_else_what_is_counted():
    from jax.experimental.pallas import triton

    flops = 2 * SIZE**3

    def multiplied(estimate, x, w):
        def kernel(a, b, out):
            out[...] = triton.dot(a[...], b[...]).astype(out.dtype)

        rows = pl.BlockSpec((128, 64), lambda i, j: (i, 0))
        columns = pl.BlockSpec((64, 128), lambda i, j: (0, j))
        return pl.pallas_call(
            kernel, out_shape=X, grid=(SIZE // 128, SIZE // 128), in_specs=[rows, columns],
            out_specs=pl.BlockSpec((128, 128), lambda i, j: (i, j)), name="mine",
            compiler_params=triton.CompilerParams(num_warps=4), cost_estimate=estimate,
        )(x, w)  # fmt: skip

    def price(estimate, **options):
        step = jax.jit(lambda x, w: multiplied(estimate, x, w))
        return sc.predict_step(step, X, X, cluster=H100, **options)

    stated = pl.CostEstimate(flops=flops, transcendentals=0, bytes_accessed=6 * SIZE**2)
    known, counted = price(stated), price(None)
    assert not known.unknown and known.hfu > 0
    (kernel,) = counted.pricing.program.schedule
    assert not counted.unknown and kernel.flops == (SIZE // 128) ** 2 * 2 * 128 * 128 * 64
    given = price(None, kernels={"mine": sc.Work(flops, 6 * SIZE**2, "bf16")})
    assert given.step_time == known.step_time


@deviceless
@pytest.mark.slow
def test_products_that_xla_cannot_tile_are_compiled_in_another_way():
    """Attention of a vision transformer: XLA fails with its own Triton products (jaxlib 0.10.2)."""
    from flax import nnx

    made = lambda: nnx.MultiHeadAttention(12, 768, decode=False, rngs=nnx.Rngs(0))
    graph, state = nnx.split(nnx.eval_shape(made))
    step = jax.jit(lambda state, x: (nnx.merge(graph, state)(x) ** 2).sum())
    p = sc.predict_step(step, state, jax.ShapeDtypeStruct((8, 197, 768), jnp.float32), cluster=H100)
    assert p.step_time > 0


@deviceless
@pytest.mark.parametrize(
    ("values", "scales", "block", "peak"),
    [
        (jnp.float8_e4m3fn, jnp.float8_e8m0fnu, 32, "fp8"),  # MXFP8
        (jnp.float4_e2m1fn, jnp.float8_e4m3fn, 16, "fp4"),  # NVFP4
    ],
)
def test_blocks_with_scales_are_multiplied_at_the_peak_of_blackwell(values, scales, block, peak):
    side = 4096
    array = lambda dtype, columns: jax.ShapeDtypeStruct((1, side, columns), dtype)
    operands = *[array(values, side)] * 2, *[array(scales, side // block)] * 2
    step = jax.jit(lambda *xs: jax.nn.scaled_matmul(*xs, preferred_element_type=jnp.bfloat16))
    p = sc.predict_step(step, *operands, cluster="dgx-b200")
    if jax.__version_info__ >= (0, 12):  # XLA multiplies in bf16 where there is no device
        peak = "bf16"
    least = 2 * side**3 / p.cluster.accelerator.peak(peak)
    assert not p.unknown and least < p.step_time < 4 * least


@deviceless
def test_a_refresh_in_every_tenth_step_costs_a_tenth_of_its_time():
    """As in SOAP: a basis is refreshed by a QR decomposition now and then."""

    def step(i, basis, g):
        refresh = lambda basis: jnp.linalg.qr(g @ (g.T @ basis))[0]
        basis = jax.lax.cond(i % 10 == 0, refresh, lambda basis: basis, basis)
        return i + 1, basis, basis.T @ g

    square = jax.ShapeDtypeStruct((512, 512), jnp.float32)
    arguments = jax.ShapeDtypeStruct((), jnp.int32), square, square
    price = lambda **said: sc.predict_step(jax.jit(step), *arguments, cluster=H100, **said)
    assumed = price()
    (part,) = assumed.conditionals
    assert part.place.startswith("test_step.py:")
    never, always, tenth = (price(branches={part.place: said}) for said in (0, 1, "every=10"))
    assert always.step_time == assumed.step_time > 10 * never.step_time
    assert assumed.step_time_low == pytest.approx(never.step_time_low)
    mean = 0.9 * never.step_time + 0.1 * always.step_time
    assert tenth.step_time == pytest.approx(mean)
    assert tenth.step_time_low < mean < tenth.step_time_high < assumed.step_time_low + mean * 3
    assert tenth.conditionals[0].shares == pytest.approx((0.9, 0.1))


@deviceless
def test_a_mesh_has_devices_of_one_kind():
    devices = [*sc.device_mesh("data=4", H100).devices, *sc.device_mesh("data=4", "host").devices]
    with pytest.raises(sc.InputError, match="devices of several kinds: NVIDIA H100 .*, cpu"):
        sc.predict_step(jax.jit(jnp.sum), on(jax.sharding.Mesh(devices, ("data",))), cluster=H100)
