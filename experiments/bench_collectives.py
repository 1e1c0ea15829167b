"""How fast collectives are priced: one on very many GPUs, many at once, and the whole command.

    1,024 first      the first price in a new process             / the same on one node of 8
    1,024 again      the same groups, another size                / the same on one node of 8
    10,000 at once   mixed meshes, kinds and sizes, new process   / one by one
    command          `scaling collective`, start to answer        / a Python that does nothing

    python -m experiments.bench_collectives --rounds 5

Prices are timed in CPU seconds of their process, with its imports, cluster and profile at hand.
"""

import argparse
import itertools
import math
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.ratios import Ratio, Timer, compare, python, table
from scaling.collectives.cost import CollectiveCost
from scaling.collectives.cost import collective_time as price
from scaling.meshes import catalog
from scaling.meshes.cluster import Cluster
from scaling.meshes.shape import MeshShape
from scaling.profiles.io import profile_of
from scaling.profiles.profile import Profile
from scaling.program.ir import COLLECTIVE_KINDS, CollectiveKind
from scaling.simulate.collective import collective_groups

NAME, GPUS = "dgx-h100", 8  # of a node
NODES = (128, 2048)
BATCH, SHAPES, BATCH_NODES = 10_000, 300, 64
SAMPLE = 10  # of so many calls one is priced by itself
SIZES = (1e3, 1e10)  # bytes, drawn evenly by their logarithm
COMMAND = ("collective", "all-reduce", "--cluster", NAME, "--json")
WORDS = {"data": "data axis of", "all": "all of"}


@dataclass(frozen=True)
class Axes:
    """Groups along axes of a mesh on the first devices of a cluster."""

    mesh: MeshShape
    names: tuple[str, ...]


@dataclass(frozen=True)
class Call:
    """One call of a collective in all its groups."""

    kind: CollectiveKind
    bytes: float
    groups: Axes


def collective_time(rounds: int) -> Iterator[Ratio]:
    """All of the above."""
    for nodes, which in itertools.product(NODES, WORDS):
        what = f"{WORDS[which]} {nodes * GPUS:,} GPUs / all of {GPUS}"
        for when, timer in (("first", _own_process), ("again", _again)):
            name = f"collective {nodes * GPUS:,} {when}"
            yield compare(name, what, timer(which, nodes), timer("all", 1), rounds)
    what = f"{SHAPES} axes of meshes of {BATCH_NODES * GPUS} GPUs, all kinds / one by one"
    at_once, singly = (_own_process(how, BATCH_NODES) for how in ("batch", "singly"))
    yield compare(f"collective {BATCH:,} at once", what, at_once, singly, rounds)
    what = f"scaling {' '.join(COMMAND)} / python -c pass"
    command = python("-m", "scaling", *COMMAND)
    yield compare("collective command", what, command, python("-c", "pass"), rounds)


def mixed_calls(cluster: Cluster, count: int) -> list[Call]:
    """Calls of every kind and size along axes of many meshes, the same ones every time."""
    rng = np.random.default_rng(0)
    every = list(mesh_axes(cluster.devices))
    shapes = [every[k] for k in rng.permutation(len(every))[:SHAPES]]
    low, high = np.log(SIZES)
    sizes = np.exp(rng.uniform(low, high, count)).tolist()
    kinds = rng.integers(len(COLLECTIVE_KINDS), size=count).tolist()
    where = rng.integers(len(shapes), size=count).tolist()
    return [
        Call(COLLECTIVE_KINDS[kind], size, shapes[shape])
        for kind, size, shape in zip(kinds, sizes, where, strict=True)
    ]


def price_at_once(calls: Sequence[Call], cluster: Cluster, profile: Profile) -> np.ndarray:
    """Seconds of every call; calls of one kind in the same devices are one array of sizes."""
    every = {call.groups: call.groups.mesh.groups(call.groups.names) for call in calls}
    devices = {axes: (groups.shape, groups.tobytes()) for axes, groups in every.items()}
    alike: dict[tuple, list[int]] = defaultdict(list)
    for number, call in enumerate(calls):
        alike[call.kind, *devices[call.groups]].append(number)
    seconds = np.zeros(len(calls))
    for numbers in alike.values():
        first, sizes = calls[numbers[0]], np.array([calls[k].bytes for k in numbers])
        cost = price(first.kind, sizes, every[first.groups], cluster, profile)
        seconds[numbers] = cost.time
    return seconds


def mesh_axes(devices: int) -> Iterator[Axes]:
    """One or two axes of every mesh of so many devices over four axes."""
    divisors = [n for n in range(1, devices + 1) if devices % n == 0]
    for data, fsdp, expert in itertools.product(divisors, repeat=3):
        tensor, rest = divmod(devices, math.prod((data, fsdp, expert)))
        if not rest:
            mesh = MeshShape(data=data, fsdp=fsdp, expert=expert, tensor=tensor)
            used = [axis for axis, size in mesh.sizes.items() if size > 1]
            for names in (*itertools.combinations(used, 1), *itertools.combinations(used, 2)):
                yield Axes(mesh, names)


def price_seconds(which: str, nodes: int, before: bool = False) -> float:
    """CPU seconds of prices, here and now.

    Args:
        which: "data" or "all", one all-reduce over these GPUs; "batch", mixed calls at once;
            "singly", as many one by one, from a sample of them.
        nodes: of the cluster.
        before: the same groups were priced a moment ago.
    """
    cluster, profile = _place(nodes)
    if which == "batch":
        calls = mixed_calls(cluster, BATCH)
        return _cpu(lambda: price_at_once(calls, cluster, profile))
    if which == "singly":
        some = mixed_calls(cluster, BATCH)[::SAMPLE]
        return SAMPLE * _cpu(lambda: [_single(call, cluster, profile) for call in some])
    mesh = MeshShape(data=nodes // GPUS, fsdp=GPUS, tensor=GPUS) if which == "data" else None
    groups = collective_groups(cluster, mesh, ("data",) if mesh else ())
    if before:
        price("all-reduce", 1e6, groups, cluster, profile)
    return _cpu(lambda: price("all-reduce", 1e9, groups, cluster, profile))


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmarks and print the table; with --only, one duration of this very process."""
    parser = argparse.ArgumentParser(prog="python -m experiments.bench_collectives")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=(*WORDS, "batch", "singly"), help="print its seconds")
    parser.add_argument("--nodes", type=int, default=NODES[0], help="for --only")
    args = parser.parse_args(arguments)
    if args.only:
        print(price_seconds(args.only, args.nodes))
    else:
        print(table(list(collective_time(args.rounds))))


def _own_process(which: str, nodes: int) -> Timer:
    """Prices in a new process, which says how long they took."""
    words = ("-m", "experiments.bench_collectives", "--only", which, "--nodes", str(nodes))

    def timed() -> float:
        done = subprocess.run([sys.executable, *words], check=True, capture_output=True, text=True)
        return float(done.stdout)

    return timed


def _again(which: str, nodes: int) -> Timer:
    return lambda: price_seconds(which, nodes, before=True)


def _single(call: Call, cluster: Cluster, profile: Profile) -> CollectiveCost:
    groups = call.groups.mesh.groups(call.groups.names)
    return price(call.kind, call.bytes, groups, cluster, profile)


def _place(nodes: int) -> tuple[Cluster, Profile]:
    cluster = catalog.load(NAME, nodes)
    return cluster, profile_of(cluster.accelerator)


def _cpu(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


if __name__ == "__main__":
    main()
