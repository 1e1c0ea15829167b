"""The prediction of a step that is compiled already, on the devices that will run it.

No second compile: the text of the compiled step is read and priced. On this machine's CPU that
needs a calibration; on a GPU the efficiencies that ship with the package do, a calibration of the
machine is better.
"""

import jax
from jax.sharding import Mesh

from scaling.compile.lower import check_order, planned_peak
from scaling.hlo.parse import UnknownHlo
from scaling.hlo.reader import read_program
from scaling.meshes import catalog
from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError
from scaling.parallelism.pipeline import ticks_of
from scaling.profiles.profile import Profile
from scaling.program.ir import Program
from scaling.run import Run
from scaling.simulate.pipeline_bubble import mark_bubbles
from scaling.simulate.resolve import HOST, profile_for, target
from scaling.simulate.step import Priced, price
from scaling.simulate.summary import Prediction, summarize


def predict_compiled(
    step: jax.stages.Compiled, mesh: Mesh, run: Run, profile: Profile | None = None
) -> tuple[Priced, Prediction]:
    """Price a compiled step where it will run.

    Args:
        step: the compiled training step of `run`.
        mesh: the devices that it was compiled for; all are present.
        run: what it trains.
        profile: efficiencies; None: those calibrated or shipped.

    Raises:
        InputError: the machine has no calibration, its GPU is not in the catalogue, or the devices
            of the mesh are not in ascending order.
        UnknownHlo: the program holds something that is not understood.
    """
    cluster = cluster_of(mesh, run)
    doubts: list[str] = []
    if profile is None:
        profile, doubts = profile_for(cluster, None)
    program = program_of(step, mesh, run.name)
    if run.mesh is not None:
        program = mark_bubbles(program, ticks_of(run, run.mesh))
    priced = price(program, cluster, profile)
    return priced, summarize(priced, run, warnings=doubts)


def program_of(step: jax.stages.Compiled, mesh: Mesh, name: str) -> Program:
    """The Program of a compiled step.

    Raises:
        InputError: the devices of the mesh are not in ascending order.
        UnknownHlo: it holds something that is not understood.
    """
    check_order(mesh)
    text = step.as_text()
    if text is None:
        raise UnknownHlo("the compiler gives no text of the program")
    return read_program(text, dict(mesh.shape), name, planned_peak(step, mesh))


def cluster_of(mesh: Mesh, run: Run) -> Cluster:
    """The catalogue's description of the devices of a mesh.

    Raises:
        InputError: a GPU that no cluster of the catalogue has.
    """
    device = mesh.devices.flat[0]
    if device.platform == "cpu":
        return target(run, HOST, 1).cluster
    hosts = len({d.process_index for d in mesh.devices.flat})
    each = -(-mesh.size // hosts)
    clusters = sorted(map(catalog.load, catalog.names()), key=_sold_by_others)
    for cluster in clusters:
        if cluster.accelerator.title == device.device_kind and cluster.devices_per_node >= each:
            return catalog.load(cluster.name, hosts, {"gpus_per_node": each})
    known = sorted({cluster.accelerator.title for cluster in clusters})
    raise InputError(
        f"no cluster of the catalogue has {each} {device.device_kind} in a host; there are "
        f"{', '.join(known)}"
    )


def _sold_by_others(cluster: Cluster) -> bool:
    """Whether a cloud or server maker sells it: of two that fit, the GPU maker's own is taken."""
    return cluster.accelerator.vendor not in cluster.title
