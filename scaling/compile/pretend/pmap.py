"""`jax.pmap` for all processes of a job, from the arguments of one.

Every process calls a mapped function with its own part: the leading dim of an array is the number
of the process's devices. The step of the whole job is lowered for arrays with one row per device.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax


def is_mapped(step: Any) -> bool:
    """Whether a step is a mapped function, whose devices are its own."""
    return isinstance(step, Mapped) or getattr(step.lower, "__module__", "").endswith("pmap")


@dataclass(frozen=True)
class Mapped:
    """A mapped function over the devices of all processes; `lower` takes a process's arguments."""

    mapped: Any  # as `jax.pmap` returns it
    local: int  # devices of one process
    devices: int  # of all
    in_axes: Any = 0
    static: tuple[int, ...] = ()

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Execute it, where its devices are here."""
        return self.mapped(*arguments, **keywords)

    def lower(self, *arguments: Any, **keywords: Any) -> Any:
        """Lower it for the arguments of all processes, by their shapes."""
        given = tuple(
            argument if axes is None else jax.tree.map(self._whole_array, argument)
            for argument, axes in zip(arguments, self._axes(arguments), strict=True)
        )
        return self.mapped.lower(*given, **jax.tree.map(self._whole_array, keywords))

    def _axes(self, arguments: tuple[Any, ...]) -> Iterator[Any]:
        """The mapped dim of each argument; None: none is, or it is static."""
        for i, _ in enumerate(arguments):
            axes = self.in_axes[i] if isinstance(self.in_axes, list | tuple) else self.in_axes
            yield None if i in self.static else axes

    def _whole_array(self, leaf: Any) -> Any:
        if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
            return leaf
        rows, *rest = leaf.shape or (0,)
        shape = (self.devices, *rest) if rows == self.local else leaf.shape
        return jax.ShapeDtypeStruct(shape, jax.dtypes.canonicalize_dtype(leaf.dtype))


def mapping(make: Callable[..., Any], local: int, devices: int) -> Callable[..., Any]:
    """`jax.pmap` that makes such functions."""

    def made(function: Callable[..., Any], *given: Any, **options: Any) -> Mapped:
        static = options.get("static_broadcasted_argnums", ())
        numbers = (static,) if isinstance(static, int) else tuple(static)
        mapped = make(function, *given, **options)
        return Mapped(mapped, local, devices, options.get("in_axes", 0), numbers)

    return made
