"""Stands before JAX's CUDA plugin on PYTHONPATH: processes of unmarked tests cannot reach it."""

from typing import NoReturn

from jax._src import xla_bridge


def refused(*_: object, **__: object) -> NoReturn:
    raise SystemExit(
        "a process of a test without the marker `deviceless` compiles for GPUs that are not here"
    )


def initialize() -> None:
    """What jax calls of every plugin that it finds."""
    xla_bridge.register_backend_factory("cuda", refused, make_topology=refused)
