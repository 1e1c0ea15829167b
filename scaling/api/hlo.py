"""The price of a program that was dumped elsewhere: its text is enough, JAX is not needed."""

import math
from collections.abc import Iterable
from pathlib import Path

from scaling.api.calibrate import load_profile
from scaling.api.hints import Branches, Kernels, Trips, as_hints
from scaling.api.inputs import ClusterLike, MeshLike, Overrides, axis_sizes, cluster_for
from scaling.api.pricing import Pricing, step_figures
from scaling.api.public_api import entrance
from scaling.api.result import PredictionResult, priced_result
from scaling.hlo.dump import dump_of, read_dump
from scaling.hlo.mesh_fit import check_mesh
from scaling.hlo.parse import UnknownHlo
from scaling.hlo.reader import read_program
from scaling.meshes.bandwidths import Measured
from scaling.meshes.errors import InputError
from scaling.meshes.shape import axes_text
from scaling.profiles.profile import Profile
from scaling.program.ir import placed_on


@entrance
def predict_hlo(
    text: Path | str,
    cluster: ClusterLike,
    nodes: int | None = None,
    mesh: MeshLike | None = None,
    *,
    name: str = "",
    tokens: float | None = None,
    model_flops: float | None = None,
    trips: Trips | None = None,
    kernels: Kernels | None = None,
    branches: Branches | None = None,
    overrides: Overrides | None = None,
    calibration: Path | str | Profile | None = None,
    measured: Measured | None = None,
    what_if: str | Iterable[str] = (),
    memory_fraction: float | None = None,
) -> PredictionResult:
    """Predict the program of a scheduled HLO text, such as XLA dumps; needs no JAX.

    >>> import scaling as sc
    >>> text = '''HloModule step, is_scheduled=true, num_partitions=8
    ... ENTRY %main (x: f32[1024]) -> f32[1024] {
    ...   %x = f32[1024]{0} parameter(0)
    ...   ROOT %double = f32[1024]{0} add(%x, %x)
    ... }'''
    >>> sc.predict_hlo(text, cluster="dgx-h100", mesh="data=8").devices
    8

    Args:
        text: the text, the path of a file with it (XLA's dump `after_optimizations.txt`), or of a
            folder of dumps, whose largest program is taken for the step. The files beside it
            give the planned memory, the axes of the mesh, and the order of its devices. Or the name
            of a text that comes with the package (`scaling.hlo.kept`).
        cluster: catalogue name or TOML file, or a Cluster.
        nodes: number of hosts; None: as many as the mesh needs.
        mesh: axes of any names, outermost first: data=8,model=8; None: data over all devices, of a
            dump those of the files beside it.
        name: of the prediction; "": the file's name.

    Raises:
        InputError: no such file, a mesh of another size than the program, of other groups of
            devices than its, or larger than the cluster; a text that is no compiled module or not
            the whole of one.
    """
    figures = step_figures(what_if, tokens, model_flops, memory_fraction)
    hints = as_hints(trips, kernels, branches)
    if isinstance(text, str) and "\n" in text:
        dump = dump_of(text)
    else:
        dump = read_dump(Path(text))
    axes = axis_sizes(mesh) if mesh is not None else dump.axes or {"data": dump.devices}
    if math.prod(axes.values()) != dump.devices:
        raise InputError(
            f"{dump.title} is a program of {dump.devices} partitions, the mesh "
            f"{axes_text(axes)} has {math.prod(axes.values())} "
            f"devices: use axis sizes that multiply to {dump.devices}"
        )
    place = cluster_for(dump.devices, cluster, nodes, overrides)
    profile, warnings = load_profile(place, calibration, measured=measured)
    try:
        program = read_program(dump.text, axes, name or dump.name, dump.peak, **hints)
    except UnknownHlo as error:
        raise InputError(f"{dump.title}: {error}") from None
    first = check_mesh(program, dump.axes, mesh is not None)
    program, others = placed_on(program, dump.order), dump.other_target(place.accelerator)
    notes = (*dump.notes, *others, *warnings)
    figures |= {"warnings": notes, "notes": (first,) if first else (), "text": dump.text}
    return priced_result(Pricing(program, place, profile, **figures))
