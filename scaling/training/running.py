"""The prediction of a step that is compiled already, on the devices that will run it.

No second compile: the text of the compiled step is read and priced. On this machine's CPU that
needs a calibration; on a GPU the efficiencies that ship with the package do, a calibration of the
machine is better.
"""

import os

import jax
from jax.sharding import Mesh

from scaling.compile.lower import device_numbers, planned_peak
from scaling.hlo.parse import UnknownHlo
from scaling.hlo.reader import read_program
from scaling.meshes import catalog
from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError
from scaling.meshes.link_figures import LINK_RATE
from scaling.profiles.calibrations import profile_for
from scaling.profiles.profile import Profile
from scaling.program.ir import Program, placed_on
from scaling.run import Run
from scaling.run.own import OwnRun
from scaling.simulate.pipeline_bubble import mark_bubbles
from scaling.simulate.resolve import HOST, stated_cluster, with_devices
from scaling.simulate.step import Priced, price
from scaling.simulate.summary import Prediction, summarize


def predict_compiled(
    step: jax.stages.Compiled,
    mesh: Mesh,
    run: Run | OwnRun,
    profile: Profile | None = None,
    given: tuple[float | None, float | None] = (None, None),
) -> tuple[Priced, Prediction]:
    """Price the compiled step of `run` on the present devices of the mesh it was compiled for.

    Args:
        given: tokens and model FLOPs of a step that is not our model's.
        profile: efficiencies; None: those calibrated or shipped.

    Raises:
        InputError: the machine has no calibration, or its GPU is not in the catalogue.
        UnknownHlo: the program holds something that is not understood.
    """
    cluster, warnings = cluster_of(mesh, run)
    if profile is None:
        profile, more = profile_for(cluster, None)
        warnings += more
    program = program_of(step, mesh, run.name)
    if isinstance(run, OwnRun):
        priced = price(program, cluster, profile)
        return priced, summarize(priced, warnings=warnings, given=given)
    if run.mesh is not None:
        program = mark_bubbles(program)
    priced = price(program, cluster, profile)
    return priced, summarize(priced, run, warnings=warnings)


def program_of(step: jax.stages.Compiled, mesh: Mesh, name: str) -> Program:
    """The Program of a compiled step.

    Raises:
        UnknownHlo: it holds something that is not understood.
    """
    text = step.as_text()
    if text is None:
        raise UnknownHlo("the compiler gives no text of the program")
    program = read_program(text, dict(mesh.shape), name, planned_peak(step, mesh))
    return placed_on(program, device_numbers(mesh))


def cluster_of(mesh: Mesh, run: Run | OwnRun) -> tuple[Cluster, list[str]]:
    """The cluster that the devices of a mesh belong to, and warnings about the choice.

    The run's own cluster if it has these devices, else a cluster of the catalogue: the GPU maker's
    before those of clouds, which have the same GPU behind other networks. CPUs are this machine; in
    a testbed its hosts, joined by links of the rate that the testbed states.

    Raises:
        InputError: a GPU that no cluster of the catalogue has.
    """
    device = mesh.devices.flat[0]
    hosts = len({d.process_index for d in mesh.devices.flat})
    if device.platform == "cpu":
        rate = os.environ.get(LINK_RATE)
        if hosts == 1 or rate is None:
            return with_devices(catalog.load(HOST), mesh.size), []
        figures = {"node_network_bandwidth": float(rate)}
        return with_devices(catalog.load(HOST, hosts, figures), mesh.size), []
    per_host = -(-mesh.size // hosts)
    gpus = f"{per_host} {device.device_kind} in a host"
    warnings = []
    if run.cluster is not None:
        own = stated_cluster(run.cluster, hosts, per_host)
        if own.accelerator.title == device.device_kind:
            return own, []
        warnings.append(f"the run is meant for {own.name}, but there are {gpus}")
    is_resold = lambda cluster: cluster.accelerator.vendor not in cluster.title
    clusters = sorted(map(catalog.load, catalog.names()), key=is_resold)
    has_gpu = lambda cluster: cluster.accelerator.title == device.device_kind
    fitting = [c for c in clusters if has_gpu(c) and c.devices_per_node >= per_host]
    if not fitting:
        titles = ", ".join(sorted({cluster.accelerator.title for cluster in clusters}))
        raise InputError(f"no cluster of the catalogue has {gpus}; there are {titles}")
    if len(fitting) > 1 and hosts > 1:
        names = ", ".join(cluster.name for cluster in fitting[1:])
        warnings.append(
            f"predicted for the network of {fitting[0].name}; {names} have {gpus} too: name the "
            "one that this is in the run's cluster"
        )
    return catalog.load(fitting[0].name, hosts, {"gpus_per_node": per_host}), warnings
