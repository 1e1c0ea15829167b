"""Steps of every kind are lowered: on the mesh given, set, of the arguments, or for one device."""

from functools import partial

import jax
import jax.numpy as jnp
import optax
import pytest
from flax import nnx
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from scaling.compile import jitted
from scaling.compile.lower import CompiledText, lower
from scaling.compile.stages import lower_step, mesh_of_compiled
from scaling.meshes import catalog
from scaling.meshes.errors import InputError
from tests.scaling.hlo.texts import text

HOST = catalog.load("host")
ROWS, WIDTH = 16, 8
X = jax.ShapeDtypeStruct((ROWS, WIDTH), jnp.float32)


@pytest.fixture(scope="module")
def mesh() -> jax.sharding.Mesh:
    return jitted.mesh({"rows": 4, "model": 2}, HOST)


@pytest.fixture(scope="module")
def one() -> jax.sharding.Mesh:
    return jitted.mesh({"device": 1}, HOST)


def total(x: jax.Array) -> jax.Array:
    return (2 * x).sum()


def staged(step, *arguments, mesh=None, one=None, **keywords):
    return lower_step(step, arguments, keywords, mesh, (lambda: one) if one else None)


def test_shardings_of_the_step_itself_say_on_which_mesh_it_runs(mesh):
    step = jax.jit(total, in_shardings=NamedSharding(mesh, P("rows", "model")))
    made = lower_step(step, (X,), {}, None, None)
    assert dict(made.mesh.shape) == {"rows": 4, "model": 2}
    assert made.mesh.devices.tolist() == mesh.devices.tolist()


def test_axes_given_or_set_around_are_those_that_specs_mean(mesh):
    step = jax.jit(total, in_shardings=P("rows"))
    assert staged(step, X, mesh=mesh).mesh == mesh
    with jax.set_mesh(mesh):
        assert staged(step, X).mesh == mesh
    said = r"the step cannot be lowered: .*mesh.*; say on which mesh it runs: mesh=\"data=8\""
    with pytest.raises(InputError, match=said):
        staged(step, X)


def test_without_a_mesh_a_step_is_that_of_one_device(one):
    assert staged(jax.jit(total), X, one=one).mesh == one
    assert staged(jax.jit(total), jnp.ones((ROWS, WIDTH)), one=one).mesh.size == 1


def test_mapped_functions_have_the_mesh_of_their_devices(mesh):
    devices = list(mesh.devices.flat)
    step = jax.pmap(lambda x: jax.lax.psum(x, "i"), axis_name="i", devices=devices)
    made = staged(step, jax.ShapeDtypeStruct((8, WIDTH), jnp.float32))
    assert dict(made.mesh.shape) == {"i": 8}


def test_keywords_and_static_arguments_are_passed_on(one):
    step = jax.jit(lambda x, n, *, scale: n * scale * x, static_argnums=1)
    assert "multiply" in staged(step, X, 3, scale=X, one=one).lowered.as_text()


def test_a_step_that_is_lowered_keeps_what_was_set_around_it(mesh):
    def constrained(x: jax.Array) -> jax.Array:
        return jax.lax.with_sharding_constraint(2 * x, P("rows"))

    with jax.set_mesh(mesh):
        lowered = jax.jit(constrained).lower(X)
    made = staged(lowered)
    assert (made.mesh.size, dict(made.mesh.shape)) == (8, {"rows": 4, "model": 2})
    assert made.lowered.as_text() == lowered.as_text()
    with pytest.raises(InputError, match="has its arguments already: give it alone"):
        staged(lowered, X)


def test_a_compiled_step_has_the_mesh_of_its_shardings(mesh):
    given = jax.ShapeDtypeStruct(X.shape, X.dtype, sharding=NamedSharding(mesh, P("rows")))
    compiled = jax.jit(total).lower(given).compile()
    assert mesh_of_compiled(compiled) == mesh
    program, text = jitted.program_of(compiled, HOST, "mine")
    assert (program.name, program.compiler_peak) == ("mine", jitted.planned_peak(compiled, mesh))
    assert text == compiled.as_text()
    alone = jax.jit(total).lower(X).compile()
    assert dict(mesh_of_compiled(alone).shape) == {"devices": 1}


def test_modules_and_optimizers_of_flax_go_into_nnx_jit(one):
    def optimizer() -> nnx.Optimizer:
        return nnx.Optimizer(nnx.Linear(WIDTH, 1, rngs=nnx.Rngs(0)), optax.sgd(0.1), wrt=nnx.Param)

    @nnx.jit
    def step(model, optimizer, x):
        value, gradient = nnx.value_and_grad(lambda model: model(x).mean())(model)
        optimizer.update(model, gradient)
        return value

    model = nnx.eval_shape(lambda: nnx.Linear(WIDTH, 1, rngs=nnx.Rngs(0)))
    state = nnx.eval_shape(lambda: nnx.Optimizer(model, optax.sgd(0.1), wrt=nnx.Param))
    assert "dot_general" in staged(step, model, state, X, one=one).lowered.as_text()


