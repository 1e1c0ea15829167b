"""How many layers the stages of a pipeline have, as the software deals them out.

    layers   as many to each stage, rounded up; the last one has the output head besides
    cost     nanotron: a stage takes layer after layer until parameters so far exceed its share, the
             output head's among them (huggingface/nanotron @ 67c5ebb, src/nanotron/models/base.py,
             build_model: thresholds). The first stages have most layers, the last one the head and
             what is left, in long pipelines no layer at all

The slowest stage decides how long a microbatch takes, the fullest one what has to be stored.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from scaling.meshes.shape import AxisSize
from scaling.models.accounting.matrices import stacks
from scaling.models.config import ModelConfig

Dealt = Literal["layers", "cost"]


@dataclass(frozen=True)
class Stages:
    """Figures of a pipeline: numbers, or arrays [configurations]."""

    fullest: AxisSize  # layers of the stage that has most
    slowest: AxisSize  # layers of the stage that takes longest
    head: AxisSize  # 1 where that one has the output head, else 0


def stages_of(config: ModelConfig, seq_len: int, stages: AxisSize, dealt: Dealt) -> Stages:
    """The layers of so many stages."""
    layers = config.n_layers
    even = -(-layers // stages)
    if dealt == "layers":
        return Stages(even, even, 1 * (layers % stages == 0))
    own = sum(stack.matrices * stack.size for stack in stacks(config)) / layers  # parameters
    head = config.vocab_size * config.d_model
    share = (layers + head / own) / stages  # of the costs, that of a layer being 1
    # The first layer with which the costs so far exceed a stage's share ends it.
    ends = lambda stage: np.minimum(np.floor(share * stage).astype(int) + 1, layers)
    fullest = ends(1)
    before = np.minimum(np.ceil(layers / share) - 1, stages - 1)  # stages that end with a layer
    left = layers - np.where(before > 0, ends(before), 0)  # in that of the head
    # Half of the scores of causal attention take as long as so many parameters.
    of_layer = own + seq_len * config.n_heads * config.head_dim
    has_head = np.greater(left * of_layer + head, fullest * of_layer)
    return Stages(
        _unless_one(stages, fullest, layers),
        _unless_one(stages, np.where(has_head, left, fullest), layers),
        _unless_one(stages, 1 * has_head, 1),
    )


def _unless_one(stages: AxisSize, some: Any, one: int) -> AxisSize:
    """`some` where there are several stages, `one` where there is one."""
    found: AxisSize = np.where(np.equal(stages, 1), one, some)[()]
    return found
