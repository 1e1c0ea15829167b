"""What `scaling train` prints: what is about to run, how it is sharded, how it ended."""

import math
from typing import TYPE_CHECKING

from scaling.meshes.shape import axes_text
from scaling.models.accounting import count_parameters
from scaling.run import Run
from scaling.run.attention import stored_scores
from scaling.run.parallelism.pipeline import pipeline_line
from scaling.run.parallelism.rules import notes
from scaling.run.parallelism.sequence import sequence_cut

if TYPE_CHECKING:  # they import jax, which must wait until the devices are known
    from scaling.training.own import OwnPlan
    from scaling.training.prepare import PreparedRun, Programs
    from scaling.training.run_folder.folder import Options


def header_lines(plan: "PreparedRun") -> list[str]:
    """Return what is about to run, in a few lines."""
    from scaling.training.execution import compute_capability

    run, batch, device = plan.run, plan.run.batch, plan.mesh.devices.flat[0]
    count = count_parameters(run.model).total
    split = [sequence_cut(run, run.mesh), pipeline_line(run, run.mesh)] if run.mesh else []
    return [
        f"{run.name}: {count / 1e6:,.1f} M parameters on {run.mesh} ({plan.mesh.size} x "
        f"{device.device_kind}), {run.precision.compute}, remat {run.remat}, attention "
        f"{plan.execution.attention_kernel}",
        *(str(line) for line in split if line),
        *stored_scores(run, compute_capability(device)),
        f"step: {batch.global_batch} sequences x {batch.seq_len} tokens = {batch.tokens:,} tokens"
        f" in {batch.microbatches} microbatch(es); data: {plan.source.description}",
    ]


def own_header_lines(plan: "OwnPlan") -> list[str]:
    """Return what is about to run of a function's state, step and data."""
    import jax

    from scaling.training.weights.naming import to_dict

    run, device = plan.run, plan.mesh.devices.flat[0]
    arrays, batch = jax.tree.leaves(plan.training.state), to_dict(plan.batch)
    count = sum(math.prod(leaf.shape) for leaf in arrays)
    axes = axes_text(run.mesh)
    parts = (f"{name} {x.dtype}{list(x.shape)}".strip() for name, x in batch.items())
    return [
        f"{run.name}: a state of {count:,} numbers in {len(arrays)} arrays on {axes} "
        f"({plan.mesh.size} x {device.device_kind})",
        f"step: a batch of {', '.join(parts)}",
    ]


def sharding_lines(plan: "PreparedRun", programs: "Programs") -> list[str]:
    """Return the sharding table and its warnings."""
    from scaling.report.shardings import rows, table, warnings
    from scaling.training.optim.trained import trained_line

    rules = plan.execution.rules
    all_rows = rows(programs.state.params, rules)
    notices = notes(plan.run, rules) + warnings(all_rows)
    lines = [table(all_rows), *(f"warning: {line}" for line in notices)]
    return lines + trained_line(programs.state.params, plan.run.train)


def random_base_lines(run: Run, options: "Options") -> list[str]:
    """Return a warning where what is frozen is random, which is seldom meant."""
    if run.train.trains_all or options.initial is not None or options.resume:
        return []
    return ["warning: what is frozen stays random; --init FOLDER begins from trained weights"]
