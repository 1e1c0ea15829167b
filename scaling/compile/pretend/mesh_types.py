"""A traced function whose types name a mesh, as one for this machine alone.

While a mesh is set, what jax traces has it in the types of arrays and in the parameters of
operations. Where that mesh is of absent devices and the values are wanted here, every operation is
bound anew, and the bodies of loops are traced anew, without it.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from scaling.meshes.devices import NO_MESH

MOVES = ("reshard", "sharding_constraint")  # operations that give an array another sharding
SMALL = 2**16  # elements of an array that costs nothing on this machine


@lru_cache(maxsize=1024)  # as many traced functions as jax itself keeps of a primitive
def without_mesh_types(jaxpr: Any) -> Callable[..., list[Any]]:
    """A jitted function of the values of a closed jaxpr; call it where no mesh is set."""
    return jax.jit(partial(_evaluate, jaxpr))


def small_result(closed: Any, index: int) -> Callable[..., list[Any]] | None:
    """A function of one result of a closed jaxpr; None if it needs arrays that are not small."""
    jaxpr, kept = closed.jaxpr, []
    result = jaxpr.outvars[index]
    needed = set() if isinstance(result, Literal) else {result}
    for equation in reversed(jaxpr.eqns):
        if needed.isdisjoint(equation.outvars):
            continue
        if any(getattr(made.aval, "size", 0) > SMALL for made in equation.outvars):
            return None
        needed |= {given for given in equation.invars if not isinstance(given, Literal)}
        kept.append(equation)
    part = jaxpr.replace(eqns=kept[::-1], outvars=[result])
    return partial(_evaluate, closed.replace(jaxpr=part))


def constraints_of(jaxpr: Any) -> Iterator[tuple[Any, Any]]:
    """Which variable of an open jaxpr has which sharding by a constraint."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "sharding_constraint":
            yield equation.outvars[0], equation.params["sharding"]


def _evaluate(closed: Any, *values: Any) -> list[Any]:
    jaxpr = closed.jaxpr
    names = (*jaxpr.constvars, *jaxpr.invars)
    known = dict(zip(names, (*closed.consts, *values), strict=True))
    read = lambda name: name.val if isinstance(name, Literal) else known[name]
    for equation in jaxpr.eqns:
        given, primitive = list(map(read, equation.invars)), equation.primitive
        if primitive.name in MOVES:
            made = given[0]
        else:
            plain = {name: _plain(value) for name, value in equation.params.items()}
            made = primitive.bind(*given, **primitive.get_bind_params(plain))
        results = made if primitive.multiple_results else [made]
        known.update(zip(equation.outvars, results, strict=True))
    return list(map(read, jaxpr.outvars))


def _plain(value: Any) -> Any:
    """A parameter of an operation, without what it says about a mesh."""
    if isinstance(value, Jaxpr) and Jaxpr is not ClosedJaxpr:  # they are one in jax 0.12
        return _plain(ClosedJaxpr(value, ())).jaxpr
    if isinstance(value, Jaxpr | ClosedJaxpr):
        types = [
            jax.ShapeDtypeStruct(array.shape, array.dtype, weak_type=array.weak_type)
            for array in value.in_avals
        ]
        return jax.make_jaxpr(partial(_evaluate, value))(*types)
    if isinstance(value, jax.sharding.NamedSharding):
        return None
    if isinstance(value, jax.sharding.Mesh):
        return NO_MESH
    return tuple(map(_plain, value)) if type(value) is tuple else value
