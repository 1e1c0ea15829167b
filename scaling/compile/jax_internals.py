"""The private parts of jax that steps for absent devices need; no other file has any.

    what                                       why
    pjit._run_python_pjit                      the one place where jax executes a jitted function:
                                               values that a trace computes at once come from here
    mlir.ModuleContext.get_backend             callbacks ask for the client that would execute them
    lowered._lowering._device_list             the devices of a step that was lowered elsewhere
    lowered._lowering.compile_args             its callbacks, which no absent device takes

Tried with jax 0.10.2 and 0.12.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import jax
from jax._src import config, core, mesh, pjit, xla_bridge
from jax._src.interpreters import mlir

# Where jax keeps the mesh that is set: in `config` of jax 0.10, in `mesh` of 0.12
SET: Any = mesh if hasattr(mesh, "abstract_mesh_context_manager") else config
MOVES = ("reshard", "sharding_constraint")  # operations that give an array another sharding


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
    absent devices is set. A call of a jitted function that takes shapes, or lays arrays on absent
    devices by `out_shardings` or a constraint, returns shapes with the shardings that it states,
    as `jax.eval_shape` does.
    """
    execute, backend = pjit._run_python_pjit, mlir.ModuleContext.get_backend

    def executed(parameters: Any, flat: Any, function: Any, values: Any, named: Any) -> Any:
        given = (parameters, flat, function, values, named)
        if not _is_computed_at_once(flat):
            return execute(*given)
        made = _abstract_results(parameters, flat)
        if made is None and _is_for_absent(parameters.params["ctx_mesh"]):
            made = _on_cpu(function, values, named)
        if made is None:
            return execute(*given)
        tree, jaxpr = parameters.out_tree, parameters.params["jaxpr"]
        leaves = jax.tree.leaves(made)
        return jax.tree.unflatten(tree, leaves), leaves, tree, flat, jaxpr, None, None, []

    def backend_or_cpu(self: Any, *given: Any, **named: Any) -> Any:
        try:
            return backend(self, *given, **named)
        except RuntimeError:  # there is no client of this platform
            return xla_bridge.get_backend("cpu")

    pjit._run_python_pjit = executed  # type: ignore[assignment]
    mlir.ModuleContext.get_backend = backend_or_cpu  # type: ignore[method-assign]
    try:
        yield
    finally:
        pjit._run_python_pjit = execute
        mlir.ModuleContext.get_backend = backend  # type: ignore[method-assign]


def _is_computed_at_once(values: Sequence[Any]) -> bool:
    """Whether a call is executed, not part of what is being traced."""
    if core.trace_ctx.trace is core.eval_trace:
        return True
    traced = any(isinstance(value, jax.core.Tracer) for value in values)
    return config.eager_constant_folding.value and not traced  # by `ensure_compile_time_eval`


def _abstract_results(
    parameters: Any, values: Sequence[Any]
) -> Sequence[jax.ShapeDtypeStruct] | None:
    """Shapes and stated shardings of a call's results; None if nothing lies on absent devices."""
    jaxpr = parameters.params["jaxpr"].jaxpr
    stated = [
        sharding if isinstance(sharding, jax.sharding.Sharding) else None
        for sharding in parameters.params["out_shardings"]
    ]
    constraints = dict(_constraints(jaxpr))
    if not (
        any(isinstance(value, jax.ShapeDtypeStruct) for value in values)
        or any(_is_for_absent(getattr(s, "mesh", None)) for s in (*stated, *constraints.values()))
    ):
        return None
    return [
        jax.ShapeDtypeStruct(
            made.aval.shape, made.aval.dtype, sharding=sharding or constraints.get(id(made))
        )
        for made, sharding in zip(jaxpr.outvars, stated, strict=True)
    ]


def _constraints(jaxpr: Any) -> Iterator[tuple[int, jax.sharding.Sharding]]:
    """Which array has which sharding by a constraint, in a function and those that it calls."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "sharding_constraint":
            yield id(equation.outvars[0]), equation.params["sharding"]
    for inner in core.subjaxprs(jaxpr):
        yield from _constraints(inner)


def _on_cpu(function: Callable[..., Any], values: Any, named: Any) -> Any:
    """What a function returns where no mesh is set: it runs on this machine, call by call."""
    if getattr(function, "__name__", "") in MOVES:
        return values[0]
    abstract = SET.abstract_mesh_context_manager.swap_local(mesh.empty_abstract_mesh)
    concrete = SET.device_context.swap_local(mesh.empty_concrete_mesh)
    try:
        with jax.ensure_compile_time_eval():
            return function(*values, **named)
    finally:
        SET.abstract_mesh_context_manager.set_local(abstract)
        SET.device_context.set_local(concrete)


def _is_for_absent(mesh: Any) -> bool:
    """Whether a mesh is one of absent devices."""
    return (
        isinstance(mesh, jax.sharding.Mesh) and not mesh.empty and is_absent(mesh.devices.flat[0])
    )
