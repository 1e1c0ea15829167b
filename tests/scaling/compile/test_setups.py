"""Set-up code as trainers write it runs for GPUs that are not here, or says why it cannot.

Each stands for a style: Flax's examples (pmap, Linen, NNX), T5X, MaxText and EasyDeL (abstract
state, in_shardings), nanodo and Kauldron (the step is called), AXLearn and Orbax (several hosts).
"""

import threading
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from flax import jax_utils, nnx
from flax import linen as nn
from flax.training.train_state import TrainState
from jax.experimental import multihost_utils
from jax.experimental.array_serialization.serialization import GlobalAsyncCheckpointManager
from jax.extend import backend
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import scaling as sc
from scaling.compile.pretend.devices import is_absent
from scaling.meshes.errors import InputError

pytestmark = [
    pytest.mark.deviceless,
    pytest.mark.filterwarnings("ignore:on this cluster jax.make_mesh", "ignore:`with mesh"),
]
WIDTH, ROWS = 16, 32


@pytest.fixture(autouse=True)
def devices():
    with sc.pretend("dgx-h100", nodes=2) as devices:
        yield devices


@pytest.fixture
def mesh(devices) -> Mesh:
    return Mesh(np.array(devices).reshape(2, 8), ("data", "model"))


def price(lowered):
    return sc.predict_step(lowered, cluster="dgx-h100", nodes=2)


def kinds(lowered) -> set[tuple[str, str]]:
    return {(c.kind, c.axis) for c in price(lowered).collectives}


class Dense(nn.Module):
    """A layer whose kernel is cut by logical rules."""

    @nn.compact
    def __call__(self, x):
        init = nn.with_logical_partitioning(nn.initializers.lecun_normal(), ("embed", "mlp"))
        return nn.Dense(WIDTH, kernel_init=init)(x)


def create(model, rng, x) -> TrainState:
    params = model.init(rng, x)["params"]
    return TrainState.create(apply_fn=model.apply, params=params, tx=optax.adam(1e-3))


def train(state, x, average=lambda gradients: gradients):
    loss = lambda params: jnp.square(state.apply_fn({"params": params}, x)).mean()
    value, gradients = jax.value_and_grad(loss)(state.params)
    return state.apply_gradients(grads=average(gradients)), value


def test_pmap_over_a_replicated_state_as_flax_examples_do():
    state = jax_utils.replicate(create(nn.Dense(WIDTH), jax.random.key(0), jnp.ones((1, WIDTH))))
    average = partial(jax.lax.pmean, axis_name="batch")
    step = jax.pmap(partial(train, average=average), axis_name="batch", donate_argnums=0)
    batch = np.zeros((jax.local_device_count(), 4, WIDTH), np.float32)
    assert kinds(step.lower(state, batch)) == {("all-reduce", "batch")}
    assert jax_utils.unreplicate(state.params)["kernel"].shape == (WIDTH, WIDTH)


def test_random_keys_of_every_device_as_haiku_examples_do():
    keys = jax.random.split(jax.random.PRNGKey(jax.process_index()), jax.local_device_count())
    state = jax.pmap(lambda key: {"w": jax.random.normal(key, (WIDTH, WIDTH))})(keys)
    assert state["w"].shape == (8, WIDTH, WIDTH)


def test_a_state_by_logical_rules_as_t5x_and_maxtext_do(mesh):
    rules = (("embed", None), ("mlp", "model"))
    model, rng, x = Dense(), jax.random.PRNGKey(0), jnp.zeros((ROWS, WIDTH))
    init = partial(create, model)
    with mesh:
        specs = nn.get_partition_spec(jax.eval_shape(init, rng, x))
        shardings = nn.logical_to_mesh_sharding(specs, mesh, rules)
        state = jax.jit(init, out_shardings=shardings)(rng, x)
        kernel = nn.unbox(state.params)["Dense_0"]["kernel"]
        assert kernel.sharding.spec == P(None, "model")
        step = jax.jit(train, in_shardings=(shardings, NamedSharding(mesh, P("data"))))
        assert ("all-reduce", "data") in kinds(step.lower(state, x))  # x lies on this machine


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_a_model_made_while_a_mesh_is_set_as_nnx_guides_do(kind):
    mesh = jax.make_mesh((2, 8), ("data", "model"), axis_types=(kind,) * 2)
    init = nnx.with_partitioning(nnx.initializers.lecun_normal(), (None, "model"))
    with jax.set_mesh(mesh):
        model = nnx.Linear(WIDTH, WIDTH, kernel_init=init, rngs=nnx.Rngs(0))
        optimizer = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)
        moment = optimizer.opt_state[0].mu["kernel"][...]
    assert model.kernel[...].sharding.spec == moment.sharding.spec == P(None, "model")
    assert is_absent(moment.sharding.mesh.devices.flat[0])


