"""How many layers the stages of a pipeline have, and compute again, as the software deals them out.

    layers   as many to each stage, rounded up; the last one has the output head besides
    cost     nanotron: a stage takes layer after layer until parameters so far exceed its share, the
             output head's among them (huggingface/nanotron @ 67c5ebb, src/nanotron/models/base.py,
             build_model: thresholds). The first stages have most layers, the last one the head and
             what is left, in long pipelines no layer at all
    ends     `pipeline.layers` by-cost: the slowest stage takes least; the last one has as many as
             leave it no slower beside the output head, the first one, which keeps activations of
             most microbatches, what those between leave (NVIDIA/Megatron-LM, megatron/training/
             arguments.py: --decoder-first-pipeline-num-layers, --decoder-last-pipeline-num-layers)

By remat "full" a stage computes again

    all      its layers
    alike    as many as any other stage, of each virtual stage (Megatron-LM, arguments.py:
             --recompute-method block, --recompute-num-layers)
    each     so many, and fewer in later stages, which have fewer microbatches in flight
             (NVIDIA/NeMo 1, megatron/transformer.py: activations_checkpoint_num_layers less
             int(stage x activations_checkpoint_layers_per_pipeline))

The slowest stage decides how long a microbatch takes, the fullest one what has to be stored.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from scaling.meshes.shape import AxisSize
from scaling.models.accounting.matrices import stacks
from scaling.models.config import ModelConfig
from scaling.program.ir import Number

Dealt = Literal["layers", "cost", "ends"]
Recomputes = Literal["all", "alike", "each"]
# Of a layer's forward and backward pass: a forward pass (arXiv 2205.05198, section 5).
AGAIN = 1 / 3
SAME = 1e-9  # of a layer's time: less than stages differ by


@dataclass(frozen=True)
class Stages:
    """Figures of a pipeline: numbers, or arrays [configurations]."""

    fullest: AxisSize  # layers of the stage that has most
    slowest: AxisSize  # layers of the stage that takes longest
    head: AxisSize  # 1 where that one has the output head, else 0
    again: Number = 0  # layers that it computes again by remat "full", where that is not all
    all_again: Number = 0  # that all stages do
    # [2, stages, configurations]: layers, and those that are computed again, of each stage; None:
    # all are as the fullest.
    table: np.ndarray | None = None


def stages_of(
    config: ModelConfig,
    seq_len: int,
    stages: AxisSize,
    dealt: Dealt,
    host: Number = 0.0,
    again: Number = np.inf,
    fewer: Number = 0.0,
    repeats: Number = 0,
) -> Stages:
    """The layers of so many stages.

    Args:
        config, seq_len: of the model.
        stages: of the pipeline.
        dealt: see the module.
        host: parameters whose products take as long as the host takes for a layer, which takes no
            less.
        again: layers of the first stage that are computed again; infinite: all, of every stage.
        fewer: how many fewer each next stage computes again.
        repeats: 1 where what is computed again is a layer's whole forward pass, else 0.
    """
    layers = config.n_layers
    even = -(-layers // stages)
    is_partial = bool(np.any(np.isfinite(again)))
    if dealt == "layers" and not is_partial:
        return Stages(even, even, 1 * (layers % stages == 0))
    own = sum(stack.matrices * stack.size for stack in stacks(config)) / layers  # parameters
    head = config.vocab_size * config.d_model
    # Half of the scores of causal attention take as long as so many parameters.
    of_layer = own + seq_len * config.n_heads * config.head_dim
    if dealt != "cost":
        longer = 1 + AGAIN * repeats * np.minimum(again / even, 1)
        ends = lighter_ends(layers, stages, head / of_layer / longer)
        found = ends if dealt == "ends" else (even, even)
        return _in_table(layers, stages, found, head / of_layer, again, fewer, AGAIN * repeats)
    share = (layers + head / own) / stages  # of the costs, that of a layer being 1
    # The first layer with which the costs so far exceed a stage's share ends it.
    ends_at = lambda stage: np.minimum(np.floor(share * stage).astype(int) + 1, layers)
    fullest = ends_at(1)
    before = np.minimum(np.ceil(layers / share) - 1, stages - 1)  # stages that end with a layer
    left = layers - np.where(before > 0, ends_at(before), 0)  # in that of the head
    slow = np.maximum(of_layer, host)
    has_head = np.greater(left * slow + head, fullest * slow)
    return Stages(
        _unless_one(stages, fullest, layers),
        _unless_one(stages, np.where(has_head, left, fullest), layers),
        _unless_one(stages, 1 * has_head, 1),
    )


def lighter_ends(layers: int, stages: AxisSize, head: Number) -> tuple[AxisSize, AxisSize]:
    """Layers of the first stage and of those between; the last one has what is left.

    Args:
        layers: of the model.
        stages: of the pipeline, at most as many.
        head: time of the output head over that of a layer.
    """
    between = np.arange(1, layers + 1)[:, None]  # [layers, configurations]
    both = layers - between * (np.atleast_1d(stages) - 2)  # of the first and the last
    least = between * np.greater(stages, 2)
    time = lambda last: np.maximum(np.maximum(both - last, least), last + head)
    # As many as those between leave room for; or half of what both have with the head.
    half = (both - head) / 2
    tries = np.stack(np.broadcast_arrays(np.floor(between - head), np.ceil(half), np.floor(half)))
    tries = np.clip(tries, 1, np.maximum(both - 1, 1))
    last = np.take_along_axis(tries, np.argmin(time(tries), axis=0)[None], axis=0)[0]
    slowest = time(last)
    # Of equal ones that of least activations: as many microbatches as stages from one on.
    kept = np.maximum(stages * (both - last), (stages - 1) * least)
    best = np.argmin(np.where(both > 1, slowest + SAME * kept, np.inf), axis=0)
    shape = np.broadcast_shapes(np.shape(stages), np.shape(head))
    of = lambda figures: np.broadcast_to(figures, slowest.shape)
    pick = lambda figures: np.take_along_axis(of(figures), best[None], axis=0).reshape(shape)
    first, most = pick(both - last).astype(int), pick(between)
    return _unless_one(stages, first, layers), _unless_one(stages, most, layers)


def _in_table(
    layers: int,
    stages: AxisSize,
    dealt: tuple[AxisSize, AxisSize],
    head: float,
    again: Number,
    fewer: Number,
    longer: Number,
) -> Stages:
    """Every stage by itself.

    Args:
        layers, stages: of the model, of the pipeline.
        dealt: layers of the first stage and of those between.
        head: time of the output head over that of a layer.
        again, fewer: as of `stages_of`.
        longer: time of a layer that is computed again over that of one that is not, less one.
    """
    every = (stages, *dealt, again, fewer, longer)
    shape = np.broadcast_shapes(*map(np.shape, every))
    rows = (np.broadcast_to(x, shape).reshape(-1).astype(float) for x in every)
    count, first, between, most, less, more = rows
    number = np.arange(int(count.max()))[:, None]
    last = np.where(count > 1, layers - first - (count - 2) * between, first)
    own = np.where(number == 0, first, np.where(number == count - 1, last, between))
    own = np.where(number < count, np.maximum(own, 0.0), 0.0)
    kept = np.where(np.isfinite(most), np.floor(number * less), 0.0)
    again_of = np.clip(most - kept, 0.0, own)
    time = own + more * again_of + head * (number == count - 1) - 1.0 * (number >= count)
    slowest = np.argmax(time, axis=0)
    pick = lambda rows: np.take_along_axis(rows, slowest[None], axis=0).reshape(shape)[()]
    flat = lambda row: np.reshape(row, shape)[()]
    return Stages(
        flat(own.max(axis=0).astype(int)),
        pick(own.astype(int)),
        flat((slowest == count - 1).astype(int)),
        pick(again_of),
        flat(again_of.sum(axis=0)),
        np.stack([own, again_of]),
    )


def _unless_one(stages: AxisSize, some: Any, one: int) -> AxisSize:
    """`some` where there are several stages, `one` where there is one."""
    found: AxisSize = np.where(np.equal(stages, 1), one, some)[()]
    return found
