"""Sharded arrays: what devices hold, what a resharding costs, how a product is computed."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from scaling.api.calibrate import load_profile
from scaling.api.inputs import ClusterLike, MeshLike, Overrides, as_axes, axis_sizes, cluster_for
from scaling.api.public_api import entrance
from scaling.meshes.bandwidths import Measured
from scaling.meshes.cluster import Cluster, torus_shape
from scaling.meshes.errors import InputError, check_keys, whole_number
from scaling.meshes.placement import torus_box, torus_dims
from scaling.meshes.shape import parse_sizes
from scaling.meshes.torus import shape_text
from scaling.profiles.io import ideal as ideal_profile
from scaling.profiles.profile import Profile
from scaling.questions.answer import Answer, textbook
from scaling.questions.array import array_answer, read_tile, tiled, ways_of
from scaling.questions.notation import check_dtype, check_symbol, parse_expression
from scaling.questions.product import completed
from scaling.questions.sharding import MeshOnCluster, ShapeContext

MOST_DEVICES = 2**20  # a million ids of devices are 8 MB; the largest machines have a tenth of it
MOST_AXES = 8  # of a mesh; chosen by this project
AXIS = re.compile(r"[A-Za-z]\w*", re.ASCII)


@entrance
def array(
    expression: str,
    mesh: MeshLike | None = None,
    shape: str | Mapping[str, int] | None = None,
    cluster: ClusterLike | None = None,
    nodes: int | None = None,
    *,
    dtype: str = "bf16",
    device_order: str | Iterable[str] | None = None,
    overrides: Overrides | None = None,
    calibration: Path | str | Profile | None = None,
    measured: Measured | None = None,
    ideal: bool = False,
    hops: bool = False,
    compile: bool = False,
    tile: str | None = None,
) -> Answer:
    """Return what a sharded array, a resharding or a product takes: bytes, FLOPs, times.

    >>> import scaling as sc
    >>> float(sc.array("bf16[1024_X,4096]", mesh="X=4,Y=8"))
    2097152.0
    >>> answer = sc.array("A[I,J_X] @ B[J_X,K] -> C[I,K]", mesh="X=8", cluster="dgx-h100",
    ...     shape="I=1024,J=4096,K=8192")
    >>> answer["communication"].binds
    'NVLink of a chip: 14.7 MB over 450 GB/s'

    Args:
        expression: A[I_X,J], A[I_X,J] -> A[I,J], or A[I,J_X] @ B[J_X,K] -> C[I,K]; I_X is dimension
            I split over axis X, {U_X} behind an array says that it holds terms of a sum.
        mesh: axes of any names with their sizes, outermost first: X=4,Y=8; None: one device.
        shape: sizes of the dimensions: I=1024,J=4096, or a mapping.
        cluster: catalogue name or TOML file, or a Cluster. Without it bytes and FLOPs, no times.
        nodes: number of hosts; None: as many as the mesh needs.
        dtype: number format of arrays that state none (int8 A[I,J] does).
        device_order: axes of the mesh joined by commas, outermost first; others follow.
        ideal: give the textbook's figures: no latency, every link, unit and memory at its full
            rate.
        hops: the textbook's collectives take at least their hops' latency: max(T_hop x hops, V/W).
        compile: also show which collectives XLA puts in, beside ours: of an NVIDIA cluster's GPUs,
            else of fake devices of this machine's CPU.
        tile: also give an array's bytes with its last dimensions padded to whole tiles, such as
            8,128.

    Raises:
        InputError: what is not the notation, unknown axes, dimensions without a size or that
            their axes do not divide, a mesh that does not fit.
    """
    check_dtype(dtype)
    of_cluster = overrides or any(x is not None for x in (nodes, calibration, measured))
    if cluster is None and of_cluster:
        raise InputError("nodes, figures and calibrations are those of a cluster: add --cluster")
    sizes = _ordered_mesh(axis_sizes(mesh) if mesh else {}, as_axes(device_order))
    asked = parse_expression(expression, list(sizes))
    if isinstance(shape, str):
        lengths = parse_sizes(shape, "--shape", "dimension", "I=1024,J=4096")
    else:
        lengths = {name: whole_number(f"shape: {name}", n) for name, n in (shape or {}).items()}
    setting = ShapeContext(sizes, lengths, dtype)
    named = {name for array in asked.arrays for name in array.names if not name.isdigit()}
    check_keys(lengths, sorted(named), "--shape", "dimension")
    if both := sorted(named & set(sizes)):
        raise InputError(
            f"{both[0]} is a dimension and an axis of the mesh; name one of them otherwise"
        )
    where = None
    if cluster is not None:
        where = cluster_for(setting.devices, cluster, nodes, overrides)
        profile, _ = load_profile(where, calibration, measured=measured)
        place = MeshOnCluster(where, profile, ideal_profile(hops), ideal)
        setting = replace(setting, place=place)
    answer = array_answer(asked, setting)
    if where is not None and (words := _along(sizes, where)):
        answer = replace(answer, notes=(*answer.notes, words))
    if tile is not None:
        answer = replace(answer, parts=(*answer.parts, *tiled(asked, setting, read_tile(tile))))
    if compile:
        from scaling.api.compiled_array import compiled_answer

        compiled = compiled_answer(completed(asked), setting, where, ways_of(asked, setting))
        answer = replace(answer, parts=(*answer.parts, compiled))
    return textbook(answer) if ideal else answer


def _ordered_mesh(sizes: dict[str, int], order: tuple[str, ...]) -> dict[str, int]:
    """Return the axes, those of a device order first."""
    for axis in sizes:
        if not AXIS.fullmatch(axis):
            raise InputError(f"--mesh: {axis!r} is no name of an axis; write letters: X=4,Y=8")
        check_symbol(axis, "--mesh")
    devices = math.prod(sizes.values())
    if len(sizes) > MOST_AXES or devices > MOST_DEVICES:
        raise InputError(
            f"--mesh: {len(sizes)} axes of {devices:,} devices; at most {MOST_AXES} axes and "
            f"{MOST_DEVICES:,} devices"
        )
    check_keys(order, sizes, "--device-order", "axis")
    if len(set(order)) < len(order):
        raise InputError(f"--device-order {','.join(order)}: an axis is named twice")
    return {axis: sizes[axis] for axis in (*order, *sizes)}


def _along(sizes: Mapping[str, int], cluster: Cluster) -> str:
    """Say which dimensions of a slice the axes lie along; "" where there is no torus."""
    if cluster.torus is None:
        return ""
    text, dims = shape_text(torus_shape(cluster)), torus_dims(sizes, cluster)
    if dims is None:
        return f"the mesh lies row by row on a slice of {text} chips"
    _, *part = torus_box(math.prod(sizes.values()), cluster)
    chips = ("slices", *map(str, part))
    words = (
        f"{axis} along {' x '.join(chips[d] for d in of_axis)}" for axis, of_axis in dims.items()
    )
    of = "" if shape_text(tuple(part)) == text else f"{shape_text(tuple(part))} of "
    return f"on {of}a slice of {text} chips: {', '.join(words)}"
