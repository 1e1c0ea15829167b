"""Cases of calling a program: its cost besides its kernels, on a CPU.

    buffers     n arguments go in, n results come out
    temporary   a large array, filled and read again, that no other call has left behind

The bytes that a program touches and its temporary memory are read from its compiled text, as for
programs that are priced.
"""

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from scaling.calibration.timing import FLOAT, Bench, over_all
from scaling.hlo.reader import read_program
from scaling.profiles.samples import DispatchSample
from scaling.program.ir import kernels
from scaling.simulate.step import buffers_of, temporaries

# glibc gives blocks above this size back to the system when they are freed, smaller ones not
# always (mallopt(3), DEFAULT_MMAP_THRESHOLD_MAX on 64-bit systems).
KEPT = 32 * 2**20  # bytes
BUFFERS_QUICK, BUFFERS_FULL = (1, 32), (1, 8, 32, 128)
SIZES_QUICK, SIZES_FULL = (40 * 2**20, 80 * 2**20), tuple(i * 2**20 for i in (40, 64, 96, 128))
WIDTH = 128  # elements of a small argument


def dispatch_benches(mesh: Mesh, quick: bool) -> Iterator[Bench]:
    """Yields programs with several numbers of buffers and amounts of temporary memory."""
    for count in BUFFERS_QUICK if quick else BUFFERS_FULL:
        yield _bench(mesh, lambda *xs: [x + 1.0 for x in xs], count)
    for size in SIZES_QUICK if quick else SIZES_FULL:
        yield _bench(mesh, _filling(size), 1)


def _filling(size: int) -> Callable[[jax.Array], list[jax.Array]]:
    """A function with `size` bytes of temporary memory: filled, changed in place, read."""

    def fill(x: jax.Array) -> list[jax.Array]:
        large = jnp.broadcast_to(x[0], (size // FLOAT // WIDTH, WIDTH))
        large = jax.lax.fori_loop(0, 2, lambda _, y: y + 1.0, large)
        return [large.min(axis=0)]

    return fill


def _bench(mesh: Mesh, operation: Callable[..., list[jax.Array]], count: int) -> Bench:
    """Compiles and warms up a program; its sample states what it touches."""
    every = over_all(mesh)
    sharding = jax.NamedSharding(mesh, every)
    inputs = [jax.device_put(jnp.ones(WIDTH * mesh.size), sharding) for _ in range(count)]
    with jax.set_mesh(mesh):
        program = jax.jit(jax.shard_map(operation, mesh=mesh, in_specs=every, out_specs=every))
        compiled = program.lower(*inputs).compile()
    jax.block_until_ready(compiled(*inputs))
    priced = read_program(compiled.as_text() or "", dict(mesh.shape), "call")
    touched = sum(kernel.bytes * calls for kernel, calls in kernels(priced))
    temporary = temporaries(priced)
    fresh = temporary if temporary > KEPT else 0.0
    sample = DispatchSample(buffers_of(priced), float(touched), float(fresh), ())
    return Bench(sample, lambda: compiled(*inputs), 1)
