"""Lower and compile a jitted step, for devices that are present or for absent GPUs.

    mesh = absent_mesh(shape, cluster)                     absent GPUs
    lowered = jitted.lower(*abstract arguments on mesh)    a second
    compiled = lowered.compile(options of the trainer)     seconds; no GPU

The compiler options are the trainer's. Autotuning, which times kernels on the device, is off where
there is no device; XLA then takes its default for each matrix product. There kernels' machine code
is left out too (`options.py`).
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import jax
from jax.sharding import Mesh

from scaling.compile.jax_internals import jitted_options
from scaling.compile.mlir_locations import lines_in, names_in
from scaling.compile.options import (
    CURES,
    WITHOUT_DEVICE,
    Options,
    check_options,
    compile_with,
    compile_without_kernels,
    compiler_options,
)
from scaling.compile.pretend.devices import is_absent
from scaling.compile.stages import argument_mesh, is_lowered, lower_step
from scaling.hlo.user_hints import TracedKernel
from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError
from scaling.meshes.xla_target import xla_target_text
from scaling.program.versions import compiler_settings, compiler_versions, xla_flags

NO_TABLE = "XLA has no cost table for this chip, so its own estimate is missing"
NOTES = (NO_TABLE, *(note for _, note in CURES.values()))
INVALID = "INVALID_ARGUMENT"  # XLA's word where the program or an option is at fault
INSTALL = "if a library is missing: pip install 'jax-scaling[deviceless]'"
PLAIN = re.compile(r"[ !#-\[\]-~]+")  # printable ASCII without quotes and backslashes
WHOLE_PEAK = (0, 10, 1)  # of jax: from it on the planned peak of GPUs has temporaries
WITH_ESTIMATES: Options = {"xla_gpu_collect_cost_model_stats": True}


@dataclass(frozen=True)
class Lowered:
    """A step lowered for a mesh, ready to be compiled, with all that decides what comes out."""

    lowered: jax.stages.Lowered
    mesh: Mesh
    options: Options
    added: Options = field(default_factory=dict)  # those of them that the user has not set
    kernels: tuple[TracedKernel, ...] = ()

    @property
    def key(self) -> str:
        """Equal for equal programs: of the text, its names and lines, target, options, versions."""
        first = self.mesh.devices.flat[0]
        target = f"{first.platform} {first.device_kind} {getattr(first, 'compute_capability', '')}"
        located = self.lowered.as_text(debug_info=True)
        decides = (
            target,
            str(self.mesh),
            str(device_numbers(self.mesh)),
            str(compiler_versions()),
            str(compiler_settings()),
            str(self.kernels),
        )
        options = json.dumps(dict(self.options), sort_keys=True)
        text = "\n".join(
            [self.lowered.as_text(), *names_in(located), *lines_in(located), *decides, options]
        )
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class CompiledText:
    """The compiler's text and planned memory of a step."""

    text: str  # scheduled HLO
    peak: int | None  # bytes on one device at the fullest moment, as planned
    notes: tuple[str, ...] = ()


def lower(
    jitted: Any,
    arguments: tuple[Any, ...],
    mesh: Mesh | None = None,
    options: Options | None = None,
    *,
    keywords: Mapping[str, Any] | None = None,
    one_device: Callable[[], Mesh] | None = None,
) -> Lowered:
    """Lower a step for a mesh; see `lower_step` in `scaling.compile.stages`.

    `options` of XLA are set besides the trainer's, or instead of them; so are those of the jitted
    function and of XLA_FLAGS, in this order.

    Raises:
        InputError: not a jitted function, arguments that do not fit it; no mesh, and no
            `one_device`, which makes that of one device.
    """
    if one_device is None and not is_lowered(jitted) and hasattr(jitted, "lower"):
        mesh = mesh or mesh_of(arguments)
    check_options(options or {})
    staged = lower_step(jitted, arguments, keywords or {}, mesh, one_device)
    over = staged.mesh
    asked = {**xla_flags(), **jitted_options(staged.lowered), **(options or {})}
    own = compiler_options(over.devices.flat[0].platform, xla=asked)
    if not is_present(over):
        _check_without_device(options or {})
        own |= WITHOUT_DEVICE
    added = {name: value for name, value in own.items() if f"{asked.get(name)}" != f"{value}"}
    return Lowered(staged.lowered, over, own, added, staged.kernels)


def _check_without_device(options: Options) -> None:
    """Raise InputError for an option of the call that no compile without a GPU can take."""
    for name, only in WITHOUT_DEVICE.items():
        if f"{options.get(name, only)}" != f"{only}":
            raise InputError(
                f"--option {name}={options[name]}: XLA would time kernels on a GPU, and none is "
                f"here; leave it out: {only} is set. The dump of a real run has the kernels that "
                "were chosen: price it with --hlo"
            )


