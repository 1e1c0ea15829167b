"""Cases of collectives: each kind over each size and stride of an axis, all its groups at once.

8 devices, ranks 2, stride 2      0 . 2 .    groups {0,2} {1,3} {4,6} {5,7}
                                  4 . 6 .    mesh data=2, fsdp=2, tensor=2, over fsdp
"""

from collections.abc import Callable, Iterator

import jax

from scaling.calibration.timing import Case
from scaling.meshes.devices import present_mesh
from scaling.meshes.rules import divisors
from scaling.meshes.shape import MeshShape
from scaling.profiles.samples import CollectiveSample
from scaling.program.ir import CollectiveKind

FLOAT = 4  # bytes of fp32
AXIS = "fsdp"  # the groups run along it; `data` and `tensor` are what lies outside and inside
HOST_QUICK = (2**10, 2**14, 2**18, 2**20, 2**22)  # bytes
HOST_FULL = tuple(2**i for i in range(10, 23, 3))
GPU_QUICK = (2**16, 2**22, 2**28)
GPU_FULL = tuple(2**i for i in range(12, 31, 2))


def collective_cases(devices: int, quick: bool, host: bool) -> Iterator[Case]:
    """Yields every kind, axis and size; if quick, the axis with the largest stride only."""
    sizes = (HOST_QUICK if quick else HOST_FULL) if host else (GPU_QUICK if quick else GPU_FULL)
    for ranks, stride in axes(devices, quick):
        shape = MeshShape(data=devices // (ranks * stride), fsdp=ranks, tensor=stride)
        mesh = present_mesh(shape)
        for kind, operation in collective_operations(ranks).items():
            for size in sizes:
                total = size // FLOAT // ranks * ranks  # elements; a multiple of the ranks
                local = total // ranks if kind == "all-gather" else total
                sample = CollectiveSample(kind, ranks, devices // ranks, FLOAT * total, ())
                in_place = kind == "all-reduce"
                yield Case(sample, mesh, operation, ((local,),), in_place=in_place)


def axes(devices: int, quick: bool) -> list[tuple[int, int]]:
    """(ranks, stride) of every axis that a mesh of these devices can have."""
    pairs = []
    for ranks in divisors(devices):
        strides = divisors(devices // ranks) if ranks > 1 else []
        pairs += [(ranks, stride) for stride in (strides[-1:] if quick else strides)]
    return pairs


def collective_operations(ranks: int) -> dict[CollectiveKind, Callable[[jax.Array], jax.Array]]:
    """Each kind of collective as a function of a vector inside `shard_map`."""
    ring = [(rank, (rank + 1) % ranks) for rank in range(ranks)]
    return {
        "all-reduce": lambda x: jax.lax.psum(x, AXIS),
        "all-gather": lambda x: jax.lax.all_gather(x, AXIS, tiled=True),
        "reduce-scatter": lambda x: jax.lax.psum_scatter(x, AXIS, tiled=True),
        "all-to-all": lambda x: jax.lax.all_to_all(x, AXIS, 0, 0, tiled=True),
        "permute": lambda x: jax.lax.ppermute(x, AXIS, ring),
    }
