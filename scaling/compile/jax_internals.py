"""The private parts of jax that steps for absent devices need; no other file has any.

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

Tried with jax 0.10.2 and 0.12.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any
from unittest.mock import patch

import jax
from jax._src import config, distributed, mesh, pjit, xla_bridge
from jax._src.interpreters import mlir, pxla

from scaling.compile.kernels import without_kernels
from scaling.compile.mesh_types import constraints_of, without_mesh_types
from scaling.compile.options import WITHOUT_DEVICE

# Where jax keeps the mesh that is set: in `config` of jax 0.10, in `mesh` of 0.12
SET: Any = mesh if hasattr(mesh, "abstract_mesh_context_manager") else config


def is_absent(device: Any) -> bool:
    """Whether a device is only described, so that it compiles and does not run."""
    return "CompileOnly" in type(device.client).__name__


def devices_of(lowered: jax.stages.Lowered) -> list[jax.Device]:
    """The devices that a step was lowered for, in the order of its partitions."""
    return list(lowered._lowering._device_list)  # type: ignore[attr-defined]


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
    """Executed here, by shapes if the results are known to lie elsewhere, or only compiled."""

    def call(*values: Any, **parameters: Any) -> Any:
        if _stays_here(parameters, values):
            with _without_mesh(), jax.ensure_compile_time_eval():
                return without_mesh_types(parameters["jaxpr"])(*values), None, None, []
        if not _lands_absent(parameters, values):
            return execute(*values, **parameters)
        shardings = _known_shardings(parameters, values)
        if shardings is None or all(
            isinstance(sharding, jax.sharding.Sharding) for sharding in shardings
        ):
            arrays = parameters["jaxpr"].out_avals
            made = list(map(_shape, arrays, shardings or [None] * len(arrays)))
            return made, None, None, []
        asked = dict(parameters.pop("compiler_options_kvs"))
        run = lambda options: execute(
            *values, **parameters, compiler_options_kvs=tuple({**options, **asked}.items())
        )
        try:
            return run({**WITHOUT_DEVICE, **without_kernels()})
        except RuntimeError:  # as where this XLA does not know an option
            return run(WITHOUT_DEVICE)

    return call


def _executing(build: Callable[..., Any]) -> Callable[..., Any]:
    """A compiled program as a function: for absent devices it returns shapes."""

    def function(self: Any) -> Any:
        if not any(map(is_absent, list(self.device_list)[:1])):
            return build(self)
        made = list(map(_shape, self.output_avals, self.output_shardings))
        return lambda *_: list(made)

    return function


def _putting(put: Callable[..., Any]) -> Callable[..., Any]:
    def putting(array: Any, sharding: Any, *given: Any, **options: Any) -> Any:
        if is_over_absent(sharding):
            return _shape(array, sharding)
        return put(array, sharding, *given, **options)

    return putting


def _resolving(resolve: Callable[..., Any]) -> Callable[..., Any]:
    """Arguments that one device of this machine holds are as such without a sharding."""

    def resolved(arguments: Any, shardings: Any) -> Any:
        held = [argument.sharding for argument in arguments]
        if any(map(is_over_absent, (*held, *shardings))):
            arguments = [
                a.replace(sharding=None) if _is_one_here(a.sharding) else a for a in arguments
            ]
        return resolve(arguments, shardings)

    return resolved


def _is_one_here(sharding: Any) -> bool:
    is_one = isinstance(sharding, jax.sharding.SingleDeviceSharding)
    return is_one and not is_over_absent(sharding)


def _constraining(constrain: Callable[..., Any]) -> Callable[..., Any]:
    def constraining(array: Any, *, sharding: Any, **options: Any) -> Any:
        over = jax.sharding.get_mesh()
        is_of_set = isinstance(getattr(sharding, "mesh", None), jax.sharding.AbstractMesh)
        if is_of_set and _is_for_absent(over):
            sharding = jax.sharding.NamedSharding(over, sharding.spec)
        if is_over_absent(sharding):
            return _shape(array, sharding)
        return constrain(array, sharding=sharding, **options)

    return constraining


def _asking_backend(ask: Callable[..., Any]) -> Callable[..., Any]:
    def backend_or_cpu(self: Any, *given: Any, **named: Any) -> Any:
        try:
            return ask(self, *given, **named)
        except RuntimeError:  # there is no client of this platform
            return xla_bridge.get_backend("cpu")

    return backend_or_cpu


def _stays_here(parameters: Any, values: Sequence[Any]) -> bool:
    """Whether a mesh of absent devices is only set around a call that needs none of them."""
    return _is_for_absent(parameters["ctx_mesh"]) and not _lands_absent(parameters, values)


def _lands_absent(parameters: Any, values: Sequence[Any]) -> bool:
    """Whether a call has arguments on absent devices, or results by what is written down."""
    if any(isinstance(value, jax.ShapeDtypeStruct) for value in values):
        return True
    held = (getattr(value, "sharding", None) for value in values)
    stated = (*parameters["in_shardings"], *parameters["out_shardings"], *held)
    if any(map(is_over_absent, stated)):
        return True
    typed = (getattr(array, "sharding", None) for array in parameters["jaxpr"].out_avals)
    is_cut = any(any(getattr(sharding, "spec", ())) for sharding in typed)
    return _is_for_absent(parameters["ctx_mesh"]) and is_cut


def _known_shardings(parameters: Any, values: Sequence[Any]) -> list[Any] | None:
    """Of each result the sharding that is stated, or that its type has; else something else.

    None: nothing lies on absent devices, so that no result has one.
    """
    held = [getattr(value, "sharding", None) for value in values]
    stated = (*parameters["in_shardings"], *parameters["out_shardings"], *held)
    if not any(map(is_over_absent, stated)) and not _is_for_absent(parameters["ctx_mesh"]):
        return None
    held = [getattr(sharding, "mesh", None) for sharding in held]
    over = next(filter(_is_for_absent, (parameters["ctx_mesh"], *held)), None)

    constraints = dict(constraints_of(parameters["jaxpr"].jaxpr))

    def known(stated: Any, made: Any) -> Any:
        typed: Any = getattr(made.aval, "sharding", None)
        if over is None or isinstance(stated, jax.sharding.Sharding):
            return stated
        if is_over_absent(constraints.get(made)):
            return constraints[made]
        is_typed = typed is not None and typed.mesh == over.abstract_mesh
        if is_typed and over.abstract_mesh.are_all_axes_explicit:
            return jax.sharding.NamedSharding(over, typed.spec)
        return None

    return list(map(known, parameters["out_shardings"], parameters["jaxpr"].jaxpr.outvars))


@contextmanager
def _without_mesh() -> Iterator[None]:
    abstract = SET.abstract_mesh_context_manager.swap_local(mesh.empty_abstract_mesh)
    concrete = SET.device_context.swap_local(mesh.empty_concrete_mesh)
    try:
        yield
    finally:
        SET.abstract_mesh_context_manager.set_local(abstract)
        SET.device_context.set_local(concrete)


def _shape(array: Any, sharding: Any) -> jax.ShapeDtypeStruct:
    """The shape of an array; on one device that is not in a mesh, without a sharding."""
    alone = isinstance(sharding, jax.sharding.SingleDeviceSharding)
    return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=None if alone else sharding)


def is_over_absent(sharding: Any) -> bool:
    """Whether a sharding, or what stands for none, is one over absent devices."""
    over = getattr(sharding, "mesh", None)
    if over is not None or not isinstance(sharding, jax.sharding.Sharding):
        return _is_for_absent(over)
    return any(map(is_absent, sharding.device_set))


def _is_for_absent(mesh: Any) -> bool:
    """Whether a mesh is one of absent devices."""
    return (
        isinstance(mesh, jax.sharding.Mesh) and not mesh.empty and is_absent(mesh.devices.flat[0])
    )
