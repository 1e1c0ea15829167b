"""Communication of a pipeline, beyond `scaling.analytic.communication.table`.

Beyond its letters: S stages, R rounds (pipeline.virtual_stages), T = M R + S - 1 ticks; X here cut
over tensor too, if sequence-parallel.

    over    kind             elements    why
    stage   permute          2 T X       one hop in each tick: a stage's output to the next stage,
                                         and its gradient back
    stage   reduce-scatter   M X         what the last stage has made is shared out over all, for
                                         the output head; in one call
    stage   all-gather       M X         the gradient of that

In the table's other lines a pipeline changes

- M L, the times that a device passes through a layer, to T L / (S R): in bubble ticks as well;
- the sums over tensor of gradients of matrices that make latents, to one per pass as well;
- the layers whose gradients a device sums over data, L, to L / S; in float32, a sum over ticks;
- tables and final norm meet tokens that are cut over stage too (or copied for it), so their
  gradients are summed over data and stage;
- the tokens of the head and of the loss, to those of one stage, 1 / S;
- the token table is gathered once to look up all microbatches, and so is the position table.

Schedules that compute a tick again ("1f1b", "circular") gather its matrices a third time (but for
ZeRO stage 1) and its stream as often as forward; they hand nothing on again. Of a part that
is one layer nothing is computed again beside remat "full", and without that not its last product
(of a layer with experts this is counted).
"""

from collections.abc import Iterator

from scaling.analytic.communication.transfers import StepSizes, Transfer
from scaling.meshes.shape import MeshShape
from scaling.models.accounting import forward_flops
from scaling.models.accounting.matrices import n_dense_layers
from scaling.parallelism.pipeline import computes_again, pipeline_schedule
from scaling.run import Run


def pipeline_transfers(step: StepSizes) -> Iterator[Transfer]:
    """Transfers of the pipeline; without stages they move nothing."""
    over = step.over("stage")
    stream = step.tokens * step.config.d_model * step.itemsize
    stream /= step.shape.tensor if step.sequence_parallel else 1
    yield Transfer(over, "permute", stream, 2 * step.pipeline.iterations, "stream between stages")
    all_ = step.microbatches * stream
    yield Transfer(over, "reduce-scatter", all_, 1, "stream of the last stage")
    yield Transfer(over, "all-gather", all_, 1, "stream of the last stage")


def recomputed_gathers(step: StepSizes, elements: float) -> tuple[float, float]:
    """Bytes and calls of the gathers, in ticks that are computed again, of a layer's `elements`."""
    spared = step.config.d_ff * step.config.d_model / step.shape.tensor * _is_one_layer(step)
    calls = step.recompute * step.passes(n_dense_layers(step.config))
    return (elements - spared) * step.itemsize, calls


def recomputed_sums(step: StepSizes) -> int:
    """Sums over tensor of a layer in a tick that is computed again: of attention and MLP."""
    return step.recompute * (2 - _is_one_layer(step))


def flops_in_ticks(run: Run, shape: MeshShape, groups: dict[str, float]) -> dict[str, float]:
    """FLOPs of a step as a pipeline executes them: in bubble ticks too, and ticks computed again.

    `groups`: `scaling.models.accounting.Flops.groups` of all devices, without a pipeline.
    """
    if shape.stage == 1:
        return groups
    forward = forward_flops(run.model, run.batch.global_batch, run.batch.seq_len)
    pipeline, again = pipeline_schedule(run, shape), dict(forward.groups)
    if run.model.n_layers == pipeline.stages * pipeline.virtual_stages:
        again["mlp"] -= forward.components.get("down", 0.0)
    twice = computes_again(run, shape)
    in_ticks = lambda name, flops: pipeline.overhead * (flops + again[name] * twice)
    return {name: n if name == "head" else in_ticks(name, n) for name, n in groups.items()}


def _is_one_layer(step: StepSizes) -> bool:
    """Return True if a part is a single layer."""
    return step.config.n_layers == step.pipeline.stages * step.pipeline.virtual_stages
