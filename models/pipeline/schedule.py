"""The microbatch of each pipeline stage in each iteration; iterations have equal length.

    S stages, V virtual stages per stage, M microbatches. The layers are S V parts; stage s has the
    parts v S + s.

    S = 3, V = 1, M = 4  (gpipe)           S = 2, V = 2, M = 4  (circular; a': virtual stage 1)
    iteration  0 1 2 3 4 5                 iteration  0 1 2  3  4 5 6  7  8
    stage 0    a b c d . .                 stage 0    a b a' b' c d c' d' .
    stage 1    . a b c d .                 stage 1    . a b  a' b' c d c' d'
    stage 2    . . a b c d

In each iteration a stage runs one part on one microbatch and sends the result to the next stage;
after the last stage a microbatch returns to stage 0, just in time for the next virtual stage. A
step takes

    M V + S - 1 iterations, of which each stage is idle in S - 1

Several virtual stages take microbatches in groups of S (Megatron-LM's interleaved schedule, arXiv
2104.04473, section 2.2.2, in its order of the forward pass).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

# Scopes of iterations of 1F1B in which stages only run forward, only backward: each stage is idle
# in as many of its passes, though perhaps in others.
FILL, DRAIN = "fill", "drain"


@dataclass(frozen=True)
class PipelineSchedule:
    """A forward pass of the pipeline; the backward pass is the same in reverse."""

    stages: int
    virtual_stages: int  # per stage
    microbatches: int  # a multiple of `stages` if there are several virtual stages

    def __post_init__(self) -> None:
        assert self.virtual_stages == 1 or self.microbatches % self.stages == 0

    @property
    def iterations(self) -> int:
        """Iterations of one pass."""
        return self.microbatches * self.virtual_stages + self.stages - 1

    @property
    def overhead(self) -> float:
        """Iterations over those in which a stage has work: 1 without a bubble."""
        return self.iterations / (self.microbatches * self.virtual_stages)

    @property
    def group(self) -> int:
        """Microbatches that pass all virtual stages together."""
        return 1 if self.virtual_stages == 1 else self.stages

    @property
    def entries(self) -> np.ndarray:
        """The iteration in which each microbatch enters stage 0: int [microbatches]."""
        group, place = np.divmod(np.arange(self.microbatches), self.group)
        return group * self.group * self.virtual_stages + place

    @property
    def enters(self) -> np.ndarray:
        """True where stage 0 takes a new microbatch, not a returning one: bool [iterations]."""
        is_new = np.zeros(self.iterations, bool)
        is_new[self.entries] = True
        return is_new

    def is_busy(self, iteration: Any, stage: Any) -> Any:
        """True if a stage has work. Numbers, arrays or traced by jax."""
        busy = self.microbatches * self.virtual_stages
        return (iteration >= stage) & (iteration < stage + busy)

    def virtual_stage_at(self, iteration: Any, stage: Any) -> Any:
        """The virtual stage that a stage runs (any if it is idle). Numbers, arrays or traced."""
        passed = iteration + self.stages * self.virtual_stages - stage
        return passed // self.stages % self.virtual_stages


def slot_count(stages: Any, microbatches: Any) -> Any:
    """Passes of a stage of which 1F1B keeps what they save; numbers or arrays.

    Between its two passes of a microbatch the first stage begins 2 P - 2 others. With fewer
    microbatches none takes the slot of another, and one slot more is there for idle passes.
    """
    return np.minimum(2 * stages - 1, microbatches + 1)[()]


def layer_order(layers: int, stages: int, virtual_stages: int) -> np.ndarray:
    """The layer in each row of the stored stack, of which stages hold equal parts: int [layers].

    `layers` is a multiple of `stages` x `virtual_stages`.
    """
    parts = np.arange(layers).reshape(virtual_stages, stages, -1)
    return parts.transpose(1, 0, 2).reshape(-1)
