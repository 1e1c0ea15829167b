"""Arrays in the memory of an absent host: however that is written, their way there is priced."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import optax
import pytest
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import scaling as sc
from scaling.compile.options import WITHOUT_DEVICE

pytestmark = pytest.mark.deviceless
SHAPE, BYTES = (65536, 8192), 65536 * 8192 * 4 / 8  # of one device
LEAST = BYTES / 63e9  # s that PCIe takes at its rated 63 GB/s
Struct, Space = jax.ShapeDtypeStruct, jax.memory.Space


@pytest.fixture(params=[AxisType.Auto, AxisType.Explicit], ids=str)
def mesh(request) -> Mesh:
    devices = sc.device_mesh("d=8", "dgx-h100").devices
    return Mesh(devices, ("d",), axis_types=(request.param,))


def places(mesh: Mesh) -> tuple[NamedSharding, NamedSharding]:
    """Of an array on the host, and of one on the devices."""
    device = NamedSharding(mesh, P("d"))
    return device.with_memory_kind("pinned_host"), device


def price(jitted, *arguments):
    return sc.predict_step(jitted, *arguments, cluster="dgx-h100")


def from_host(mesh):
    """Ways to read an array from the host: by sharding, by kind, by space, by in_shardings."""
    host, device = places(mesh)
    held, plain = Struct(SHAPE, jnp.float32, sharding=host), Struct(SHAPE, jnp.float32)
    put = lambda where: jax.jit(lambda a: jax.device_put(a, where) * 2)
    yield put(device), held
    yield put(host.with_memory_kind("device")), held
    yield put(Space.Device), held
    there = jax.jit(lambda a: jax.device_put(a, device) * 2, in_shardings=host)
    yield there, plain


def to_host(mesh):
    """Ways to leave a result on the host."""
    host, device = places(mesh)
    held = Struct(SHAPE, jnp.float32, sharding=device)
    yield jax.jit(lambda a: a * 2, out_shardings=host), held
    yield jax.jit(lambda a: jax.device_put(a * 2, host)), held
    yield jax.jit(lambda a: jax.device_put(a * 2, Space.Host)), held


@pytest.mark.parametrize("ways, on_device", [(from_host, 1), (to_host, 2)])
def test_the_way_to_the_host_is_priced_however_it_is_written(mesh, ways, on_device):
    for jitted, argument in ways(mesh):
        found = price(jitted, argument)
        assert LEAST < found.step_time < 2 * LEAST
        assert found.step_time_high > 1.25 * found.step_time and found.grade == "datasheet"
        memory = found.memory
        assert (memory.pinned_host, memory.peak) == (BYTES, pytest.approx(on_device * BYTES))
        assert not [words for words in found.warnings if "memory:" in words]


def test_states_on_the_host_are_updated_in_place_there(mesh):
    host, device = places(mesh)

    def step(weights, moment):
        moment = jax.device_put(moment, device) * 0.9 + weights
        return weights - moment, jax.device_put(moment, host)

    given = [Struct(SHAPE, jnp.float32, sharding=place) for place in (device, host)]
    found = price(jax.jit(step, donate_argnums=(0, 1)), *given)
    assert found.memory.pinned_host == BYTES
    assert found.step_time > 2 * LEAST
    assert not [words for words in found.warnings if "memory:" in words]


def test_set_up_code_keeps_what_it_puts_on_the_host():
    with sc.pretend("dgx-h100"):
        for kind in AxisType.Auto, AxisType.Explicit:
            host, device = places(jax.make_mesh((8,), ("d",), axis_types=(kind,)))
            held = Struct((64, 64), jnp.float32, sharding=device)
            made = [
                jax.device_put(jnp.ones((64, 64)), host),
                jax.device_put(held, Space.Host),
                jax.jit(lambda a: a * 2, out_shardings=host)(held),
                jax.jit(lambda a, where=host: jax.device_put(a * 2, where))(held),
            ]
            assert [array.sharding.memory_kind for array in made] == ["pinned_host"] * 4


@pytest.mark.parametrize("kind", ["device", None])
def test_one_absent_device_has_a_host_too(kind):
    with sc.pretend("dgx-h100") as (first, *_):
        One = jax.sharding.SingleDeviceSharding
        host, device = (One(first, memory_kind=place) for place in ("pinned_host", kind))
        assert isinstance(One(first), One) and not isinstance(host.mesh, One)
        assert One(jax.devices("cpu")[0], memory_kind="pinned_host").memory_kind == "pinned_host"
        held = Struct((8192, 8192), jnp.float32, sharding=host)
        found = price(jax.jit(lambda a: jax.device_put(a, device) * 2), held)
    assert found.memory.pinned_host == 4 * 8192**2
    assert 4 * 8192**2 / 63e9 < found.step_time < 8 * 8192**2 / 63e9


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_what_a_trace_puts_somewhere_passes_through(kind):
    def lowered(mesh):
        held = Struct((64, 64), jnp.float32, sharding=NamedSharding(mesh, P("d")))
        inside = lambda a: jax.device_put({"a": a}, NamedSharding(mesh, P()))["a"] * 2
        return jax.jit(inside).lower(held).as_text()

    outside = lowered(Mesh(sc.device_mesh("d=8", "dgx-h100").devices, ("d",), axis_types=(kind,)))
    with sc.pretend("dgx-h100"):
        assert lowered(jax.make_mesh((8,), ("d",), axis_types=(kind,))) == outside


LAYERS, WIDTH, ROWS = 4, 1024, 4096
STACK = LAYERS * WIDTH * WIDTH * 4 / 8  # bytes of the layers' weights on one device


def layers(weights, x, per_layer=lambda w: w, save=lambda h: h, policy=None):
    """The loss of a stack of layers, each recomputed in the backward pass."""

    def layer(x, w):
        hidden = save(x @ per_layer(w).astype(jnp.bfloat16))
        return x + jax.nn.gelu(hidden), None

    last, _ = jax.lax.scan(jax.checkpoint(layer, policy=policy), x, weights)
    return jnp.mean(jnp.square(last.astype(jnp.float32)))


def optimizer_offloaded(mesh):
    """As MaxText does with optimizer_memory_host_offload=true, its state made by a jitted init."""
    device = NamedSharding(mesh, P(None, "d"))
    optimizer = optax.adamw(1e-3)

    def init():
        weights = jnp.zeros((LAYERS, WIDTH, WIDTH))
        return weights, optimizer.init(weights)

    on_devices = lambda leaf: device if leaf.ndim else NamedSharding(mesh, P())
    weights, state = jax.tree.map(on_devices, jax.eval_shape(init))
    offloaded = jax.tree.map(lambda s: s.with_memory_kind("pinned_host"), state)

    def step(weights, state, x):
        grads = jax.grad(layers)(weights, x)
        state = jax.device_put(
            state, jax.tree.map(lambda s: s.with_memory_kind("device"), state_at)
        )
        updates, state = optimizer.update(grads, state, weights)
        return optax.apply_updates(weights, updates), state

    state_at = offloaded
    made = jax.jit(init, out_shardings=(weights, offloaded))()
    jitted = jax.jit(step, donate_argnums=(0, 1), out_shardings=(weights, offloaded))
    return SimpleNamespace(step=jitted, state=made, on_host=2 * STACK + 4, moved=4 * STACK)


def activations_offloaded(mesh):
    """A policy of jax.checkpoint that keeps what it saves on the host."""
    weights = Struct(
        (LAYERS, WIDTH, WIDTH), jnp.float32, sharding=NamedSharding(mesh, P(None, "d"))
    )
    policy = jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[], names_which_can_be_offloaded=["hidden"],
        offload_src="device", offload_dst="pinned_host",
    )  # fmt: skip
    save = lambda hidden: checkpoint_name(hidden, "hidden")
    loss = lambda w, x: layers(w, x, save=save, policy=policy)
    step = jax.jit(lambda w, x: w - 1e-3 * jax.grad(loss)(w, x), donate_argnums=0)
    kept = LAYERS * ROWS * WIDTH * 2 / 8
    return SimpleNamespace(step=step, state=(weights,), on_host=kept, moved=2 * kept)


def parameters_streamed(mesh):
    """Weights live on the host and come layer by layer; their gradients are summed there."""
    host = NamedSharding(mesh, P(None, "d"), memory_kind="pinned_host")
    weights = Struct((LAYERS, WIDTH, WIDTH), jnp.float32, sharding=host)
    here = lambda w: jax.device_put(w, Space.Device)

    def step(weights, x):
        grads = jax.grad(lambda w: layers(w, x, per_layer=here))(weights)
        return jax.device_put(here(weights) - 1e-3 * here(grads), Space.Host)

    # each way of the weights, twice; their gradients' way there and back; the new weights
    jitted = jax.jit(step, donate_argnums=0)
    return SimpleNamespace(step=jitted, state=(weights,), on_host=2 * STACK, moved=6 * STACK)


def everything_offloaded(mesh):
    """Weights and moments live on the host, and all of them come at once."""
    host = NamedSharding(mesh, P(None, "d"), memory_kind="pinned_host")
    state = [Struct((LAYERS, WIDTH, WIDTH), jnp.float32, sharding=host)] * 2

    def step(weights, moment, x):
        weights, moment = jax.device_put((weights, moment), Space.Device)
        moment = 0.9 * moment + jax.grad(layers)(weights, x)
        return weights - 1e-3 * moment, moment

    jitted = jax.jit(step, out_shardings=(host, host))  # not donated: old and new ones
    return SimpleNamespace(step=jitted, state=state, on_host=4 * STACK, moved=4 * STACK)


WAYS = optimizer_offloaded, activations_offloaded, parameters_streamed, everything_offloaded


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit], ids=str)
@pytest.mark.parametrize("program", WAYS)
def test_programs_that_offload_have_the_memory_of_xlas_plan(program, kind):
    with sc.pretend("dgx-h100"):
        mesh = jax.make_mesh((8,), ("d",), axis_types=(kind,))
        made = program(mesh)
        x = Struct((ROWS, WIDTH), jnp.bfloat16, sharding=NamedSharding(mesh, P("d")))
        compiled = made.step.lower(*made.state, x).compile(compiler_options=dict(WITHOUT_DEVICE))
    plan, found = compiled.memory_analysis(), price(compiled)
    planned = plan.host_argument_size_in_bytes + plan.host_output_size_in_bytes
    planned += plan.host_temp_size_in_bytes - plan.host_alias_size_in_bytes
    assert found.memory.pinned_host == planned == made.on_host
    kept = planned - plan.host_temp_size_in_bytes  # of which XLA's peak has arguments and results
    assert found.memory.peak == pytest.approx(plan.peak_memory_in_bytes - kept, rel=1e-3)
    copied = [w for w in found.warnings if "between host and device" in w]
    assert copied and found.step_time > 0.5 * made.moved / 63e9  # both ways at a time
