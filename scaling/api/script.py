"""A step that a function of the user makes, priced where its own cluster would be.

def make(mesh):                make(mesh) gets a jax mesh over the cluster's devices; make()
    return step, args          finds them in jax.devices()
... step, args, kwargs         or the step alone, lowered
... scaling.Training(...)      what `scaling train` takes: its step, with its state and first batch
"""

import inspect
import math
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

from scaling.api.inputs import ClusterLike, MeshLike, Overrides, axis_sizes, cluster_for
from scaling.api.result import PredictionResult
from scaling.api.step import device_mesh, predict_step, pretend
from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError
from scaling.run.user_code import (
    described,
    folder_on_path,
    named_function,
    run_user_code,
    user_function,
)

HOW = (
    "return (step, arguments) or (step, arguments, keywords), the step from jax.jit, or the step "
    "lowered"
)
Make = str | Callable[..., Any]


def price_made(
    make: Make,
    cluster: ClusterLike,
    nodes: int | None = None,
    mesh: MeshLike | None = None,
    overrides: Overrides | None = None,
    **options: Any,
) -> PredictionResult:
    """Return the price of the step that a function makes; cluster and mesh as for `predict_step`.

    Raises:
        InputError: as `predict_made`; a mesh that the cluster is too small for.
    """
    axes = axis_sizes(mesh) if mesh else {}
    place = cluster_for(math.prod(axes.values()), cluster, nodes, overrides)
    return predict_made(make, place, axes, **options)


def predict_made(
    make: Make,
    place: Cluster,
    axes: Mapping[str, int],
    setting: Mapping[str, Any] | None = None,
    **options: Any,
) -> PredictionResult:
    """Return the price of the step that a function makes, called while the cluster is pretended.

    Args:
        axes: of the mesh that it is given; {}: data over all devices.
        setting: keywords of the function.
        options: of `predict_step`.

    Raises:
        InputError: no such function, it fails, or it returns no step.
    """
    named = make if isinstance(make, str) else ""
    file = named_function(named)[0] if named else source_file(make)
    where = named or getattr(make, "__name__", "make")
    mesh_of_all = lambda: device_mesh(axes or {"data": place.devices}, place)
    # The script prints to stderr: stdout holds our page or its JSON only. Its folder is on the path
    # also where the step is traced.
    with pretend(place), redirect_stdout(sys.stderr), folder_on_path(file):
        from scaling.compile.stages import argument_mesh

        function: Any = user_function(named)[1] if named else make
        given = (mesh_of_all(),) if _takes_mesh(function, setting or {}) else ()
        call = partial(function, *given, **(setting or {}))
        made, arguments, keywords, counted = _step(run_user_code(file, call), where)
        # It has been lowered, or its arguments say on which mesh it is to be.
        is_laid = not hasattr(made, "lower") or argument_mesh((arguments, keywords)) is not None
        return predict_step(
            made,
            *arguments,
            step_kwargs=keywords,
            cluster=place,
            mesh=mesh_of_all() if axes and not is_laid else None,
            name=file.stem if named else where,
            **counted | {name: value for name, value in options.items() if value is not None},
        )


def source_file(function: Any) -> Path:
    """Return the file that defines a function; one that is not there for a notebook's cell."""
    try:
        return Path(inspect.getsourcefile(function) or "make")
    except TypeError:  # of a partial, or an object that can be called
        return Path("make")


def _takes_mesh(make: Any, setting: Mapping[str, Any]) -> bool:
    """Return whether a function takes a mesh; raise InputError if it needs more."""
    parameters = [
        p for name, p in inspect.signature(make).parameters.items() if name not in setting
    ]
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [p for p in parameters if p.default is p.empty and p.kind not in optional]
    if len(needed) > 1 or any(p.kind is p.KEYWORD_ONLY for p in needed):
        names = ", ".join(p.name for p in needed)
        raise InputError(f"{make.__name__}({names}) must take a mesh, or nothing")
    return bool(needed) or any(p.name == "mesh" for p in parameters)


def _step(
    made: Any, where: str
) -> tuple[Any, tuple[Any, ...], Mapping[str, Any], dict[str, float]]:
    """Return the step that a function returned, its arguments and keywords, and what it counts."""
    from scaling.training.protocol import Training

    if isinstance(made, Training):
        batch = next(iter(made.data))
        arguments = made.state, made.place(batch) if made.place else batch
        counts = {"tokens": made.tokens, "model_flops": made.model_flops}
        return made.step, arguments, {}, {k: v for k, v in counts.items() if v is not None}
    given = tuple(made) if isinstance(made, tuple) else (made,)
    is_step = bool(given) and (hasattr(given[0], "lower") or hasattr(given[0], "as_text"))
    if not is_step or len(given) > 3:
        raise InputError(f"{where} returned {described(made)}: {HOW}")
    step, arguments, keywords = (*given, (), {})[:3] if len(given) != 2 else (*given, {})
    if not isinstance(arguments, tuple | list):
        raise InputError(f"{where}: write the arguments as a tuple: (step, (x,))")
    if not isinstance(keywords, Mapping):
        raise InputError(f"{where}: write the keywords as a dict: (step, args, {{'name': x}})")
    return step, tuple(arguments), keywords, {}