def test_a_model_made_by_nnx_jit_with_shardings(mesh):
    everywhere = NamedSharding(mesh, P())
    make = nnx.jit(lambda: nnx.Linear(WIDTH, WIDTH, rngs=nnx.Rngs(0)), out_shardings=everywhere)
    assert make().kernel[...].sharding == everywhere


def test_the_step_of_a_new_state_is_read_as_maxtext_does(mesh):
    make = lambda key: {"step": jnp.int32(3), "w": jax.random.normal(key, (WIDTH, WIDTH))}
    state = jax.jit(make, out_shardings=NamedSharding(mesh, P()))(jax.random.key(0))
    assert int(state["step"]) == state["step"].item() == 3
    assert state["step"] == jax.ShapeDtypeStruct((), jnp.int32, sharding=NamedSharding(mesh, P()))
    assert jax.jit(lambda state: state["w"] * state["step"]).lower(state)
    with pytest.raises(InputError, match="has no values"):
        float(state["w"][0, 0])


def test_a_training_loop_is_called_as_nanodo_does(mesh):
    rows = NamedSharding(mesh, P("data"))
    params = jax.device_put({"w": jnp.zeros((WIDTH, WIDTH))}, NamedSharding(mesh, P(None, "model")))
    optimizer = optax.adamw(1e-3)
    state = params, optimizer.init(params)

    @jax.jit
    def step(state, x):
        params, moments = state
        loss, gradients = jax.value_and_grad(lambda p: jnp.square(x @ p["w"]).mean())(params)
        updates, moments = optimizer.update(gradients, moments, params)
        return (optax.apply_updates(params, updates), moments), loss

    for _ in range(2):
        local = np.zeros((ROWS, WIDTH), np.float32)
        x = jax.make_array_from_process_local_data(rows, local)
        state, loss = step(state, x)
    assert (x.shape, state[0]["w"].sharding.spec) == ((2 * ROWS, WIDTH), P(None, "model"))
    assert price(step.lower(state, x)).step_time > 0
    with pytest.raises(InputError, match="not here, so it has no values"):
        print(f"loss {float(loss):.3f}")


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_values_are_computed_while_a_mesh_is_set(kind):
    """Transformed functions and loops, whose types hold the mesh."""
    with jax.set_mesh(jax.make_mesh((16,), ("data",), axis_types=(kind,))):
        assert jax.vmap(lambda x: 2 * x)(jnp.arange(3.0)).tolist() == [0, 2, 4]
        assert jax.grad(lambda x: jax.nn.relu(x).sum())(jnp.ones(2)).tolist() == [1, 1]
        total, _ = jax.lax.scan(lambda total, x: (total + x, x), 0.0, jnp.arange(4.0))
        assert float(total) == 6
        assert float(jax.lax.fori_loop(0, 3, lambda i, x: x + i, 0.0)) == 3
        assert jax.lax.cond(jnp.array(True), lambda x: x, lambda x: -x, jnp.ones(2)).sum() == 2
        first, second = jax.random.split(jax.random.key(0))
        noise = jax.vmap(lambda key: jax.random.normal(key, (2,)))(jnp.stack([first, second]))
        assert jnp.isfinite(noise).all()


