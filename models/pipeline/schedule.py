"""The microbatch of each pipeline stage in each iteration; iterations have equal length.

    S stages, V virtual stages per stage, M microbatches. The layers are S V parts; stage s has the
    parts v S + s.

    S = 3, V = 1, M = 4                    S = 2, V = 2, M = 4  (a': virtual stage 1)
    iteration  0 1 2 3 4 5                 iteration  0 1 2  3  4 5 6  7  8
    stage 0    a b c d . .                 stage 0    a b a' b' c d c' d' .
    stage 1    . a b c d .                 stage 1    . a b  a' b' c d c' d'
    stage 2    . . a b c d

In each iteration a stage runs one part on one microbatch and sends the result to the next stage;
after the last stage a microbatch returns to stage 0, just in time for the next virtual stage. A
step takes

    M V + S - 1 iterations, of which each stage is idle in S - 1

Several virtual stages take microbatches in groups of S (Megatron-LM's interleaved schedule, arXiv
2104.04473, section 2.2.2, in its order of the passes).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

# Scopes of iterations of 1F1B in which stages only run forward, only backward: each stage is idle
# in as many of its passes, though perhaps in others.
FILL, DRAIN = "fill", "drain"


@dataclass(frozen=True)
class PipelineSchedule:
    """The passes of a pipeline each way, backward from the last virtual stage to the first.

    The pass of an index is the same on all stages, in an iteration later on each next one. Indices
    are numbers, arrays or traced by jax.
    """

    stages: int
    virtual_stages: int  # per stage
    microbatches: int  # a multiple of `stages` if there are several virtual stages

    def __post_init__(self) -> None:
        assert self.virtual_stages == 1 or self.microbatches % self.stages == 0

    @property
    def passes(self) -> int:
        """Forward passes of a stage, through one part of its layers each."""
        return self.microbatches * self.virtual_stages

    @property
    def iterations(self) -> int:
        """Iterations of all stages' passes one way."""
        return self.passes + self.stages - 1

    @property
    def lap(self) -> int:
        """Iterations that a microbatch takes through all layers."""
        return self.stages * self.virtual_stages

    @property
    def turns(self) -> int:
        """Iterations of a step of 1F1B, the first ones forward alone, the last ones backward."""
        return self.iterations + self.lap - 1

    @property
    def overhead(self) -> float:
        """Iterations over those in which a stage has work: 1 without a bubble."""
        return self.iterations / self.passes

    def is_busy(self, index: Any) -> Any:
        """True if there is a pass of this index."""
        return (index >= 0) & (index < self.passes)

    def microbatch_of(self, index: Any) -> Any:
        """The microbatch of a forward pass; the nearest one where there is no pass."""
        index = index.clip(0, self.passes - 1)
        return index // self.lap * self.stages + index % self.stages

    def virtual_stage_of(self, index: Any) -> Any:
        """The virtual stage that a forward pass is through; any where there is no pass."""
        return index // self.stages % self.virtual_stages

    def forward_of(self, index: Any) -> Any:
        """The forward pass that a backward pass undoes: of the same microbatch and part."""
        part = self.virtual_stages - 1 - self.virtual_stage_of(index)
        return index + (2 * part - self.virtual_stages + 1) * self.stages


def slot_count(stages: Any, microbatches: Any) -> Any:
    """Passes of a stage of which 1F1B keeps what they save; numbers or arrays.

    Between its two passes of a microbatch the first stage begins 2 P - 2 others. With fewer
    microbatches none takes the slot of another, and one slot more is there for idle passes.
    With virtual stages pass a lap and the passes of a stage in place of stages and microbatches.
    """
    return np.minimum(2 * stages - 1, microbatches + 1)[()]


def layer_order(layers: int, stages: int, virtual_stages: int) -> np.ndarray:
    """The layer in each row of the stored stack, of which stages hold equal parts: int [layers].

    `layers` is a multiple of `stages` x `virtual_stages`.
    """
    parts = np.arange(layers).reshape(virtual_stages, stages, -1)
    return parts.transpose(1, 0, 2).reshape(-1)
