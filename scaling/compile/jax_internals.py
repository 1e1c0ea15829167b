"""The private parts of jax that steps for absent devices need.

Those of their memories are in `scaling.meshes.absent_memory`; no other file has any.

    what                                       why
    pjit._pjit_call_impl_python                the one place where jax executes a jitted function:
                                               what a trace computes at once passes here too
    UnloadedMeshExecutable.build_unsafe_call   what it makes on absent devices are shapes
    pxla.batched_device_put                    likewise of what is put there
    sharding_constraint_p.impl                 likewise of what is constrained at once
    pjit._resolve_in_shardings                 arrays of this machine go along, as uncommitted ones
    mlir.ModuleContext.get_backend             callbacks ask for the client that would execute them
    distributed.global_state                   which process of a job this is, and its coordinator
    lowered._lowering._device_list             the devices of a step that was lowered elsewhere
    lowered._lowering.compile_args             its callbacks, which no absent device takes
    lowered._lowering._compiler_options_kvs    options of XLA that `jax.jit` was given

Tried with jax 0.10.2 and 0.12.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any
from unittest.mock import patch

import jax
import numpy as np
from jax._src import config, distributed, mesh, pjit, xla_bridge
from jax._src.interpreters import mlir, pxla

from scaling.compile.options import WITHOUT_DEVICE, without_kernels
from scaling.compile.pretend.arrays import KnownNumber
from scaling.compile.pretend.devices import (
    is_absent,
    is_for_absent,
    is_over_absent,
    known_shardings,
    lands_absent,
    shape_on,
    stays_here,
)
from scaling.compile.pretend.mesh_types import small_result, without_mesh_types

# Where jax keeps the mesh that is set: in `config` of jax 0.10, in `mesh` of 0.12
SET: Any = mesh if hasattr(mesh, "abstract_mesh_context_manager") else config


def devices_of(lowered: jax.stages.Lowered) -> list[jax.Device]:
    """The devices that a step was lowered for, in the order of its partitions."""
    return list(lowered._lowering._device_list)  # type: ignore[attr-defined]


def jitted_options(lowered: jax.stages.Lowered) -> dict[str, Any]:
    """The `compiler_options` of the jitted function that was lowered."""
    return dict(getattr(lowered._lowering, "_compiler_options_kvs", ()))


def without_callbacks(lowered: jax.stages.Lowered) -> jax.stages.Lowered:
    """The step without its functions of the host, which a compiler without devices refuses.

    The calls of them stay in the program.
    """
    with suppress(AttributeError, KeyError):
        lowered._lowering.compile_args["host_callbacks"].clear()
    return lowered


@contextmanager
def tracing_for_absent_devices() -> Iterator[None]:
    """While it is on, values that are computed at once come from the CPU, and callbacks lower.

    Such values are those inside `jax.ensure_compile_time_eval`, and `jnp.ones` while a mesh of
    absent devices is set. What would lie on absent devices is a jax.ShapeDtypeStruct with the
    sharding that it would have; where only the compiler knows that, it is asked.
    """
    replaced: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
        (pjit, "_pjit_call_impl_python", _calling),
        (pxla.UnloadedMeshExecutable, "build_unsafe_call", _executing),
        (pxla, "batched_device_put", _putting),
        (pjit, "_resolve_in_shardings", _resolving),
        (pjit.sharding_constraint_p, "impl", _constraining),
        (mlir.ModuleContext, "get_backend", _asking_backend),
    )
    with ExitStack() as stack:
        for place, name, instead_of in replaced:
            stack.enter_context(patch.object(place, name, instead_of(getattr(place, name))))
        yield


@contextmanager
def coordinated(client: Any, processes: int) -> Iterator[None]:
    """While it is on, this is the first process of a job, with such a client of its coordinator."""
    xla_bridge.get_backend("cpu")  # made before, for it would ask the coordinator too
    said = {"client": client, "process_id": 0, "num_processes": processes}
    with patch.multiple(distributed.global_state, **said):
        yield


def _calling(execute: Callable[..., Any]) -> Callable[..., Any]:
    """Execute a call here, answer with shapes where its results lie elsewhere, or compile it."""

    def call(*values: Any, **parameters: Any) -> Any:
        if stays_here(parameters, values):
            with _without_mesh(), jax.ensure_compile_time_eval():
                return without_mesh_types(parameters["jaxpr"])(*values), None, None, []
        if not lands_absent(parameters, values):
            return execute(*values, **parameters)
        shardings = known_shardings(parameters, values)
        if shardings is None or all(
            isinstance(sharding, jax.sharding.Sharding) for sharding in shardings
        ):
            arrays = parameters["jaxpr"].out_avals
            made = list(map(shape_on, arrays, shardings or [None] * len(arrays)))
            return _with_counts(made, parameters["jaxpr"], values), None, None, []
        asked = dict(parameters.pop("compiler_options_kvs"))
        run = lambda options: execute(
            *values, **parameters, compiler_options_kvs=tuple({**options, **asked}.items())
        )
        try:
            return run({**WITHOUT_DEVICE, **without_kernels()})
        except RuntimeError:  # as where this XLA does not know an option
            return run(WITHOUT_DEVICE)

    return call


def _with_counts(
    made: list[jax.ShapeDtypeStruct], jaxpr: Any, values: Sequence[Any]
) -> list[jax.ShapeDtypeStruct]:
    """The shapes with the values of whole numbers, such as the step of a new state."""
    if any(isinstance(value, jax.ShapeDtypeStruct) for value in values):
        return made
    for i, shape in enumerate(made):
        is_integer = shape.shape == () and jax.dtypes.issubdtype(shape.dtype, np.integer)
        function = small_result(jaxpr, i) if is_integer else None
        if function is not None:
            with _without_mesh(), jax.ensure_compile_time_eval():
                made[i] = KnownNumber(shape, function(*values)[0])
    return made


def _executing(build: Callable[..., Any]) -> Callable[..., Any]:
    """A compiled program as a function: for absent devices it returns shapes."""

    def function(self: Any) -> Any:
        if not any(map(is_absent, list(self.device_list)[:1])):
            return build(self)
        made = list(map(shape_on, self.output_avals, self.output_shardings))
        return lambda *_: list(made)

    return function


def _putting(put: Callable[..., Any]) -> Callable[..., Any]:
    def putting(array: Any, sharding: Any, *given: Any, **options: Any) -> Any:
        if is_over_absent(sharding):
            return shape_on(array, sharding)
        return put(array, sharding, *given, **options)

    return putting


def _resolving(resolve: Callable[..., Any]) -> Callable[..., Any]:
    """Leave out the sharding of arguments that one device of this machine holds."""

    def resolved(arguments: Any, shardings: Any) -> Any:
        held = [argument.sharding for argument in arguments]
        one = jax.sharding.SingleDeviceSharding
        if any(map(is_over_absent, (*held, *shardings))):
            here = [isinstance(own, one) and not is_over_absent(own) for own in held]
            arguments = [
                argument.replace(sharding=None) if is_here else argument
                for argument, is_here in zip(arguments, here, strict=True)
            ]
        return resolve(arguments, shardings)

    return resolved


def _constraining(constrain: Callable[..., Any]) -> Callable[..., Any]:
    def constraining(array: Any, *, sharding: Any, **options: Any) -> Any:
        over = jax.sharding.get_mesh()
        is_of_set = isinstance(getattr(sharding, "mesh", None), jax.sharding.AbstractMesh)
        if is_of_set and is_for_absent(over):
            kind = sharding.memory_kind
            sharding = jax.sharding.NamedSharding(over, sharding.spec, memory_kind=kind)
        if is_over_absent(sharding):
            return shape_on(array, sharding)
        return constrain(array, sharding=sharding, **options)

    return constraining


def _asking_backend(ask: Callable[..., Any]) -> Callable[..., Any]:
    def backend_or_cpu(self: Any, *given: Any, **named: Any) -> Any:
        try:
            return ask(self, *given, **named)
        except RuntimeError:  # there is no client of this platform
            return xla_bridge.get_backend("cpu")

    return backend_or_cpu


@contextmanager
def _without_mesh() -> Iterator[None]:
    abstract = SET.abstract_mesh_context_manager.swap_local(mesh.empty_abstract_mesh)
    concrete = SET.device_context.swap_local(mesh.empty_concrete_mesh)
    try:
        yield
    finally:
        SET.abstract_mesh_context_manager.set_local(abstract)
        SET.device_context.set_local(concrete)
