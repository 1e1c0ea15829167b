"""Arrays in the memory of an absent host: however that is written, their way there is priced."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import scaling as sc

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


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_what_a_trace_puts_somewhere_passes_through(kind):
    def lowered(mesh):
        held = Struct((64, 64), jnp.float32, sharding=NamedSharding(mesh, P("d")))
        inside = lambda a: jax.device_put({"a": a}, NamedSharding(mesh, P()))["a"] * 2
        return jax.jit(inside).lower(held).as_text()

    outside = lowered(Mesh(sc.device_mesh("d=8", "dgx-h100").devices, ("d",), axis_types=(kind,)))
    with sc.pretend("dgx-h100"):
        assert lowered(jax.make_mesh((8,), ("d",), axis_types=(kind,))) == outside
