"""Cases of collectives: each kind over each size and stride of an axis, all its groups at once.

8 devices, ranks 2, stride 2      0 . 2 .    groups {0,2} {1,3} {4,6} {5,7}
                                  4 . 6 .    mesh data=2, fsdp=2, tensor=2, over fsdp
"""

from collections.abc import Callable, Iterator, Sequence

import jax

from scaling.calibration.timing import FLOAT, Case
from scaling.meshes.devices import present_mesh
from scaling.meshes.rules import divisors
from scaling.meshes.shape import MeshShape
from scaling.profiles.samples import CollectiveSample
from scaling.program.ir import CollectiveKind

AXIS = "fsdp"  # the groups run along it; `data` and `tensor` are what lies outside and inside


def collective_cases(devices: int, quick: bool, messages: Sequence[int]) -> Iterator[Case]:
    """Yields every kind, axis and size; if quick, the axis with the largest stride only.

    `messages` are the sizes in bytes.
    """
    for ranks, stride in axes(devices, quick):
        shape = MeshShape(data=devices // (ranks * stride), fsdp=ranks, tensor=stride)
        mesh = present_mesh(shape)
        for kind, operation in collective_operations(ranks).items():
            for size in messages:
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
