"""A step of any kind, lowered: jitted, mapped, of Flax or Equinox, or lowered by its caller.

    jax.jit, jax.pmap, nnx.jit     lowered here, on the mesh given, set, or of the arguments
    eqx.filter_jit                 likewise, arrays apart from all else that its arguments hold
    Lowered                        as it stands: whatever was set around its lowering is in it
    Compiled                       its text and its plan

Without any mesh a step is that of one device. Where it is traced here, its Pallas kernels are
kept.
"""

import contextlib
import math
import re
import traceback
from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import jax
from jax.extend.core import Jaxpr
from jax.sharding import Mesh

from scaling.compile.jax_internals import devices_of, tracing_for_absent_devices, without_callbacks
from scaling.compile.kernel_work import Equation, inner_bodies, open_body
from scaling.compile.pallas import traced_kernels
from scaling.compile.pretend.devices import is_absent
from scaling.compile.pretend.pmap import is_mapped
from scaling.hlo.user_hints import TracedKernel
from scaling.meshes.devices import named_mesh
from scaling.meshes.errors import InputError

# `sdy.mesh @mesh = <["data"=2, "model"=4]>` of a lowered text (Shardy's own notation)
MESH = re.compile(r"sdy\.mesh @\S+ = <\[([^\]]*)\](?:, device_ids=\[[\d, ]*\])?>")
AXIS = re.compile(r'"([^"]+)"=(\d+)')
ARRAYS = jax.Array | jax.ShapeDtypeStruct
# How jax says that a step names other devices than those of the mesh that is set
OTHER_DEVICES = ("incompatible devices", "should match the mesh")
CONTEXTS = contextlib.__file__
NOT_FOR_GPUS = re.compile(
    r"for primitive '(\w+)' not found for platform (?:cuda|rocm)"
)  # jax's words
# Primitives whose lowering asks a library of a GPU for its version, and that library's name
ASKS_LIBRARY = {"eig": "cusolver"}
UNNAMED = "devices"  # the axis of a program that names none


@dataclass(frozen=True)
class Staged:
    """A lowered step, its mesh, and its Pallas kernels."""

    lowered: jax.stages.Lowered
    mesh: Mesh
    kernels: tuple[TracedKernel, ...] = ()


def is_lowered(step: Any) -> bool:
    """Whether a step is lowered, by jax or by one of its relatives."""
    return hasattr(step, "compile") and hasattr(step, "as_text")


def lower_step(
    step: Any,
    arguments: tuple[Any, ...],
    keywords: Mapping[str, Any],
    mesh: Mesh | None,
    one_device: Callable[[], Mesh] | None,
) -> Staged:
    """Return a step lowered.

    Args:
        step: what `jax.jit` and its relatives return, or a `Lowered`.
        arguments, keywords: pytrees of arrays, abstract or not; none of a `Lowered`.
        mesh: to set while it is lowered; None: what the caller has set, else that of the
            arguments, else of the step's own shardings.
        one_device: makes the mesh of a step that has none; None: such a step is refused.

    Raises:
        InputError: not a jitted function, arguments that do not fit, no mesh.
    """
    if is_lowered(step):
        check_no_arguments(arguments, keywords)
        lowered = getattr(step, "lowered", step)  # Flax wraps that of jax
        return Staged(without_callbacks(lowered), _mesh_over(lowered, mesh))
    if isinstance(step, str | Path):
        raise InputError("the step is a text: sc.predict_hlo prices dumps and texts of HLO")
    if not hasattr(step, "lower"):
        words = repr(step).partition("\n")[0][:80]
        raise InputError(f"{words} is not jitted: give jax.jit(function), donations included")
    if type(step).__module__.partition(".")[0] == "equinox":
        step, arguments = _arrays_apart(step, arguments, keywords)
        keywords = {}
    own = is_mapped(step)  # its devices are its own, whatever mesh is around
    around = mesh or (None if own else _set_by_caller() or argument_mesh((arguments, keywords)))
    if around is not None or one_device is None:
        return _lower(step, arguments, keywords, around)
    return _lower_without_mesh(step, arguments, keywords, one_device())


