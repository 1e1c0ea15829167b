"""What remat "auto" stands for: of a run's policies on a mesh the fastest that fits.

Closed forms of all policies are priced side by side and judged as `scaling.planning.search` judges
them, with the figures that ship with the package, so that `train`, `predict` and `plan` agree.
Near the limit XLA hides next to nothing (`PlanTarget.expected`): what leaves it room is faster.
"""

from dataclasses import replace

import numpy as np

from scaling.analytic.step import Grid, policies
from scaling.meshes.cluster import Cluster
from scaling.meshes.shape import MeshShape
from scaling.meshes.units import format_memory, format_time
from scaling.models.accounting.remat import AUTO
from scaling.planning.space import Choices, ChoicesBatch
from scaling.planning.target import PlanTarget
from scaling.profiles.io import profile_of
from scaling.run import Run
from scaling.run.parallelism.rules import zero_stage
from scaling.simulate.memory import memory_use

NOTED = 0.01  # of the step: less extra time near the memory limit is not reported
UNKNOWN = "selective"  # where nothing is known of the chip: less than all, and no product twice


def with_remat(run: Run, mesh: MeshShape, cluster: Cluster | None) -> tuple[Run, str]:
    """The run with the policy that its "auto" stands for, and why; any other as it is, and "".

    Args:
        cluster: None: none of the catalogue has the chip.
    """
    if run.remat != AUTO:
        return run, ""
    if cluster is None or cluster.virtual_devices or cluster.accelerator.usable_memory is None:
        return replace(run, remat=UNKNOWN), f"remat auto: {UNKNOWN}, as on CPUs and unknown chips"
    names, batch = [str(policy) for policy in policies(run)], run.batch
    each = np.arange(len(names))
    same = lambda figure: np.full(len(names), figure)
    zero = same(zero_stage(run, mesh))
    grid = Grid(same(batch.microbatches), same(batch.global_batch), zero, each)
    every = ChoicesBatch((Choices(mesh, grid),))
    target = PlanTarget(run, cluster, profile_of(cluster.accelerator), lambda seconds, _: seconds)
    program = target.program(every)
    line, peak, room = (
        target.calls(program, every).timeline(),
        memory_use(program).peak,
        target.capacity(program),
    )
    expected = target.expected(program, line.total, line.hidden_communication)
    lacks = target.needed(program) - room
    seconds, waits, peaks, missing, rooms = (
        every.parts(x)[0] for x in (line.total, expected - line.total, peak, lacks, room)
    )
    order = sorted(
        range(len(names)),
        key=lambda i: (missing[i] > 0, max(missing[i], 0.0), seconds[i] + waits[i]),
    )

    def words(i: int) -> str:
        text = f"{names[i]} takes {format_time(seconds[i])} in {format_memory(peaks[i])}"
        text += " and does not fit" * bool(missing[i] > 0)
        more = f" and, so near the limit, may take {format_time(waits[i])} more"
        return text + more * bool(missing[i] <= 0 and waits[i] > NOTED * seconds[i])

    best, fastest = order[0], int(np.argmin(seconds))
    what = "the fastest that fits in" if missing[best] <= 0 else "the least for"
    reason = f"{words(best)}, by closed form {what} {format_memory(rooms[best])}"
    rest = [words(i) for i in dict.fromkeys((*order[1:2], fastest)) if i != best]
    return replace(run, remat=policies(run)[best]), "; ".join([f"remat auto: {reason}", *rest])
