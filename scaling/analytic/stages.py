"""How many layers the stages of a pipeline have, as the software deals them out.

    layers   as many to each stage, rounded up; the last one has the output head besides
    cost     nanotron: a stage takes layer after layer until parameters so far exceed its share, the
             output head's among them (huggingface/nanotron @ 67c5ebb, src/nanotron/models/base.py,
             build_model: thresholds). The first stages have most layers, the last one the head and
             what is left, in long pipelines no layer at all
    head     `pipeline.layers` by-cost: the last stage has so few layers beside the output head that
             the slowest takes least (NVIDIA/Megatron-LM, core/transformer/transformer_config.py:
             num_layers_in_last_pipeline_stage); the others have as many, rounded up

The slowest stage decides how long a microbatch takes, the fullest one what has to be stored.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from scaling.meshes.shape import AxisSize
from scaling.models.accounting.matrices import stacks
from scaling.models.config import ModelConfig
from scaling.program.ir import Number

Dealt = Literal["layers", "cost", "head"]


@dataclass(frozen=True)
class Stages:
    """Figures of a pipeline: numbers, or arrays [configurations]."""

    fullest: AxisSize  # layers of the stage that has most
    slowest: AxisSize  # layers of the stage that takes longest
    head: AxisSize  # 1 where that one has the output head, else 0


def stages_of(
    config: ModelConfig, seq_len: int, stages: AxisSize, dealt: Dealt, host: Number = 0.0
) -> Stages:
    """The layers of so many stages.

    Args:
        host: parameters whose products take as long as the host takes for a layer, which takes no
            less.
    """
    layers = config.n_layers
    even = -(-layers // stages)
    if dealt == "layers":
        return Stages(even, even, 1 * (layers % stages == 0))
    own = sum(stack.matrices * stack.size for stack in stacks(config)) / layers  # parameters
    head = config.vocab_size * config.d_model
    # Half of the scores of causal attention take as long as so many parameters.
    of_layer = own + seq_len * config.n_heads * config.head_dim
    if dealt == "head":
        return _lighter_last(layers, stages, head / of_layer)
    share = (layers + head / own) / stages  # of the costs, that of a layer being 1
    # The first layer with which the costs so far exceed a stage's share ends it.
    ends = lambda stage: np.minimum(np.floor(share * stage).astype(int) + 1, layers)
    fullest = ends(1)
    before = np.minimum(np.ceil(layers / share) - 1, stages - 1)  # stages that end with a layer
    left = layers - np.where(before > 0, ends(before), 0)  # in that of the head
    slow = np.maximum(of_layer, host)
    has_head = np.greater(left * slow + head, fullest * slow)
    return Stages(
        _unless_one(stages, fullest, layers),
        _unless_one(stages, np.where(has_head, left, fullest), layers),
        _unless_one(stages, 1 * has_head, 1),
    )


def _lighter_last(layers: int, stages: AxisSize, head: float) -> Stages:
    """The layers where the last stage has the fewest with which no stage takes longer.

    The slowest stage takes least where a layer more or less on the last one no longer helps.

    Args:
        layers: of the model.
        stages: of the pipeline.
        head: time of the output head over that of a layer.
    """
    last = np.arange(1, layers + 1)[:, None]  # layers of the last stage: [layers, configurations]
    others = -(-(layers - last) // np.maximum(np.atleast_1d(stages) - 1, 1))
    slowest = np.maximum(others, last + head)
    best = np.argmin(np.where(others > 0, slowest, np.inf), axis=0)
    of = lambda figures: np.broadcast_to(figures, slowest.shape)[best, np.arange(best.size)]
    most, own = (of(x).reshape(np.shape(stages))[()] for x in (others, last))
    has_head = np.greater(own + head, most)
    return Stages(
        _unless_one(stages, np.maximum(most, own), layers),
        _unless_one(stages, np.where(has_head, own, most), layers),
        _unless_one(stages, 1 * has_head, 1),
    )


def _unless_one(stages: AxisSize, some: Any, one: int) -> AxisSize:
    """`some` where there are several stages, `one` where there is one."""
    found: AxisSize = np.where(np.equal(stages, 1), one, some)[()]
    return found
