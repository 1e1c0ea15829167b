"""What lies on absent devices: devices that are only described, and what is sharded over them.

A call of a jitted function, by its parameters as jax has them, is either executed on this machine,
or its results are shapes with shardings that are stated, typed or left to the compiler.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import jax
from jax.extend.core import Literal

from scaling.compile.pretend.mesh_types import constraints_of
from scaling.meshes.absent_memory import is_absent
from scaling.meshes.devices import named_mesh

SINGLE = jax.sharding.SingleDeviceSharding
ALONE = {"device": 1}  # the mesh of one that stands for it


class _Single(type):
    """Of `SingleSharding`: its instances are those of jax's own class, and what stands for them."""

    def __instancecheck__(cls, instance: object) -> bool:
        if isinstance(instance, jax.sharding.NamedSharding):
            return dict(instance.mesh.shape) == ALONE
        return isinstance(instance, SINGLE)

    def __call__(cls, device: jax.Device, *, memory_kind: str | None = None) -> Any:
        if not is_absent(device):
            return SINGLE(device, memory_kind=memory_kind)
        mesh = named_mesh(ALONE, [device])
        return jax.sharding.NamedSharding(mesh, jax.P(), memory_kind=memory_kind)


class SingleSharding(metaclass=_Single):
    """`jax.sharding.SingleDeviceSharding`, which keeps the memory kind of an absent device.

    jaxlib's own drops it in silence and has none by default, so that nothing would come to it from
    the host: a NamedSharding over a mesh of one stands for it.
    """


def is_over_absent(sharding: Any) -> bool:
    """Whether a sharding, or what stands for none, is one over absent devices."""
    over = getattr(sharding, "mesh", None)
    if over is not None or not isinstance(sharding, jax.sharding.Sharding):
        return is_for_absent(over)
    return any(map(is_absent, sharding.device_set))


def is_for_absent(mesh: Any) -> bool:
    """Whether a mesh is one of absent devices."""
    return (
        isinstance(mesh, jax.sharding.Mesh) and not mesh.empty and is_absent(mesh.devices.flat[0])
    )


def shape_on(array: Any, sharding: Any) -> jax.ShapeDtypeStruct:
    """The shape of an array; on one device that is not in a mesh, without a sharding."""
    alone = isinstance(sharding, SINGLE)
    return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=None if alone else sharding)


def stays_here(parameters: Any, values: Sequence[Any]) -> bool:
    """Whether a mesh of absent devices is only set around a call that needs none of them."""
    return is_for_absent(parameters["ctx_mesh"]) and not lands_absent(parameters, values)


def lands_absent(parameters: Any, values: Sequence[Any]) -> bool:
    """Whether a call has arguments on absent devices, or results by what is written down."""
    if any(isinstance(value, jax.ShapeDtypeStruct) for value in values):
        return True
    if any(map(is_over_absent, _stated(parameters, values))):
        return True
    if not is_for_absent(parameters["ctx_mesh"]):
        return any(is_over_absent(given) for _, given in constraints_of(parameters["jaxpr"].jaxpr))
    typed = map(_sharding, parameters["jaxpr"].out_avals)
    return any(any(getattr(sharding, "spec", ())) for sharding in typed)


def known_shardings(parameters: Any, values: Sequence[Any]) -> list[Any] | None:
    """The sharding of each result that is stated, or that its type has; else something else.

    None: nothing lies on absent devices, so that no result has one.
    """
    constraints = dict(constraints_of(parameters["jaxpr"].jaxpr))
    written = [*_stated(parameters, values), *constraints.values()]
    if not any(map(is_over_absent, written)) and not is_for_absent(parameters["ctx_mesh"]):
        return None
    named = map(_sharding, values), constraints.values()
    held = (getattr(sharding, "mesh", None) for sharding in chain(*named))
    over = next(filter(is_for_absent, (parameters["ctx_mesh"], *held)), None)

    def known(stated: Any, made: Any) -> Any:
        typed = _sharding(made.aval)
        if over is None or isinstance(stated, jax.sharding.Sharding):
            return stated
        if not isinstance(made, Literal) and is_over_absent(constraints.get(made)):
            return constraints[made]
        is_typed = typed is not None and typed.mesh == over.abstract_mesh
        if is_typed and over.abstract_mesh.are_all_axes_explicit:
            on_host = getattr(made.aval, "memory_space", None) == jax.memory.Space.Host
            kind = "pinned_host" if on_host else None
            return jax.sharding.NamedSharding(over, typed.spec, memory_kind=kind)
        return None

    return list(map(known, parameters["out_shardings"], parameters["jaxpr"].jaxpr.outvars))


def _stated(parameters: Any, values: Sequence[Any]) -> list[Any]:
    """The shardings, or what stands for none, of arguments and results, and of these values."""
    return [*parameters["in_shardings"], *parameters["out_shardings"], *map(_sharding, values)]


def _sharding(array: Any) -> Any:
    return getattr(array, "sharding", None)
