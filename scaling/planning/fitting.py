"""The batch split and remat with which a run fits in memory, on its own mesh, by closed forms.

The run as it is comes first; then more microbatches; then more remat, from as many microbatches on.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from scaling.analytic.program import closed_form
from scaling.analytic.step import FULL, REMATS, Grid, policies
from scaling.meshes.cluster import Cluster
from scaling.meshes.rules import divisors
from scaling.meshes.shape import MeshShape
from scaling.run import Run
from scaling.run.parallelism.rules import rows_of_shard, zero_stage
from scaling.simulate.capacity import LIKELY, capacity_of, fit_probability
from scaling.simulate.memory import memory_use


def fitting_runs(run: Run, mesh: MeshShape, cluster: Cluster) -> Iterator[tuple[Run, float]]:
    """Yield the run, or one with more microbatches or remat, and bytes of its peak: those that fit.

    Nothing where no setting fits, or where the chip's memory is not known.
    """
    stated = run.batch.microbatches
    rows = rows_of_shard(run, mesh)
    counts = sorted({stated, *(n for n in divisors(rows) if n > stated)})
    if run.pipeline.virtual_stages > 1 and mesh.stage > 1:
        counts = [n for n in counts if n % mesh.stage == 0 or n == stated]
    order = policies(run)
    later = REMATS[REMATS.index(run.remat) :] if run.remat in REMATS else (run.remat,)
    every = [(remat, n) for remat in later for n in counts]
    batch = np.full(len(every), float(run.batch.global_batch))
    zero = np.full(len(every), zero_stage(run, mesh))
    remats = np.array([order.index(remat) for remat, _ in every])
    own = run.pipeline.remat_layers or np.inf
    again = (
        np.where(remats == FULL, own, np.inf),
        np.where(remats == FULL, run.pipeline.remat_fewer, 0),
    )
    grid = Grid(np.array([float(n) for _, n in every]), batch, zero, remats, *again)
    program = closed_form(run, mesh, cluster, grid)
    capacity = capacity_of(cluster, program, run.software).bytes
    if capacity is None:
        return
    likely = fit_probability(program, memory_use(program).peak, capacity, run.software)
    figures = memory_use(program).peak, np.greater_equal(likely, LIKELY)
    for (remat, count), peak, fits in zip(
        every, *(np.broadcast_to(x, (len(every),)) for x in figures), strict=True
    ):
        if fits:
            changed = replace(run, batch=replace(run.batch, microbatches=count), remat=remat)
            yield changed, float(peak)