def argument_mesh(arguments: Any) -> Mesh | None:
    """The mesh that the arguments' shardings are over; None if they have none."""
    for leaf in jax.tree.leaves(arguments):
        mesh = getattr(getattr(leaf, "sharding", None), "mesh", None)
        if isinstance(mesh, Mesh):
            return mesh
    return None


def mesh_of_compiled(compiled: jax.stages.Compiled) -> Mesh:
    """The mesh of a compiled step: that of its shardings.

    Raises:
        InputError: it has none that names a device.
    """
    shardings = jax.tree.leaves((compiled.input_shardings, compiled.output_shardings))
    for sharding in shardings:
        if isinstance(getattr(sharding, "mesh", None), Mesh):
            return sharding.mesh
    for sharding in shardings:
        devices = sorted(sharding.device_set, key=lambda device: device.id)
        return named_mesh({UNNAMED: len(devices)}, devices)
    raise InputError("the compiled step has neither arguments nor results: give a step that has")


def _set_by_caller() -> Mesh | None:
    """The mesh of `jax.set_mesh`, or None; InputError where the caller itself is being traced."""
    try:
        mesh = jax.sharding.get_mesh()
    except ValueError:
        raise InputError("call this outside of functions that jax traces (jit, grad)") from None
    return mesh if isinstance(mesh, Mesh) and not mesh.empty else None


def _mesh_over(lowered: jax.stages.Lowered, mesh: Mesh | None) -> Mesh:
    """The mesh that is set, if the step was lowered for its devices in its order.

    Else that of the lowered text over the step's devices; one axis where it has none.
    """
    devices = devices_of(lowered)
    if mesh is not None and list(mesh.devices.flat) == devices:
        return mesh
    for found in MESH.finditer(lowered.as_text()):
        sizes = {axis: int(size) for axis, size in AXIS.findall(found[1])}
        if sizes and math.prod(sizes.values()) == len(devices):
            return named_mesh(sizes, devices)
    return named_mesh({UNNAMED: len(devices)}, devices)


def _lower(step: Any, arguments: Any, keywords: Any, mesh: Mesh | None) -> Staged:
    """Lower a step while `mesh` is set; what fails is said in one line.

    Arrays that lie on this machine, which jax may refuse beside absent devices, go by their shapes.
    """
    try:
        return _lower_as_given(step, arguments, keywords, mesh)
    except InputError:
        raise
    except Exception as error:
        given = (arguments, keywords)
        if any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(given)):
            with suppress(Exception):
                shapes, named = jax.tree.map(_shape, given)
                return _lower_as_given(step, shapes, named, mesh)
        raise InputError(_what_failed(step, error)) from error


def _lower_as_given(step: Any, arguments: Any, keywords: Any, mesh: Mesh | None) -> Staged:
    traced: Any = None
    with tracing_for_absent_devices(), jax.set_mesh(mesh) if mesh else nullcontext():
        if hasattr(step, "trace"):
            traced = step.trace(*arguments, **keywords)
        try:
            lowered = traced.lower() if traced else step.lower(*arguments, **keywords)
        except Exception as error:
            if hasattr(traced, "jaxpr") and (refused := _not_for_gpus(traced.jaxpr, str(error))):
                raise InputError(refused) from error
            raise
    lowered = without_callbacks(getattr(lowered, "lowered", lowered))
    kernels = traced_kernels(traced.jaxpr) if hasattr(traced, "jaxpr") else ()
    return Staged(lowered, _mesh_over(lowered, mesh), kernels)


def _shape(value: Any) -> Any:
    """An array by its shape, whatever device holds it; anything else as it is."""
    if not isinstance(value, jax.Array):
        return value
    return jax.ShapeDtypeStruct(value.shape, value.dtype, weak_type=value.weak_type)


def _lower_without_mesh(step: Any, arguments: Any, keywords: Any, one: Mesh) -> Staged:
    """Lower for one device, or for those that the step itself names: not all do both."""
    try:
        return _lower(step, arguments, keywords, one)
    except InputError as error:
        try:
            staged = _lower(step, arguments, keywords, None)
        except InputError as second:
            names_devices = any(words in str(error) for words in OTHER_DEVICES)
            raise (second if names_devices else error) from None
        if not is_absent(staged.mesh.devices.flat[0]):
            raise
        return staged


