"""A step that is not ours, end to end: compiled, read, priced. The hand count stands beside it."""

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from scaling.compile import jitted as compiled
from scaling.compile.lower import device_numbers
from scaling.meshes import catalog
from scaling.meshes.devices import named_mesh
from scaling.meshes.errors import InputError
from scaling.program.ir import CATEGORIES, Program, collectives, kernels, unattributed
from scaling.simulate.memory import memory_use
from scaling.simulate.timeline import run_schedule
from scaling.training.running import program_of

HOST = catalog.load("host")
AXES = {"rows": 4, "model": 2}
BATCH, WIDTH, HIDDEN, LAYERS = 64, 32, 128, 5


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SCALING_CACHE", str(tmp_path))
    return tmp_path / "programs"


def loss(weights: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    """A stack of equal two-layer MLPs, hidden layers cut over `model`."""

    def layer(x: jax.Array, one: dict[str, jax.Array]) -> tuple[jax.Array, None]:
        with jax.named_scope("mlp"):
            return x + jnp.tanh(x @ one["up"]) @ one["down"], None

    return jnp.mean(jax.lax.scan(layer, x, weights)[0] ** 2)


def step(weights: dict[str, jax.Array], x: jax.Array) -> dict[str, jax.Array]:
    """Plain SGD, without any scope of this project's."""
    gradients = jax.grad(loss)(weights, x)
    return jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradients)


def arguments(mesh: jax.sharding.Mesh) -> tuple:
    def array(shape: tuple[int, ...], spec: P) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, spec))

    weights = {
        "up": array((LAYERS, WIDTH, HIDDEN), P(None, None, "model")),
        "down": array((LAYERS, HIDDEN, WIDTH), P(None, "model", None)),
    }
    return weights, array((BATCH, WIDTH), P("rows", None))


@pytest.fixture
def program() -> Program:
    mesh = compiled.mesh(AXES, HOST)
    jitted = jax.jit(step, donate_argnums=0)
    return compiled.program_and_text(jitted, arguments(mesh), HOST, "mine")[0]


def test_a_mesh_has_axes_of_any_names_in_their_order() -> None:
    mesh = compiled.mesh(AXES, HOST)
    assert dict(mesh.shape) == AXES
    assert [device.id for device in mesh.devices.flat] == list(range(8))


def test_a_mesh_has_no_more_devices_than_the_cluster() -> None:
    with pytest.raises(InputError, match="for 32 devices, dgx-h100 has 16; load it with nodes=4"):
        compiled.mesh({"a": 8, "b": 4}, catalog.load("dgx-h100", nodes=2))
    jax.devices()
    with pytest.raises(InputError, match="cannot make it 64"):
        compiled.mesh({"a": 64}, HOST)


def test_the_products_are_those_of_the_function(program: Program) -> None:
    """Two products forward; of each the gradients of both operands."""
    product = 2 * (BATCH / 4) * WIDTH * (HIDDEN / 2)
    by_phase: Counter = Counter()
    for kernel, calls in kernels(program):
        by_phase[kernel.origin.phase] += kernel.flops * calls
    assert by_phase["forward"] == LAYERS * 2 * product
    assert by_phase["backward"] == LAYERS * 4 * product
    layers = {k.origin.layer for k, _ in kernels(program) if k.flops}
    assert layers == {"mlp"}


def test_the_collectives_are_those_of_the_function(program: Program) -> None:
    """Forward: sums of what `model` cuts. Backward: the same again, and gradients over `rows`."""
    sums: Counter = Counter()
    for collective, calls in collectives(program):
        assert collective.kind == "all-reduce"
        sums[collective.axes] += collective.bytes * calls
    activations = 4 * (BATCH // 4) * WIDTH
    weights = 4 * LAYERS * 2 * WIDTH * HIDDEN // 2
    assert sums.pop(("rows",)) == weights
    assert sums.pop(("model",)) == 2 * LAYERS * activations
    assert sum(sums.values()) <= 64  # the loss


def test_memory_and_time_of_any_step_can_be_told(program: Program) -> None:
    use = memory_use(program)
    assert use.by_category["parameters"] >= 4 * LAYERS * 2 * WIDTH * HIDDEN / 2
    assert sum(use.by_category[owner] for owner in CATEGORIES if owner != "pinned_host") == use.peak
    names = {s.name for found in (kernels, collectives) for s, _ in found(program)}
    line = run_schedule(program, dict.fromkeys(names, 1e-6))
    assert line.total > 0 and math.isfinite(line.total)
    assert unattributed(program) <= 1


def test_a_program_is_compiled_once_and_found_under_any_name(program: Program, monkeypatch) -> None:
    from scaling.compile import lower

    monkeypatch.setattr(lower, "compile_text", lambda *_: pytest.fail("compiled again"))
    mesh = compiled.mesh(AXES, HOST)
    jitted = jax.jit(step, donate_argnums=0)
    again, text = compiled.program_and_text(jitted, arguments(mesh), None, "other")
    assert again.name == "other" and again.schedule == program.schedule
    assert text.startswith("HloModule")


def test_partitions_lie_on_the_devices_of_the_mesh_in_its_order() -> None:
    devices = compiled.mesh(AXES, HOST).devices
    turned = named_mesh(AXES, devices.reshape(2, 4).T.ravel().tolist())
    found, _ = compiled.program_and_text(jax.jit(step), arguments(turned), HOST)
    assert found.device_ids == (0, 4, 1, 5, 2, 6, 3, 7)
    plain, _ = compiled.program_and_text(jax.jit(step), arguments(named_mesh(AXES, devices)), HOST)
    assert plain == replace(found, device_ids=())
    empty = jax.jit(lambda x: x).lower(1.0).compile()
    assert program_of(empty, turned, "step").device_ids == found.device_ids


def test_some_of_the_devices_that_are_present_count_from_the_first() -> None:
    devices = compiled.mesh(AXES, HOST).devices.ravel().tolist()
    assert device_numbers(named_mesh({"rows": 4}, devices[1::2])) == (0, 1, 2, 3)


def test_a_mesh_of_another_machine_is_refused() -> None:
    mesh = compiled.mesh(AXES, HOST)
    with pytest.raises(InputError, match="the step is for cpu, dgx-h100 has NVIDIA H100"):
        compiled.program_and_text(jax.jit(step), arguments(mesh), catalog.load("dgx-h100"))


@pytest.mark.deviceless
def test_the_same_function_is_compiled_for_gpus_that_are_not_here() -> None:
    cluster = catalog.load("dgx-h100")
    mesh = compiled.mesh(AXES, cluster)
    program, _ = compiled.program_and_text(
        jax.jit(step, donate_argnums=0), arguments(mesh), cluster
    )
    sums: Counter = Counter()
    for collective, calls in collectives(program):
        sums[collective.axes] += collective.bytes * calls
    assert sums["rows",] >= 4 * LAYERS * 2 * WIDTH * HIDDEN // 2
    assert sums["model",] == 2 * LAYERS * 4 * (BATCH // 4) * WIDTH
    assert memory_use(program).peak == pytest.approx(program.compiler_peak, rel=0.1)
