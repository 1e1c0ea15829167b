"""Verbs of clusters: look at them, price one collective there, make one inside this machine."""

from pathlib import Path
from typing import Annotated, Literal

import tyro
from tyro.conf import Positional

from scaling.cli.verbs_about import about


def cluster(
    action: Positional[Literal["list", "show", "check"]],
    target: Positional[str | None] = None,
    nodes: int = 1,
    override: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = (),
    topology: Path | None = None,
    accelerator: str | None = None,
    toml: bool = False,
    json: bool = False,
) -> int:
    """List the catalogue of clusters, show one as a tree with its sources, or check a file.

    Example: scaling cluster show dgx-h100

    Args:
        action: list, show NAME, or check FILE.toml.
        target: catalogue name or TOML file.
        nodes: number of hosts to show.
        override: key=value on top of the catalogue, repeatable.
        topology: output of nvidia-smi topo -m; check writes the machine as a cluster file.
        accelerator: the GPUs of that machine, a catalogue name or TOML file.
        toml: show NAME as a complete cluster file, to start one of your own from.
        json: print one JSON document.
    """
    from scaling.cli.cluster import cluster_command

    with about(target or action):
        return cluster_command(action, target, nodes, override, json, topology, accelerator, toml)


def collective(
    kind: Positional[str],
    cluster: str,
    bytes: str | None = None,
    nodes: int = 1,
    mesh: str | None = None,
    axis: str | None = None,
    device_order: str | None = None,
    algorithm: str = "auto",
    dtype: str | None = None,
    sweep: str | None = None,
    override: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = (),
    calibration: Path | None = None,
    ideal: bool = False,
    software: Literal["any", "jax"] = "any",
    plot: Path | None = None,
    json: bool = False,
    skew: float | None = None,
) -> int:
    """Time of one collective on a cluster, as nccl-tests would print it.

    Example: scaling collective all-reduce --bytes 1GiB --cluster dgx-h100 --nodes 4

    Args:
        kind: all-reduce, all-gather, reduce-scatter, all-to-all, permute or broadcast.
        cluster: catalogue name or TOML file.
        bytes: size as nccl-tests counts it, or several: 65536,1MiB,1GiB (default: 1GiB).
        nodes: number of hosts.
        mesh: axis sizes on the first devices; without it, one group of all devices.
        axis: axes of the mesh that the collective runs over, joined by commas (default: all).
        device_order: axes joined by commas, outermost first.
        algorithm: auto, ring, tree, nvls, nvls-tree, sharp, hierarchical, pairwise or pat.
        dtype: of the numbers; sizes are in bytes, so that it only stands in the heading.
        sweep: first:last, every power of two between: 1KiB:8GiB.
        override: key=value on top of the cluster's figures, repeatable.
        calibration: file of scaling calibrate to price with.
        ideal: no latency, every link at its full bandwidth: the textbook's rule.
        software: any, or jax: as XLA's own tables have it, where it has one.
        plot: file for bandwidth against size, with the bound drawn in (.svg or .png).
        json: print one JSON document (a list for several sizes).
        skew: of an all-to-all: what the busiest member of each group receives over the mean, 1 to
            the number of members; the others share the rest, and it sits where it takes longest.
    """
    from scaling.cli.collective import CollectiveArguments, collective_command

    given = CollectiveArguments(
        kind, cluster, bytes, nodes, mesh, axis, device_order, algorithm, dtype, sweep, override,
        calibration, ideal, software, plot, json, skew,
    )  # fmt: skip
    with about(kind):
        return collective_command(given)


def testbed(
    action: Positional[Literal["up", "run", "down", "status"]],
    command: Positional[tuple[str, ...]] = (),
    name: str = "default",
    hosts: int | None = None,
    devices: int | None = None,
    bandwidth: str | None = None,
    latency: str | None = None,
) -> int:
    """Make a real cluster inside this Linux machine, run a command on all its hosts, remove it.

    Hosts are network namespaces, joined by links of a known rate; needs root and iproute2.

    Example: scaling testbed up --hosts 2 --devices 2 --bandwidth 1Gbit
    then: scaling testbed run -- scaling train tiny --mesh data=2,fsdp=2
    and at last: scaling testbed down

    Args:
        action: up makes it, run starts a command in every host, down removes it, status lists.
        command: for run, after --: what to start, once in every host.
        name: of the testbed; there may be several.
        hosts: for up: number of hosts (default: 2).
        devices: for up: fake CPU devices of each host (default: 2).
        bandwidth: for up: of each host's link, in each direction (default: 1Gbit).
        latency: for up: added from host to host, such as 1ms; needs the kernel's netem.
    """
    from scaling.cli.testbed import BedArguments, testbed_command

    given = BedArguments(command, name, hosts, devices, bandwidth, latency)
    with about(name):
        return testbed_command(action, given)