def compile_text(lowered: Lowered, estimates: bool = False) -> CompiledText:
    """Compile, and take the text and the planned memory.

    With `estimates` XLA adds its own cost of every operation; where it has no table for the chip, a
    note says so.

    Raises:
        InputError: XLA cannot compile it for devices that are not here.
    """
    options: dict[str, Any] = {**lowered.options, **(WITH_ESTIMATES if estimates else {})}
    compile_step = compile_with if is_present(lowered.mesh) else compile_without_kernels
    try:
        compiled = compile_step(lowered.lowered, options)
    except RuntimeError as error:
        if estimates and "NOT_FOUND" in str(error):
            return _noted(compile_text(lowered), NO_TABLE)
        for words, (cure, note) in CURES.items():
            if words in str(error) and not cure.items() <= options.items():
                cured = replace(lowered, options={**lowered.options, **cure})
                return _noted(compile_text(cured, estimates), note)
        if is_present(lowered.mesh):
            raise
        hint = "" if INVALID in str(error) else f"; {INSTALL}"
        raise InputError(
            f"XLA cannot compile this for {lowered.mesh.devices.flat[0].device_kind} where there "
            f"is none ({str(error).splitlines()[0]}){hint}"
        ) from None
    text = compiled.as_text()
    assert text is not None  # of a program just compiled
    return CompiledText(text, planned_peak(compiled, lowered.mesh))


def _noted(made: CompiledText, note: str) -> CompiledText:
    return replace(made, notes=(note, *made.notes))


def mesh_of(arguments: Any) -> Mesh:
    """The mesh that the arguments' shardings are over.

    Raises:
        InputError: none of them has one.
    """
    if mesh := argument_mesh(arguments):
        return mesh
    raise InputError(
        "no argument has a sharding over a mesh: give jax.ShapeDtypeStruct(shape, dtype, sharding="
        "jax.NamedSharding(mesh, spec)) with a mesh from scaling.device_mesh(shape, cluster)"
    )


def device_numbers(mesh: Mesh) -> tuple[int, ...]:
    """The numbers that the devices of a mesh, in its order, have in the cluster.

    Devices that are present count among those of the mesh, in the order of their ids, which may
    have gaps.
    """
    ids = [device.id for device in mesh.devices.flat]
    if not is_present(mesh):
        return tuple(ids)
    number = {identity: i for i, identity in enumerate(sorted(ids))}
    return tuple(number[identity] for identity in ids)


def is_present(mesh: Mesh) -> bool:
    """Return True if the devices of a mesh are on this job's machines, not only described."""
    return not is_absent(mesh.devices.flat[0])


def check_size(devices: int, cluster: Cluster) -> None:
    """Raise InputError if a step needs more devices than a cluster has."""
    if devices > cluster.devices and not cluster.virtual_devices:
        raise InputError(
            f"the step is for {devices} devices, {cluster.name} has {cluster.devices}; "
            f"load it with nodes={-(-devices // cluster.devices_per_node)}"
        )


def target_of(mesh: Mesh, cluster: Cluster | None) -> str:
    """The compiler's description of the chip; "" where the compiler asks the chip itself.

    Raises:
        InputError: the mesh is not of this cluster, or none that XLA takes.
    """
    _check_mesh(mesh)
    present, device = is_present(mesh), mesh.devices.flat[0]
    if cluster is None:
        if not present:
            raise InputError(f"say for which cluster the mesh of {device.device_kind} was made")
        return ""
    kind = "cpu" if cluster.virtual_devices else cluster.accelerator.title
    if device.device_kind != kind:
        raise InputError(
            f"the step is for {device.device_kind}, {cluster.name} has {kind}: make its mesh with "
            "scaling.device_mesh(axes, cluster)"
        )
    check_size(1 + max(device_numbers(mesh)), cluster)
    return "" if present else xla_target_text(cluster.accelerator)


def _check_mesh(mesh: Mesh) -> None:
    """Raise InputError for devices of several kinds, one that is there twice, and bad names.

    XLA ends the process at a name that Shardy would escape (jaxlib 0.10.2, 2026-11-23), and jax
    takes "" for no axis.
    """
    kinds = sorted({device.device_kind for device in mesh.devices.flat})
    if len(kinds) > 1:
        raise InputError(f"the mesh has devices of several kinds: {', '.join(kinds)}")
    if len(set(mesh.devices.flat)) < mesh.size:
        twice = Counter(device.id for device in mesh.devices.flat).most_common(1)[0]
        raise InputError(f"device {twice[0]} stands {twice[1]} times in the mesh")
    for name in map(str, mesh.axis_names):
        if not PLAIN.fullmatch(name):
            raise InputError(f"mesh axis {name!r}: XLA needs names of ASCII letters and signs")


def planned_peak(compiled: jax.stages.Compiled, mesh: Mesh) -> int | None:
    """Bytes on one device at the fullest moment, as planned; None where XLA does not say.

    XLA's CPU compiler leaves temporaries out of its peak, and so did that for GPUs before jax
    0.10.1: there it is all that is allocated. So it is where temporaries on the host are larger
    than those of the device, for XLA's peak has the larger ones; arguments and results on the host
    are in it always.
    """
    plan = compiled.memory_analysis()
    if plan is None:
        return None
    results = plan.output_size_in_bytes - plan.alias_size_in_bytes
    allocated = plan.argument_size_in_bytes + plan.temp_size_in_bytes + results
    if mesh.devices.flat[0].platform == "cpu" or jax.__version_info__ < WHOLE_PEAK:
        return allocated
    if not plan.host_temp_size_in_bytes:
        return plan.peak_memory_in_bytes
    kept = plan.host_output_size_in_bytes - plan.host_alias_size_in_bytes
    allocated += plan.host_argument_size_in_bytes + kept
    return min(plan.peak_memory_in_bytes, allocated)