def _what_failed(step: Any, error: Exception) -> str:
    """One line: the error, and the innermost line of the caller's own code."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    first = lines[0] if lines else type(error).__name__
    place = _own_line(error.__traceback__)
    last, advice = f" ({place})" if place else "", ""
    if "mesh" in first and ("PartitionSpec" in first or "not found" in first):
        advice = '; say on which mesh it runs: mesh="data=8"'
    elif is_mapped(step):
        advice = "; jax.pmap takes the cluster's devices inside `with sc.pretend(cluster, nodes):`"
    return f"the step cannot be lowered: {type(error).__name__}: {first}{last}{advice}"


def _own_line(where: TracebackType | None) -> str:
    """Return the innermost line of the caller's own code as FILE:LINE; "" if there is none."""
    ours = (str(Path(__file__).parent), str(Path(jax.__file__).parent), "/site-packages/", CONTEXTS)
    frames = traceback.extract_tb(where)
    theirs = [f for f in frames if not any(part in f.filename for part in ours)]
    return f"{theirs[-1].filename}:{theirs[-1].lineno}" if theirs else ""


def _not_for_gpus(traced: Any, said: str) -> str:
    """Return a message about the operation that jax cannot lower here; "": it is not that."""
    unknown = NOT_FOR_GPUS.search(said)
    names = {unknown[1]} if unknown else {p for p, name in ASKS_LIBRARY.items() if name in said}
    chain = _chain_to(names, open_body(traced))
    if not chain:
        return ""
    name = chain[-1].primitive.name
    recorded = (e.source_info.traceback for e in reversed(chain))
    places = (_own_line(found.as_python_traceback()) for found in recorded if found)
    place = next(filter(None, places), "")
    where = f"{name}{f' at {place}' if place else ''} cannot be lowered for GPUs"
    advice = "compute it outside of the step, or of a symmetric matrix by jnp.linalg.eigh"
    if unknown:
        return f"{where}: jax has no kernel of it; {advice}"
    return (
        f"{where} that are not here: jax asks {ASKS_LIBRARY[name]} for its version, which needs a "
        f"GPU; {advice}, or price the dump of a real run with --hlo"
    )


def _chain_to(names: Collection[str], body: Jaxpr) -> list[Equation]:
    for equation in body.eqns:
        if equation.primitive.name in names:
            return [equation]
        for inner in inner_bodies(equation):
            if found := _chain_to(names, inner):
                return [equation, *found]
    return []


def check_no_arguments(arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> None:
    """Raise InputError if a step that is lowered or compiled is given arguments."""
    if arguments or keywords:
        raise InputError("a step that is lowered has its arguments already: give it alone")


def _arrays_apart(
    step: Any, arguments: tuple[Any, ...], keywords: Mapping[str, Any]
) -> tuple[Any, tuple[Any, ...]]:
    """(jitted step, its arguments) of Equinox's `filter_jit`, which takes leaves of any kind.

    Equinox itself holds abstract arrays for constants. Donation as it was asked for there: of the
    first argument, of the others.
    """
    leaves, tree = jax.tree.flatten((arguments, dict(keywords)))
    first = len(jax.tree.leaves(arguments[:1]))
    arrays = [i for i, leaf in enumerate(leaves) if isinstance(leaf, ARRAYS)]
    groups = [i for i in arrays if i < first], [i for i in arrays if i >= first]

    def function(*given: list[Any]) -> list[Any]:
        own = list(leaves)
        for group, values in zip(groups, given, strict=True):
            for i, value in zip(group, values, strict=True):
                own[i] = value
        positional, named = jax.tree.unflatten(tree, own)
        results = jax.tree.leaves(step.__wrapped__(*positional, **named))
        return [leaf for leaf in results if isinstance(leaf, jax.Array)]

    wished = ("donate_first", "donate_rest")
    donated = tuple(i for i, name in enumerate(wished) if getattr(step, name, False))
    jitted = jax.jit(function, donate_argnums=donated)
    return jitted, tuple([leaves[i] for i in group] for group in groups)
