"""A framework's set-up runs for GPUs that are not here: what jax says and makes of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import jax_utils
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import scaling as sc
from scaling.compile.jax_internals import tracing_for_absent_devices
from scaling.compile.jitted import mesh as mesh_over
from scaling.compile.pretend import pretend as pretending
from scaling.compile.pretend.devices import is_absent
from scaling.compile.pretend.pmap import Mapped
from scaling.meshes import catalog
from scaling.meshes.errors import InputError

H100 = catalog.load("dgx-h100", nodes=2)
deviceless = pytest.mark.deviceless


@pytest.fixture
def devices():
    with sc.pretend("dgx-h100", nodes=2) as devices:
        yield devices


def test_a_machine_of_fake_devices_is_here_already():
    with sc.pretend("host") as devices:
        assert devices == jax.devices()[: len(devices)]
    assert not any(map(is_absent, devices))


@deviceless
def test_jax_counts_the_devices_and_hosts_of_the_cluster(devices):
    assert (jax.device_count(), jax.local_device_count(), jax.process_count()) == (16, 8, 2)
    assert jax.devices() == devices == [*jax.local_devices(), *jax.local_devices(1)]
    assert (jax.process_index(), jax.process_indices()) == (0, [0, 1])
    assert [device.slice_index for device in devices] == [0] * 8 + [1] * 8
    assert (jax.default_backend(), jax.devices("gpu")) == ("gpu", devices)
    assert {device.platform for device in jax.devices("cpu")} == {"cpu"}
    jax.distributed.initialize()


@deviceless
def test_afterwards_jax_has_its_own_devices_again():
    before = jax.devices(), jax.make_mesh, jax.pmap, mesh_utils.create_device_mesh
    with sc.pretend("dgx-h100"), pytest.raises(ZeroDivisionError):
        1 / 0  # noqa: B018
    with pytest.raises(ZeroDivisionError), sc.pretend("dgx-h100") as devices:
        1 / 0  # noqa: B018
    after = jax.devices(), jax.make_mesh, jax.pmap, mesh_utils.create_device_mesh
    assert after == before
    assert devices[0].slice_index == 0


@deviceless
def test_an_nvlink_domain_of_several_hosts_is_one_slice():
    with sc.pretend("gb200-nvl72", nodes=2) as devices:
        assert {device.slice_index for device in devices} == {0}
        assert jax.process_count() == 2
        assert jax.make_mesh((jax.device_count(),), ("x",)).size == len(devices)


@deviceless
def test_meshes_are_made_of_them_by_jaxs_own_functions(devices):
    hybrid = mesh_utils.create_hybrid_device_mesh((1, 8), (2, 1))
    assert hybrid.shape == (2, 8) and hybrid.ravel().tolist() == devices
    assert mesh_utils.create_device_mesh((4, 4)).ravel().tolist() == devices
    assert jax.make_mesh((8,), ("x",)).devices.tolist() == devices[:8]
    with pytest.warns(UserWarning, match="refuses a mesh of several NVLink domains"):
        assert jax.make_mesh((2, 8), ("x", "y")).size == 16
    with pytest.raises(ValueError, match="Number of devices 16 must be >= the product"):
        jax.make_mesh((32,), ("x",))


@deviceless
def test_arrays_on_them_are_shapes_with_shardings(devices):
    mesh = Mesh(np.array(devices).reshape(2, 8), ("data", "model"))
    rows = NamedSharding(mesh, P("data"))
    wanted = jax.ShapeDtypeStruct((4, 8), jnp.float32, sharding=rows)
    data = np.ones((4, 8))
    assert jax.device_put(data, rows) == wanted
    assert jax.device_put({"x": data}, rows) == {"x": wanted}
    assert jax.make_array_from_callback((4, 8), rows, lambda index: data[index]) == wanted
    assert jax.make_array_from_process_local_data(rows, data[:2]) == wanted
    made = jax.jit(lambda key: jax.random.normal(key, (4, 8)), out_shardings=rows)
    assert made(jax.random.key(0)) == wanted
    constrained = jax.jit(lambda key: jax.lax.with_sharding_constraint(made(key), rows))
    assert constrained(jax.random.key(0)) == wanted
    assert jax.jit(jnp.sum)(wanted).sharding == NamedSharding(mesh, P())  # of what follows, too
    assert float(jax.device_put(2.0)) == 2.0  # elsewhere values stay values


@deviceless
def test_results_that_are_all_constrained_are_not_compiled(devices, caplog):
    """As a state that a function makes and lays out at its end; compiled, it could take minutes."""
    rows = NamedSharding(Mesh(np.array(devices), ("data",)), P("data"))
    wanted = jax.ShapeDtypeStruct((16, 8), jnp.float32, sharding=rows)
    lay = lambda x: jax.lax.with_sharding_constraint(x, rows)

    def laid_out(key):
        return lay(jax.random.normal(key, (16, 8)))

    def left_open(key):
        x = lay(jax.random.normal(key, (16, 8)))
        return x, x.sum(), 2.0  # of the last two only the compiler knows the sharding

    with jax.log_compiles():
        assert jax.jit(laid_out)(jax.random.key(0)) == wanted
        made, total, two = jax.jit(left_open)(jax.random.key(0))
    assert (made, total.shape, two.shape) == (wanted, (), ())
    compiled = [line for line in caplog.messages if "XLA compilation" in line]
    assert not any("laid_out" in line for line in compiled)
    assert any("left_open" in line for line in compiled)


@deviceless
def test_a_mapped_step_and_one_with_shardings_of_its_own_are_priced(devices):
    step = jax.pmap(lambda x: jax.lax.pmean(x, "i"), axis_name="i")
    x = jnp.ones((jax.device_count(), 128))
    p = sc.predict_step(step, x, cluster="dgx-h100")
    assert (p.devices, p.cluster.nodes, [c.axis for c in p.collectives]) == (16, 2, ["i"])
    mesh, shape = Mesh(np.array(devices), ("data",)), jax.ShapeDtypeStruct(x.shape, x.dtype)
    lowered = jax.jit(jnp.sum, in_shardings=NamedSharding(mesh, P("data"))).lower(shape)
    assert sc.predict_step(lowered, cluster="dgx-h100").mesh == "data=16"


@deviceless
def test_a_flax_example_with_pmap_is_the_step_of_all_hosts(devices):
    """Its state is replicated, and its batch is cut, over the devices of one host."""
    state = jax_utils.replicate({"w": jnp.ones((64, 8)), "step": jnp.zeros(())})
    batch = jnp.ones((256, 64)).reshape(jax.local_device_count(), -1, 64)

    def train_step(state, x):
        gradient = jax.grad(lambda w: jnp.square(x @ w).mean())(state["w"])
        gradient = jax.lax.pmean(gradient, "batch")
        return {"w": state["w"] - 0.1 * gradient, "step": state["step"] + 1}

    step = jax.pmap(train_step, axis_name="batch", donate_argnums=0)
    p = sc.predict_step(step, state, batch, cluster="dgx-h100", nodes=2)
    assert (p.mesh, p.devices) == ("batch=16", 16)
    (sums,) = p.collectives
    assert (sums.axis, sums.bytes) == ("batch", 4 * 64 * 8)


def test_arguments_of_one_process_become_those_of_all():
    mapped = Mapped(
        jax.pmap(jnp.add, in_axes=(0, None), devices=jax.devices()[:8]), 4, 8, (0, None)
    )
    made = mapped.lower(np.ones((4, 3)), 2.0)
    assert [aval.shape for aval in jax.tree.leaves(made.in_avals)] == [(8, 3), ()]
    assert mapped(np.ones((8, 3)), 2.0).shape == (8, 3)


def at_once(x: jax.Array) -> jax.Array:
    """A table of values that are known while the step is traced, as rotary embeddings have it."""
    with jax.ensure_compile_time_eval():
        table = jnp.where(jnp.arange(8) > 3, jnp.sin(jnp.arange(8.0)), jnp.asarray(np.ones(8)))
        noise = jax.random.normal(jax.random.key(0), (8,))
        assert np.isfinite(float(table.sum())) and np.isfinite(noise).all()
    return x * (table + noise)


@deviceless
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_values_that_a_trace_computes_at_once_come_from_this_machine(kind):
    own = mesh_over({"data": 8}, catalog.load("dgx-h100"))
    mesh = Mesh(own.devices, ("data",), axis_types=(kind,))
    x = jax.ShapeDtypeStruct((64, 8), jnp.float32, sharding=NamedSharding(mesh, P("data")))
    with tracing_for_absent_devices(), jax.set_mesh(mesh):
        assert jax.jit(at_once).lower(x).out_info.shape == (64, 8)
        assert jnp.ones(3).tolist() == [1, 1, 1]  # outside of a trace too
        assert float(jax.random.uniform(jax.random.key(1))) < 1
    assert sc.predict_step(jax.jit(at_once), x, cluster="dgx-h100").devices == 8


@deviceless
def test_devices_in_any_order_are_priced_by_the_nodes_they_lie_on(devices):
    """Eight GPUs of a node along `model`: as the last axis, or as the first of turned devices."""
    grid, hybrid = np.array(devices).reshape(2, 8), mesh_utils.create_hybrid_device_mesh
    meshes = {
        "straight": Mesh(grid, ("data", "model")),
        "turned": Mesh(grid.T, ("model", "data")),
        "hybrid": Mesh(hybrid((8, 1), (1, 2)), ("model", "data")),
        "across": Mesh(hybrid((1, 8), (2, 1)).T.reshape(2, 8), ("data", "model")),
        "a part": Mesh(grid.ravel()[4:12].reshape(2, 4), ("data", "model")),
    }
    found = {}
    for name, mesh in meshes.items():
        x, w = (
            jax.ShapeDtypeStruct((4096, 4096), jnp.bfloat16, sharding=NamedSharding(mesh, spec))
            for spec in (P("data", "model"), P("model"))
        )
        lowered = jax.jit(lambda x, w: x @ w).lower(x, w)
        found[name] = sc.predict_step(lowered, cluster="dgx-h100")
    levels = {name: [c.level for c in p.collectives] for name, p in found.items()}
    assert levels == dict.fromkeys(levels, ["node"]) | {"across": ["leaf"]}
    assert found["straight"].step_time == found["turned"].step_time == found["hybrid"].step_time
    with pytest.raises(InputError, match="the mesh has 12 devices, dgx-h100 .* has 8"):
        sc.predict_step(lowered, cluster="dgx-h100", nodes=1)


@deviceless
def test_two_meshes_of_one_cluster_are_of_equal_devices():
    first, again = (sc.device_mesh("data=8", "dgx-h100") for _ in range(2))
    assert first == again
    x, y = (
        jax.ShapeDtypeStruct((8,), jnp.float32, sharding=NamedSharding(mesh, P("data")))
        for mesh in (first, again)
    )
    assert sc.predict_step(jax.jit(jnp.add), x, y, cluster="dgx-h100").mesh == "data=8"


def test_a_device_that_does_not_compile_only_is_present():
    assert not is_absent(jax.devices()[0])
    assert pretending.THIS_PROCESS == jax.process_index()
