"""Where a run is priced: its mesh and the cluster.

The cluster is the one given, else the run's, else this machine (`host`).
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scaling.meshes import catalog
from scaling.meshes.accelerator import with_figures
from scaling.meshes.catalog.load import loaded_already
from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError
from scaling.meshes.placement import check_fits
from scaling.meshes.provenance import SourcedValue
from scaling.meshes.shape import MeshShape
from scaling.meshes.xla_target import xla_target_text
from scaling.models.accounting.remat import AUTO
from scaling.run import OURS, ClusterChoice, Run
from scaling.run.parallelism.checks import TRAINED_FORMATS, check_settings, check_trainable
from scaling.run.parallelism.pipeline import check_parts
from scaling.run.parallelism.rules import resolved_mesh, rules_for
from scaling.run.recipes import with_dividing_microbatches

HOST = "host"


@dataclass(frozen=True)
class Target:
    """A run with a mesh and a cluster to price it on."""

    run: Run
    mesh: MeshShape
    cluster: Cluster
    warnings: tuple[str, ...] = ()  # about the cluster


def target(
    run: Run,
    cluster: Cluster | str | Path | None = None,
    nodes: int | None = None,
    overrides: Mapping[str, float] | None = None,
) -> Target:
    """Put a run on a cluster.

    Args:
        run: what to price; without a mesh, all devices of the cluster are fsdp.
        cluster: a Cluster, catalogue name or TOML file; None: the run's, else this machine.
        nodes: hosts; None: the run's, else 1.
        overrides: figures on top of the cluster's.

    Raises:
        InputError: an unknown cluster or key; a mesh that does not fit.
    """
    place, warnings = _cluster(run, cluster, nodes, overrides)
    if place.virtual_devices:
        place = with_devices(place, run.mesh.devices if run.mesh else place.devices)
    mesh = resolved_mesh(run, None if run.mesh else place.devices)
    check_fits(mesh, place)
    run, notes = with_dividing_microbatches(replace(run, mesh=mesh), mesh)
    return Target(run, mesh, place, (*warnings, *notes))


def target_warnings(where: Target) -> list[str]:
    """Return warnings about the cluster, and about nodes without a device of the mesh."""
    return [*where.warnings, *idle_nodes(where.mesh, where.cluster)]


def idle_nodes(mesh: MeshShape, cluster: Cluster) -> list[str]:
    """Return a warning where the mesh has no device on some nodes."""
    used = -(-mesh.devices // cluster.devices_per_node)
    if cluster.virtual_devices or used == cluster.nodes:
        return []
    return [
        f"mesh {mesh} uses {mesh.devices} of the {cluster.devices} devices of {cluster.nodes} "
        f"nodes: what is priced needs --nodes {used}; a mesh of {cluster.devices} would use all"
    ]


def check_compilable(where: Target) -> None:
    """Raise InputError where the trainer's step cannot be compiled for the target.

    Cheap, and before anything is measured or compiled.
    """
    check_trainable(where.run, where.mesh, "predict")
    if where.cluster.virtual_devices:
        return
    dtype, chip = where.run.precision.compute, where.cluster.accelerator
    xla_target_text(chip)
    # XLA multiplies TF32 as fp32 if need be
    if dtype not in chip.peaks and not (dtype == "tf32" and "fp32" in chip.peaks):
        trained = [name for name in chip.peaks if name in TRAINED_FORMATS] or ["fp32"]
        raise InputError(
            f"precision.compute={dtype!r}: {chip.name} multiplies in {', '.join(chip.peaks)}; use "
            + " or ".join(f"--set precision.compute={name}" for name in trained)
        )


def chosen_source(where: Target, source: str) -> tuple[str, list[str]]:
    """Return "compiled" or "analytic", and a warning where the run of our trainer is not compiled.

    "auto" compiles what the trainer can run for a chip that can be compiled for. Sizes that its
    mesh does not divide are a mistake there, and padded in a closed form that is asked for.

    Raises:
        InputError: "compiled", and it cannot be; settings that mean nothing.
    """
    check_settings(where.run)
    if where.run.recompute != ("core_attn",) and where.run.remat not in ("selective", AUTO):
        raise InputError(
            f"recompute={[*where.run.recompute]} names what remat 'selective' computes again, and "
            f"remat is '{where.run.remat}'; set remat=selective, or leave recompute out"
        )
    packed = where.run.train.documents == "packed"
    notes = ["the masks of packed documents are not in this closed form"] if packed else []
    try:
        if source != "analytic":
            check_compilable(where)
    except InputError as error:
        if source == "compiled":
            raise
        ours = where.run.software == OURS
        check_parts(where.run, where.mesh)
        reason = [f"closed form, not the compiled step: {error}"] if ours else []
        return "analytic", [*reason, *notes]
    if source == "analytic":
        check_parts(where.run, where.mesh)
        return source, notes
    try:
        rules_for(where.run, where.mesh)
    except InputError as error:
        mesh, cluster = where.mesh, where.cluster
        if mesh.devices == cluster.devices:
            raise
        raise InputError(
            f"mesh {mesh} uses {mesh.devices} of the {cluster.devices} devices of {cluster.name}, "
            f"and {error}; axis sizes that multiply to {cluster.devices} use all"
        ) from None
    return "compiled", []


def cluster_record(cluster: Cluster) -> dict[str, Any]:
    """Return the data from which `cluster_from_record` makes the same catalogue cluster."""
    sizes = {"nodes": cluster.nodes, "gpus_per_node": cluster.devices_per_node}
    return {"name": cluster.name, **sizes}


def cluster_from_record(
    name: str, nodes: int, gpus_per_node: int, own: ClusterChoice | None
) -> Cluster:
    """Return the cluster of a `cluster_record`.

    Raises:
        InputError: the catalogue has no such cluster.
    """
    if name == HOST:
        return with_devices(catalog.load(HOST, nodes), nodes * gpus_per_node)
    if own is not None:
        stated = stated_cluster(own, nodes, gpus_per_node)
        if stated.name == name:
            return stated
    return stated_cluster(ClusterChoice(name), nodes, gpus_per_node)


def stated_cluster(choice: ClusterChoice, nodes: int, gpus_per_node: int) -> Cluster:
    """The cluster that a run states, with its overrides, of so many nodes and GPUs in a node.

    Raises:
        InputError: no such cluster, file or override.
    """
    sizes = {"gpus_per_node": float(gpus_per_node)}
    return catalog.load(choice.file or choice.name or HOST, nodes, {**choice.overrides, **sizes})


def _cluster(
    run: Run,
    cluster: Cluster | str | Path | None,
    nodes: int | None,
    overrides: Mapping[str, float] | None,
) -> tuple[Cluster, list[str]]:
    if isinstance(cluster, Cluster):
        return loaded_already(cluster, nodes, overrides), []
    stated = run.cluster if cluster is None else None
    choice = stated or ClusterChoice(name=str(cluster or HOST))
    count = nodes if nodes is not None else choice.nodes
    name = choice.file or choice.name or HOST
    loaded = catalog.load(name, count, {**choice.overrides, **(overrides or {})})
    return loaded, catalog.warnings_of(name, loaded)


def with_devices(cluster: Cluster, devices: int) -> Cluster:
    """Return this machine, or hosts of a testbed, with so many devices, which share its memory.

    Raises:
        InputError: several hosts whose links have no rate.
    """
    if cluster.nodes > 1 and not cluster.node_network_bandwidth:
        raise InputError(
            f"{cluster.nodes} nodes of {cluster.name} are hosts of a testbed: state the rate of a "
            "host's link, such as --override node_network_bandwidth=1Gbit"
        )
    chip = cluster.accelerator
    if chip.memory is None:
        bytes_of_host = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        source = "this machine's memory, shared by its devices"
        share = SourcedValue(bytes_of_host / devices, source, "")
        chip = with_figures(chip, {"memory": share, "usable_memory": share})
    per_node = -(-devices // cluster.nodes)
    parts = {**cluster.parts, "chip": per_node}
    return replace(cluster, accelerator=chip, devices_per_node=per_node, parts=parts)