def test_arrays_made_with_a_sharding_are_shapes(mesh):
    rows = NamedSharding(mesh, P("data"))
    assert jnp.zeros((ROWS,), device=rows).sharding == rows
    assert jnp.zeros_like(jax.device_put(np.ones(ROWS), rows)).sharding == rows
    assert jax.lax.with_sharding_constraint(jnp.ones(ROWS), rows).sharding == rows
    shards = [jax.device_put(np.ones(ROWS // 2), device) for device in jax.local_devices()]
    assert jax.make_array_from_single_device_arrays((ROWS,), rows, shards).sharding == rows
    keys = jax.device_put(jax.random.split(jax.random.key(0), 2), rows)
    assert (
        jax.random.fold_in(jax.device_put(jax.random.key(0), NamedSharding(mesh, P())), 1).shape
        == ()
    )
    assert (keys.sharding, keys.dtype) == (rows, jax.random.key(0).dtype)


def test_shard_map_takes_values(mesh):
    total = jax.shard_map(
        lambda x: jax.lax.psum(x.sum(), ("data", "model")), mesh=mesh,
        in_specs=P(("data", "model")), out_specs=P(),
    )  # fmt: skip
    assert total(jnp.arange(16.0)).shape == ()
    assert jax.jit(total)(jnp.arange(16.0)).sharding.is_fully_replicated


def test_hosts_agree_as_axlearn_asks_them_to(mesh):
    multihost_utils.sync_global_devices("start")
    assert multihost_utils.process_allgather(np.arange(2)).shape == (2, 2)
    local, spec = {"x": np.zeros((8, 4))}, P("data")
    whole = multihost_utils.host_local_array_to_global_array(local, mesh, spec)["x"]
    assert (whole.shape, whole.sharding.spec) == ((16, 4), spec)
    back = multihost_utils.global_array_to_host_local_array({"x": whole}, mesh, spec)["x"]
    assert back.shape == (8, 4)


def test_checkpoint_managers_find_their_coordinator(tmp_path):
    assert jax.distributed.is_initialized()
    GlobalAsyncCheckpointManager()
    options = ocp.CheckpointManagerOptions(max_to_keep=2, save_interval_steps=10)
    with ocp.CheckpointManager(tmp_path, options=options) as manager:
        assert manager.latest_step() is None


def test_a_device_answers_as_a_gpu_where_nothing_is_stored(devices):
    device = jax.local_devices(process_index=1)[0]
    assert (device.platform, device.device_kind[:11], device.slice_index) == (
        "gpu",
        "NVIDIA H100",
        1,
    )
    assert device.compute_capability == "9.0"
    assert device.memory_stats()["bytes_in_use"] == 0 < device.memory_stats()["bytes_limit"]
    assert backend.get_backend().platform == backend.get_backend("gpu").platform == "gpu"
    assert backend.get_backend("cpu").platform == "cpu"


def test_pretending_nests_and_ends_where_it_is_left(devices):
    def leaving():
        with sc.pretend("dgx-h100"):
            yield jax.device_count()

    inner = leaving()
    assert (next(inner), jax.device_count()) == (8, 8)
    inner.close()
    assert jax.device_count() == len(devices) == 16
    assert devices[0].memory_stats()["bytes_in_use"] == 0


def test_one_context_may_be_entered_again(devices):
    inner = sc.pretend("dgx-h100")
    for _ in range(2):
        with inner, inner:
            assert jax.device_count() == 8
        assert jax.device_count() == len(devices)


def test_a_jitted_function_with_constants_among_its_results_may_be_called(mesh):
    w = jax.device_put(np.ones((ROWS, WIDTH)), NamedSharding(mesh, P("data", "model")))
    state = jax.jit(optax.adam(1e-3).init)(w)
    assert state[0].count.shape == () and state[0].mu.shape == w.shape


def test_arrays_change_by_index_name_their_devices_and_have_no_text_of_a_value(mesh, devices):
    x = jax.device_put(np.zeros((ROWS, WIDTH)), NamedSharding(mesh, P("data")))
    assert (x.at[0].set(1.0).shape, x.at[:, 1].add(x[:, 0]).dtype) == (x.shape, x.dtype)
    assert jnp.where(x > 0, x, 0).shape == jnp.tile(x[0], (ROWS, 1)).shape == x.shape
    assert jnp.einsum("ij,kj->ik", x, x).shape == (ROWS, ROWS)
    assert x.devices() == set(devices)
    assert f"{x}" == str(x)
    with pytest.raises(InputError, match="so it has no values"):
        f"{x.mean():.3f}"


def test_another_thread_sees_the_cluster_and_may_not_change_it():
    said = []

    def work():
        said.append(jax.device_count())
        try:
            with sc.pretend("dgx-h100"):
                pass
        except InputError as error:
            said.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert said[0] == 16 and said[1].startswith("another thread is inside sc.pretend")
