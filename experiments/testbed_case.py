"""Seconds of collectives across the hosts of a testbed; runs once in every host.

    python -m experiments.testbed_case --hosts 2 --bandwidth 125000000 --out points.json

Each program repeats its collective, so that the token bucket of every link is empty and sleeping
processes are awake. How often follows from the bytes alone: all processes must agree on it.
"""

import argparse
import json
import math
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import jax
import numpy as np

from experiments.gloo.messages import groups_over, link_bytes, payload_bound
from scaling.calibration.cases import collective_operations
from scaling.calibration.timing import FLOAT, TimedCase, compiled, over_all
from scaling.meshes.devices import present_mesh
from scaling.meshes.shape import MeshShape
from scaling.profiles.samples import CollectiveSample
from scaling.program.ir import CollectiveKind
from scaling.training.launch.distributed import start_distributed

SMALL = 2**10  # bytes; its time is all latency
SIZES = tuple(2**i for i in (16, 18, 20, 22, 24))  # 64 KiB to 16 MiB
WINDOW = 0.2  # s that the payload of one program takes at least
MOST = 200  # repetitions in a program
LATENCY_LOOP = 200  # repetitions of the small one
REPEATS = 3


@dataclass(frozen=True)
class Point:
    """One collective on one testbed, and each time it was measured."""

    kind: str
    axis: str  # "all" devices, or one group across the "hosts" for each place in a host
    hosts: int
    devices: int  # of each host
    bandwidth: float  # bytes/s of a link
    bytes: int  # as nccl-tests counts
    iterations: int  # in one program
    seconds: tuple[float, ...] = ()  # of one collective


def points(hosts: int, devices: int, bandwidth: float, sizes: tuple[int, ...]) -> list[Point]:
    """All points of one testbed: the latency first, then every kind, axis and size."""
    axes = ("all", "hosts") if devices > 1 else ("all",)
    every = []
    for axis in axes:
        ranks = hosts * devices if axis == "all" else hosts
        kinds: list[CollectiveKind] = list(collective_operations(ranks))
        every.append(Point("permute", axis, hosts, devices, bandwidth, SMALL, LATENCY_LOOP))
        for kind in kinds:
            for size in sizes:
                total = size // FLOAT // ranks * ranks * FLOAT  # every rank has an equal share
                link = link_bytes(kind, groups_over(axis, hosts, devices), devices, total)
                iterations = min(MOST, math.ceil(WINDOW / payload_bound(link, bandwidth)))
                every.append(Point(kind, axis, hosts, devices, bandwidth, total, iterations))
    return every


def case(point: Point) -> TimedCase:
    """The case that measures a point."""
    ranks = point.hosts * point.devices if point.axis == "all" else point.hosts
    across = ranks if point.axis == "all" else point.hosts
    inside = 1 if point.axis == "all" else point.devices
    mesh = present_mesh(MeshShape(fsdp=across, tensor=inside))
    elements = point.bytes // FLOAT
    local = elements // ranks if point.kind == "all-gather" else elements
    sample = CollectiveSample(_kind(point.kind), ranks, inside, point.bytes, ())
    operation = collective_operations(ranks)[_kind(point.kind)]
    return TimedCase(sample, mesh, operation, ((local,),), in_place=point.kind == "all-reduce")


def _kind(name: str) -> CollectiveKind:
    return next(kind for kind in collective_operations(2) if kind == name)


def measure(point: Point, repeats: int) -> Point:
    """The point with its seconds, as this process sees them; the first call is not counted."""
    measured = case(point)
    program = compiled(measured, point.iterations)
    sharding = jax.NamedSharding(measured.mesh, over_all(measured.mesh))
    shape = (measured.mesh.size * measured.shapes[0][0],)
    zeros = lambda index: np.zeros(len(range(*index[0].indices(shape[0]))), np.float32)
    values = jax.make_array_from_callback(shape, sharding, zeros)
    seconds = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        jax.block_until_ready(program(values))
        seconds.append((time.perf_counter() - start) / point.iterations)
    return Point(**{**asdict(point), "seconds": tuple(seconds[1:])})


def main(arguments: list[str] | None = None) -> None:
    """Measure everything on the testbed around us; the first host writes."""
    parser = argparse.ArgumentParser(prog="python -m experiments.testbed_case")
    parser.add_argument("--hosts", type=int, required=True)
    parser.add_argument("--devices", type=int, required=True)
    parser.add_argument("--bandwidth", type=float, required=True, help="bytes/s of a link")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    args = parser.parse_args(arguments)
    start_distributed()
    wanted = points(args.hosts, args.devices, args.bandwidth, tuple(args.sizes))
    found = [measure(point, args.repeats) for point in wanted]
    if jax.process_index() == 0:
        args.out.write_text(json.dumps([asdict(point) for point in found]) + "\n")
        print(f"measured {len(found)} collectives", file=sys.stderr)


if __name__ == "__main__":
    main()
