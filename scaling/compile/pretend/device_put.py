"""What is put on absent devices is its shape, with the sharding that it has there.

jax.device_put                               of values, or of shapes
jax.make_array_from_callback                 the callback is asked for one part, or for nothing
jax.make_array_from_process_local_data       of what one process has, the whole
jax.make_array_from_single_device_arrays     likewise
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any
from unittest.mock import patch

import jax
import numpy as np
from jax.dtypes import canonicalize_dtype

from scaling.compile.pretend.devices import is_absent, is_over_absent, shape_on


@contextmanager
def putting_shapes() -> Iterator[None]:
    """While it is on, these functions return jax.ShapeDtypeStruct for absent devices."""
    with ExitStack() as stack:
        for name, shape_of in _PUTTERS.items():
            put = _abstract(getattr(jax, name), shape_of)
            stack.enter_context(patch.object(jax, name, put))
        yield


def _abstract(put: Callable[..., Any], shape_of: Callable[..., Any]) -> Callable[..., Any]:
    """A function that puts values on devices: on absent ones it returns their shapes."""

    @wraps(put)
    def placed(*given: Any, **options: Any) -> Any:
        values, where = shape_of(*given, **options)
        if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(values)):
            return put(*given, **options)
        targets = jax.tree.leaves(where, is_leaf=_is_place)
        if not any(
            is_absent(place) if isinstance(place, jax.Device) else is_over_absent(place)
            for place in targets
        ):
            return put(*given, **options)
        places = where if not _is_place(where) else jax.tree.map(lambda _: where, values)
        return jax.tree.map(_shape_at, values, places)

    return placed


def _is_place(where: Any) -> bool:
    return isinstance(where, jax.sharding.Sharding | jax.Device)


def _shape_at(value: Any, where: Any) -> jax.ShapeDtypeStruct:
    if not isinstance(value, jax.ShapeDtypeStruct):
        value = jax.eval_shape(lambda: jax.numpy.asarray(value))
    return shape_on(value, where if isinstance(where, jax.sharding.Sharding) else None)


def _callback_array(shape: Any, sharding: Any, data: Any, dtype: Any = None, **_: Any) -> Any:
    """The array of `make_array_from_callback`, whose type the callback's first part tells."""
    if dtype is None:
        index = next(iter(sharding.devices_indices_map(tuple(shape)).values()))
        dtype = jax.numpy.asarray(data(index)).dtype
    return jax.ShapeDtypeStruct(tuple(shape), dtype), sharding


def _process_arrays(sharding: Any, data: Any, global_shape: Any = None) -> Any:
    shapes = jax.tree.map(lambda _: None, data) if global_shape is None else global_shape
    each = jax.tree.broadcast(sharding, data, is_leaf=_is_place)
    return jax.tree.map(_whole_array, data, each, shapes), each


def _whole_array(data: Any, sharding: Any, shape: Any) -> jax.ShapeDtypeStruct:
    """The array of which a process has `data`; without `shape` the first dim has equal parts."""
    if shape is None:
        processes = len({device.process_index for device in sharding.device_set})
        shape = (data.shape[0] * processes, *data.shape[1:])
    return jax.ShapeDtypeStruct(tuple(shape), canonicalize_dtype(data.dtype))


def _array_of_parts(shape: Any, sharding: Any, arrays: Any, *, dtype: Any = None, **_: Any) -> Any:
    dtype = dtype or next((part.dtype for part in arrays), np.float32)
    return jax.ShapeDtypeStruct(tuple(shape), dtype), sharding


_PUTTERS: dict[str, Callable[..., Any]] = {
    "device_put": lambda x, device=None, **_: (x, device),
    "make_array_from_callback": _callback_array,
    "make_array_from_process_local_data": _process_arrays,
    "make_array_from_single_device_arrays": _array_of_parts,
}
