"""Times of collectives inside a node and between more and more nodes, of all devices of a job.

    8 nodes of 4    4 ranks on 1 node    8 ranks on 2 nodes    16 on 4    32 on 8

Groups of one size run at once, each on nodes of its own, so that a fabric carries what it has to in
training. All processes run the same programs in the same order; the clock of each is that of the
slowest, since a collective ends everywhere at once.
"""

import socket
from collections.abc import Callable
from statistics import median
from zlib import crc32

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

from scaling.calibration.cases import axis_cases
from scaling.calibration.sizes import sizes_for
from scaling.calibration.timing import Bench, TimedCase, compiled, inputs, window
from scaling.meshes.bandwidths import MeasuredCall
from scaling.meshes.devices import present_mesh
from scaling.meshes.shape import MeshShape
from scaling.profiles.samples import CollectiveSample

ITERATIONS = 20  # of a call, as nccl-tests does by default
REPEATS = 3


def timed_calls(quick: bool, progress: Callable[[str], None]) -> tuple[MeasuredCall, ...]:
    """Every collective at powers of two bytes, over powers of two nodes and over all.

    If `quick`, of every fourth size or so.
    """
    devices, per_node = by_nodes()
    nodes, calls = len(devices) // per_node, []
    messages = sizes_for(devices[0].platform, quick).messages
    if not quick:
        exponents = [round(np.log2(size)) for size in (min(messages), max(messages))]
        messages = tuple(2**i for i in range(exponents[0], exponents[1] + 1))
    for count in (n for n in range(1, nodes + 1) if n == nodes or not n & (n - 1)):
        ranks = count * per_node
        if ranks == 1 or nodes % count:  # the rest would have to wait
            continue
        progress(f"timing collectives among {ranks} ranks on {count} of {nodes} nodes")
        mesh = present_mesh(MeshShape(data=nodes // count, fsdp=ranks), devices)
        for case in axis_cases(mesh, messages):
            sample, bench = case.sample, _bench(case)
            seconds = median(window(bench) for _ in range(REPEATS))
            assert isinstance(sample, CollectiveSample)
            calls.append(MeasuredCall(sample.kind, ranks, sample.bytes, count, seconds=seconds))
    return tuple(calls)


def by_nodes() -> tuple[list[jax.Device], int]:
    """The devices of the job, node by node, and how many a node has.

    Processes of one host name are one node; of fake devices each process stands for a node.
    """
    own = socket.gethostname() if jax.default_backend() != "cpu" else f"{jax.process_index()}"
    hosts = np.ravel(multihost_utils.process_allgather(np.uint32(crc32(own.encode()))))
    first = {host: i for i, host in reversed(list(enumerate(hosts.tolist())))}
    at = lambda device: (first[int(hosts[device.process_index])], device.id)
    devices = sorted(jax.devices(), key=at)
    return devices, len(devices) // len(first)


def _bench(case: TimedCase) -> Bench:
    """The compiled case with zeros on the devices, run once."""
    program = compiled(case, ITERATIONS)
    zeros = lambda like: jax.jit(
        lambda: jnp.zeros(like.shape, like.dtype), out_shardings=like.sharding
    )
    arrays = [zeros(like)() for like in inputs(case)]
    jax.block_until_ready(program(*arrays))
    return Bench(case.sample, lambda: program(*arrays), ITERATIONS)
