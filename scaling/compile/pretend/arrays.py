"""Arrays on absent devices: jax.ShapeDtypeStruct, which here does what set-up code asks of arrays.

a.astype(t), a + b, a[i], a.T, ...     the shape and sharding of the result; jax compiles it
a.at[i].set(b)                         likewise
a.addressable_shards, a.nbytes         those of the process that asks
float(a), np.asarray(a), a.item()      refused: there are no values, but of a KnownNumber
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from operator import attrgetter
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np

from scaling.meshes.errors import InputError

Shape = jax.ShapeDtypeStruct
ARRAYS = jax.Array | Shape | np.ndarray
BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul")
OPERATORS = (*BINARY, *(f"r{name}" for name in BINARY), "neg", "getitem", "lt", "le", "gt", "ge")
METHODS = ("astype", "reshape", "ravel", "squeeze", "transpose", "sum", "mean", "max", "min", "dot")
# Functions of jax.numpy that refuse whatever is no array (jax 0.10.2)
OF_ARRAYS = (
    "stack concatenate vstack hstack split array_split tile repeat pad reshape transpose moveaxis "
    "squeeze expand_dims broadcast_to roll flip where einsum tensordot var std argmax diag astype "
    "copy"
).split()
FUNCTIONS = (
    *((jnp, name) for name in OF_ARRAYS),
    *((jax.random, name) for name in ("split", "fold_in", "key_data")),
)
VALUES = ("__bool__", "__float__", "__int__", "__array__", "item", "tolist")
THIS_PROCESS = 0  # index of the process that asks


class KnownNumber(Shape):
    """A whole number on absent devices whose value is known, as of the step that a state is at."""

    __slots__ = ("value",)

    def __init__(self, shape: Shape, value: Any) -> None:
        super().__init__(shape.shape, shape.dtype, sharding=shape.sharding)
        self.value = np.asarray(value, shape.dtype)


class _Changing:
    """What `a.at` is: `a.at[i].set(b)` and its relatives give the shape of `a`, changed."""

    def __init__(self, array: Shape, index: Any = ()) -> None:
        self.array, self.index = array, index

    def __getitem__(self, index: Any) -> "_Changing":
        return _Changing(self.array, index)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        change = lambda own, *given, **named: getattr(own.at[self.index], name)(*given, **named)
        return lambda *given, **named: _traced(change)(self.array, *given, **named)


@contextmanager
def answering_as_arrays() -> Iterator[None]:
    """While it is on, jax.ShapeDtypeStruct has the methods of an array."""
    answers: dict[str, Any] = {f"__{name}__": _method(f"__{name}__") for name in OPERATORS}
    answers |= {name: _method(name) for name in METHODS}
    answers |= {name: property(_traced(attrgetter(name))) for name in ("T", "real", "imag")}
    answers |= {name: _value(name) for name in VALUES}
    answers |= {
        "nbytes": property(lambda self: self.size * self.dtype.itemsize),
        "addressable_shards": property(_shards),
        "is_fully_replicated": property(
            lambda self: self.sharding is None or bool(self.sharding.is_fully_replicated)
        ),
        "is_fully_addressable": property(lambda self: self.sharding is None),
        "addressable_data": lambda self, index: _shards(self)[index].data,
        "block_until_ready": lambda self: self,
        "at": property(_Changing),
        "devices": lambda self: set(self.sharding.device_set) if self.sharding else set(),
        # an f-string shows the shape where it asks for no number
        "__format__": lambda self, form: _value("__format__")(self, form) if form else str(self),
        "__iter__": lambda self: iter([self[0]] * len(self) if len(self) else []),
        "__array_priority__": 100,  # so that arrays of numpy leave operators to it, as to jax's
    }
    with ExitStack() as stack:
        for name, answer in answers.items():
            stack.enter_context(patch.object(Shape, name, answer, create=True))
        for name in ("array", "asarray"):
            stack.enter_context(patch.object(jnp, name, _passing(getattr(jnp, name))))
        for place, name in FUNCTIONS:
            stack.enter_context(patch.object(place, name, _traced(getattr(place, name))))
        yield


def _passing(make: Callable[..., Any]) -> Callable[..., Any]:
    """`jnp.asarray`, which leaves a shape as it is but for its type."""

    @wraps(make)
    def made(value: Any, dtype: Any = None, *given: Any, **options: Any) -> Any:
        if isinstance(value, Shape):
            return value if dtype is None else value.astype(dtype)  # type: ignore[attr-defined]
        return make(value, dtype, *given, **options)

    return made


def _method(name: str) -> Callable[..., Any]:
    return _traced(lambda own, *given, **named: getattr(own, name)(*given, **named))


def _traced(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is traced where it is given shapes, and so gives those of its results."""

    @wraps(function)
    def called(*given: Any, **named: Any) -> Any:
        leaves, tree = jax.tree.flatten((given, named))
        if not any(isinstance(leaf, Shape) for leaf in leaves):
            return function(*given, **named)
        places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, ARRAYS)]

        def of_arrays(arrays: list[Any]) -> Any:
            known = dict(zip(places, arrays, strict=True))
            own, options = jax.tree.unflatten(tree, [known.get(i, x) for i, x in enumerate(leaves)])
            return function(*own, **options)

        return jax.jit(of_arrays)([leaves[i] for i in places])

    return called


def _value(name: str) -> Callable[..., Any]:
    """A method of arrays that reads values."""

    def read(self: Shape, *given: Any, **named: Any) -> Any:
        if isinstance(self, KnownNumber):
            return getattr(self.value, name)(*given, **named)
        raise InputError(
            f"an array of shape {self.shape} lies on GPUs that are not here, so it has no values: "
            "inside sc.pretend lower the step (.lower(...)) before its results are read"
        )

    return read


def _shards(self: Shape) -> list[Any]:
    """The parts on the devices of the first process; an array without a sharding is one part."""
    if self.sharding is None:
        return [SimpleNamespace(data=self, device=None, index=(), replica_id=0)]
    part = Shape(self.sharding.shard_shape(self.shape), self.dtype)
    found = self.sharding.devices_indices_map(self.shape).items()
    return [
        SimpleNamespace(data=part, device=device, index=index, replica_id=0)
        for device, index in found
        if device.process_index == THIS_PROCESS
    ]