class FilterJit:
    """Stands for Equinox's `filter_jit`, which takes leaves of any kind, donating all it can."""

    donate_first = donate_rest = True
    lower = None

    def __init__(self, function):
        self.__wrapped__ = function


FilterJit.__module__ = "equinox._jit"


def test_leaves_that_are_no_arrays_are_constants_of_a_filtered_step(one):
    def function(layer, x, scale):
        return {"y": layer["act"](x @ layer["w"]) * scale, "w": 2 * layer["w"], "n": 3}

    step = FilterJit(function)
    layer = {"w": jax.ShapeDtypeStruct((WIDTH, WIDTH), jnp.float32), "act": jax.nn.relu}
    lowered = staged(step, layer, X, scale=2.0, one=one).lowered
    assert len(jax.tree.leaves(lowered.in_avals)) == 2
    assert lowered.donate_argnums == (0, 1)


def test_what_does_not_fit_is_said_in_one_line_with_its_place(one):
    with pytest.raises(InputError, match=r"TypeError: .*dot_general.*test_stages.py:\d+\)$") as at:
        staged(jax.jit(lambda x: x @ x), X, one=one)
    assert "\n" not in str(at.value)
    with pytest.raises(InputError, match="missing 1 required positional argument"):
        staged(jax.jit(lambda x, y: x), X, one=one)
    with pytest.raises(InputError, match="is not jitted: give jax.jit"):
        staged(total, X, one=one)


def test_loops_told_apart_compile_nothing_anew(tmp_path, monkeypatch, one):
    monkeypatch.setenv("SCALING_CACHE", str(tmp_path))

    def until(x: jax.Array, count: jax.Array) -> jax.Array:
        body = lambda state: (state[0] + 1, jnp.tanh(state[1] @ state[1]))
        return jax.lax.while_loop(lambda state: state[0] < count, body, (0, x))[1]

    square, count = (
        jax.ShapeDtypeStruct(s, t) for s, t in (((8, 8), jnp.float32), ((), jnp.int32))
    )
    made = lower(jax.jit(until), (square, count), one)
    flops = partial(jitted.program_of, made, HOST)
    jitted.program_of(made, HOST)
    monkeypatch.setattr(jitted, "compile_text", lambda *_: pytest.fail("compiled again"))
    (loop,) = [s for s in flops(given={"trips": {"while": 7}})[0].schedule if hasattr(s, "trips")]
    assert loop.trips == 7


def test_what_only_the_caller_can_read_is_compiled_once(tmp_path, monkeypatch, one):
    monkeypatch.setenv("SCALING_CACHE", str(tmp_path))
    call = 'x = f32[8] parameter(0); r = f32[8] custom-call(%x), custom_call_target="mosaic_gpu"'
    compiled = []
    make = lambda *_: compiled.append(CompiledText(text(call), None)) or compiled[-1]
    monkeypatch.setattr(jitted, "compile_text", make)
    step = lower(jax.jit(total), (X,), one)
    program, _ = jitted.program_of(step, HOST, given={"kernels": {"mosaic_gpu": "local"}})
    assert [kernel.unknown for kernel in program.schedule] == ["mosaic_gpu"]
    assert len(compiled) == 1


def own_eigenvalues(x: jax.Array) -> jax.Array:
    return jnp.linalg.eigvals(x + 1)


def own_schur_form(x: jax.Array) -> jax.Array:
    return jax.lax.fori_loop(0, 2, lambda _, x: jax.scipy.linalg.schur(x)[0], x)


@pytest.mark.deviceless
@pytest.mark.parametrize(
    ("step", "words"),
    [
        (own_eigenvalues, "that are not here: jax asks cusolver for its version, which needs a"),
        (own_schur_form, "jax has no kernel of it; compute it outside of the step"),
    ],
)
def test_what_jax_lowers_for_no_absent_gpu_is_said_with_its_line(step, words):
    gpu = jitted.mesh({"device": 1}, catalog.load("dgx-h100"))
    line = step.__code__.co_firstlineno + 1
    square = jax.ShapeDtypeStruct((8, 8), jnp.float32)
    with pytest.raises(InputError, match=rf"{__name__.rsplit('.')[-1]}.py:{line} .*{words}"):
        staged(jax.jit(step), square, one=gpu)


@pytest.mark.deviceless
def test_kernels_are_timed_on_no_absent_gpu():
    step, gpu = jax.jit(total), jitted.mesh({"device": 1}, catalog.load("dgx-h100"))
    with pytest.raises(InputError, match="autotune_level=4: XLA would time kernels on a GPU"):
        lower(step, (X,), gpu, {"xla_gpu_autotune_level": 4}, one_device=lambda: gpu)
    same = lower(step, (X,), gpu, {"xla_gpu_autotune_level": 0}, one_device=lambda: gpu)
    assert "xla_gpu_autotune_level" not in same.added
