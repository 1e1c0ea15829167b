"""Lowering and compiling: which mesh, which options, and what is said where it cannot be done."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from scaling.compile import lower as lowering
from scaling.compile.lower import (
    NO_TABLE,
    WITH_ESTIMATES,
    compile_text,
    is_present,
    lower,
    mesh_of,
    target_of,
)
from scaling.compile.options import GPU_OPTIONS, WITHOUT_DEVICE
from scaling.meshes import catalog
from scaling.meshes.cluster import Cluster
from scaling.meshes.devices import absent_devices, absent_mesh, host_mesh
from scaling.meshes.errors import InputError
from scaling.meshes.shape import MeshShape
from scaling.program.versions import xla_flags

SHAPE = MeshShape(data=2, tensor=2)
HOST = catalog.load("host")
H100 = catalog.load("dgx-h100")


def argument(mesh: jax.sharding.Mesh, rows: int = 8) -> jax.ShapeDtypeStruct:
    sharding = NamedSharding(mesh, P("data", "tensor"))
    return jax.ShapeDtypeStruct((rows, 8), jnp.float32, sharding=sharding)


def double(x: jax.Array) -> jax.Array:
    return 2 * x


@pytest.fixture(scope="module")
def mesh() -> jax.sharding.Mesh:
    return host_mesh(SHAPE)


def test_the_mesh_is_that_of_the_arguments(mesh: jax.sharding.Mesh) -> None:
    assert mesh_of(({"step": 3}, [argument(mesh)])) == mesh
    assert is_present(mesh)


@pytest.mark.parametrize("arguments", [(), (1, jax.ShapeDtypeStruct((8,), jnp.float32))])
def test_arguments_without_a_mesh_are_refused(arguments: tuple) -> None:
    with pytest.raises(InputError, match="no argument has a sharding over a mesh"):
        lower(jax.jit(double), arguments)


def test_a_function_that_is_not_jitted_is_refused(mesh: jax.sharding.Mesh) -> None:
    with pytest.raises(InputError, match=r"double.* is not jitted: give jax.jit\(function\)"):
        lower(double, (argument(mesh),))


def test_a_program_is_known_by_its_text_its_mesh_and_its_versions(mesh, monkeypatch) -> None:
    jitted = jax.jit(double)
    key = lower(jitted, (argument(mesh),)).key
    assert lower(jax.jit(double), (argument(mesh),)).key == key
    turned = host_mesh(MeshShape(data=2, tensor=2, device_order=SHAPE.device_order[::-1]))
    others = [
        lower(jitted, (argument(mesh, 16),)).key,
        lower(jax.jit(lambda x: 3 * x), (argument(mesh),)).key,
        lower(jitted, (argument(turned),)).key,
    ]
    monkeypatch.setattr(lowering, "compiler_versions", lambda: {"jax": "another"})
    others.append(lower(jitted, (argument(mesh),)).key)
    monkeypatch.undo()
    monkeypatch.setenv("XLA_FLAGS_OF_NOBODY", "1")
    assert lower(jitted, (argument(mesh),)).key == key
    assert len({key, *others}) == 5


def key_of(function: Callable, mesh: jax.sharding.Mesh) -> str:
    function.__name__ = "step"
    return lower(jax.jit(function), (argument(mesh),)).key


def in_scope(name: str) -> Callable:
    def function(x: jax.Array) -> jax.Array:
        with jax.named_scope(name):
            return 2 * x

    return function


def test_a_program_is_known_by_its_scopes_and_the_names_of_its_arguments(mesh) -> None:
    """They tell the layers of kernels and the owners of buffers."""
    key = key_of(in_scope("mlp"), mesh)
    assert key_of(in_scope("head"), mesh) != key
    assert key_of(lambda params: 2 * params, mesh) != key_of(lambda opt_state: 2 * opt_state, mesh)


def test_given_options_come_beside_and_before_the_trainers(mesh: jax.sharding.Mesh) -> None:
    given = {"xla_cpu_enable_fast_min_max": True}
    with_options = lower(jax.jit(double), (argument(mesh),), options=given)
    assert with_options.options == lower(jax.jit(double), (argument(mesh),)).options | given
    assert with_options.key != lower(jax.jit(double), (argument(mesh),)).key


def test_here_the_trainers_options_hold_and_autotuning_stays(mesh: jax.sharding.Mesh) -> None:
    assert lower(jax.jit(double), (argument(mesh),)).options == xla_flags()


def test_the_plan_on_the_host_counts_arguments_results_and_temporaries(mesh) -> None:
    """Of 8x8 numbers on four devices each holds 64 bytes in and 64 bytes out."""
    made = compile_text(lower(jax.jit(double), (argument(mesh),)))
    assert made.text.startswith("HloModule") and made.notes == ()
    assert made.peak == 128
    donated = compile_text(lower(jax.jit(double, donate_argnums=0), (argument(mesh),)))
    assert donated.peak == 64


class Refusing:
    """A lowered step that XLA does not compile."""

    def __init__(self, message: str, always: bool = True):
        self.message, self.always, self.asked = message, always, []

    def compile(self, compiler_options: dict) -> object:
        self.asked.append(compiler_options)
        if self.always or WITH_ESTIMATES.items() <= compiler_options.items():
            raise jax.errors.JaxRuntimeError(self.message)
        return jax.jit(double).lower(jnp.ones(8)).compile()


def refused(mesh: jax.sharding.Mesh, step: Refusing) -> lowering.Lowered:
    return lowering.Lowered(step, mesh, {"xla_option": 1})  # type: ignore[arg-type]


def test_what_xla_refuses_for_absent_devices_is_said_in_one_line(mesh, monkeypatch) -> None:
    monkeypatch.setattr(lowering, "is_present", lambda mesh: False)
    step = Refusing("INTERNAL: cuDNN not found\nmany lines")
    with pytest.raises(InputError, match=r"cuDNN not found.*jax-scaling\[deviceless\]") as caught:
        compile_text(refused(mesh, step))
    assert "many lines" not in str(caught.value)


def test_what_xla_refuses_for_the_devices_here_is_raised_as_it_is(mesh) -> None:
    with pytest.raises(jax.errors.JaxRuntimeError, match="OUT_OF"):
        compile_text(refused(mesh, Refusing("OUT_OF_SOMETHING")))


def test_where_xla_has_no_table_its_estimates_are_missing_with_a_note(mesh) -> None:
    step = Refusing("NOT_FOUND: no table for this chip", always=False)
    made = compile_text(refused(mesh, step), estimates=True)
    assert made.notes == (NO_TABLE,)
    assert step.asked == [{"xla_option": 1, **WITH_ESTIMATES}, {"xla_option": 1}]


@pytest.mark.parametrize("error", [NotImplementedError, RuntimeError])
@pytest.mark.parametrize(
    ("plugin", "words"),
    [
        (None, r"CUDA plugin: pip install 'jax-scaling\[deviceless\]'"),
        ("spec", "JAX_PLATFORMS=cpu first"),
    ],
)
def test_what_is_missing_to_compile_for_absent_gpus_is_named(
    error: type, plugin: str | None, words: str, monkeypatch
) -> None:
    from jax.experimental import topologies

    def missing(*_: object, **__: object) -> None:
        raise error("topology not implemented for cuda")

    monkeypatch.setattr(topologies, "get_topology_desc", missing)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: plugin)
    with pytest.raises(InputError, match=words):
        absent_mesh(MeshShape(fsdp=8), H100)


@pytest.mark.deviceless
def test_a_process_that_has_imported_jax_prices_absent_gpus_too() -> None:
    code = "import jax; import scaling as sc\nprint(sc.device_mesh({'x': 8}, 'dgx-h100').size)"
    env = {name: value for name, value in os.environ.items() if name != "JAX_PLATFORMS"}
    run = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (0, "8\n"), run.stderr


@pytest.mark.deviceless
@pytest.mark.slow
def test_without_the_platform_set_the_message_says_to_set_it() -> None:
    """In a process of its own, because jax reads JAX_PLATFORMS once; fine where there is a GPU."""
    code = (
        "from scaling.meshes import catalog; from scaling.compile import jitted\n"
        "jitted.mesh({'data': 8}, catalog.load('dgx-h100'))"
    )
    env = {name: value for name, value in os.environ.items() if name != "JAX_PLATFORMS"}
    run = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert run.returncode == 0 or "set JAX_PLATFORMS=cpu first" in run.stderr


def test_a_chip_that_cannot_be_compiled_for_is_named() -> None:
    old = replace(H100, accelerator=replace(H100.accelerator, compute_capability=6.0))
    with pytest.raises(InputError, match="h100-sxm cannot be compiled for without the device"):
        absent_mesh(MeshShape(fsdp=8), old)


def test_more_devices_than_can_be_described_are_refused_before_they_are_made() -> None:
    with pytest.raises(InputError, match="131,080 devices are more than .* fewer nodes"):
        absent_devices(131_080, H100)


# For GPUs that are not here


@pytest.fixture(scope="module")
def gpus() -> jax.sharding.Mesh:
    return absent_mesh(MeshShape(data=8, tensor=2), catalog.load("dgx-h100", nodes=2))


@pytest.mark.deviceless
def test_for_absent_gpus_the_trainers_options_hold_without_autotuning(gpus) -> None:
    lowered = lower(jax.jit(double), (argument(gpus),))
    assert not is_present(gpus)
    assert lowered.options == {**xla_flags(), **GPU_OPTIONS, **WITHOUT_DEVICE}


@pytest.mark.deviceless
@pytest.mark.parametrize(
    "cluster, message",
    [
        (None, "say for which cluster"),
        (HOST, "the step is for NVIDIA H100.*, host has cpu"),
        (catalog.load("dgx-a100"), "dgx-a100 has NVIDIA A100.*scaling.device_mesh"),
        (H100, "16 devices, dgx-h100 has 8; load it with nodes=2"),
    ],
)
def test_absent_gpus_are_those_of_the_cluster(
    gpus: jax.sharding.Mesh, cluster: Cluster | None, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        target_of(gpus, cluster)
    assert "core_count: 132" in target_of(gpus, catalog.load("dgx-h100", nodes=2))


@pytest.mark.deviceless
def test_xlas_own_estimates_come_where_it_has_a_table() -> None:
    mesh = absent_mesh(MeshShape(data=4, tensor=2), H100)
    made = compile_text(lower(jax.jit(double), (argument(mesh, 4096),)), estimates=True)
    assert "reification_cost" in made.text and made.notes == ()
    assert made.peak == 2 * 4096 * 8 * 4 / 8
    old = absent_mesh(MeshShape(data=4, tensor=2), catalog.load("dgx-a100"))
    assert compile_text(lower(jax.jit(double), (argument(old),)), True).notes == (NO_TABLE,)


@pytest.mark.parametrize(
    ("version", "on_host", "said", "peak"),
    [
        ((0, 10, 0), 0, 90, 125),
        ((0, 10, 1), 0, 90, 90),
        ((0, 10, 1), 50, 160, 160),  # with arguments and results on the host
        ((0, 10, 1), 100, 210, 165),  # with temporaries there, instead of those of the device
    ],
)
def test_the_peak_leaves_out_temporaries_of_an_older_jax_or_of_the_host(
    version: tuple[int, ...], on_host: int, said: int, peak: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """60 bytes of arguments, 30 of results of which 20 replace some, 55 of temporaries.

    On the host 40 of arguments, which results of as many replace.
    """
    sizes = {"argument": 60, "output": 30, "alias": 20, "temp": 55}
    sizes |= {"host_argument": 40, "host_output": 40, "host_alias": 40, "host_temp": on_host}
    plan = SimpleNamespace(**{f"{name}_size_in_bytes": size for name, size in sizes.items()})
    plan.peak_memory_in_bytes = said
    monkeypatch.setattr(jax, "__version_info__", version)
    device = SimpleNamespace(platform="gpu")
    mesh = SimpleNamespace(devices=np.array([device]))
    compiled = SimpleNamespace(memory_analysis=lambda: plan)
    assert lowering.planned_peak(compiled, mesh) == peak
