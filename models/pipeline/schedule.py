"""Which pipeline stage works on which microbatch, and when: ticks of equal length.

    S stages, R rounds, M microbatches. The layers are S R parts; stage s has the parts r S + s.

    S = 3, R = 1, M = 4  (gpipe)           S = 2, R = 2, M = 4  (circular; a' is round 1)
    tick     0 1 2 3 4 5                   tick     0 1 2  3  4 5 6  7  8
    stage 0  a b c d . .                   stage 0  a b a' b' c d c' d' .
    stage 1  . a b c d .                   stage 1  . a b  a' b' c d c' d'
    stage 2  . . a b c d

In each tick a stage does one part for one microbatch and hands the result on to the next stage;
after its last part of a round it comes back to stage 0, just in time. So a step takes

    M R + S - 1 ticks, of which each stage is idle in S - 1

Several rounds take microbatches in groups of S (Megatron-LM's interleaved schedule, arXiv
2104.04473, section 2.2.2, in its order of the forward pass).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Ticks:
    """A forward pass of the pipeline; the backward pass is the same in reverse."""

    stages: int
    rounds: int
    microbatches: int  # a multiple of `stages` where there are several rounds

    def __post_init__(self) -> None:
        assert self.rounds == 1 or self.microbatches % self.stages == 0

    @property
    def total(self) -> int:
        """Ticks of one pass."""
        return self.microbatches * self.rounds + self.stages - 1

    @property
    def overhead(self) -> float:
        """Ticks over those in which a stage has work: 1 without a bubble."""
        return self.total / (self.microbatches * self.rounds)

    @property
    def group(self) -> int:
        """Microbatches that go through all rounds together."""
        return 1 if self.rounds == 1 else self.stages

    @property
    def entries(self) -> np.ndarray:
        """The tick in which each microbatch enters stage 0: int [microbatches]."""
        group, place = np.divmod(np.arange(self.microbatches), self.group)
        return group * self.group * self.rounds + place

    @property
    def exits(self) -> np.ndarray:
        """The tick after which each microbatch leaves the last stage: int [microbatches]."""
        return self.entries + self.rounds * self.stages - 1  # of parts, one after the other

    @property
    def enters(self) -> np.ndarray:
        """Whether stage 0 takes a new microbatch, not one that comes back: bool [total]."""
        found = np.zeros(self.total, bool)
        found[self.entries] = True
        return found

    def works(self, tick: Any, stage: Any) -> Any:
        """Whether a stage has work. Numbers, arrays or traced by jax."""
        return (tick >= stage) & (tick < stage + self.microbatches * self.rounds)

    def round_of(self, tick: Any, stage: Any) -> Any:
        """The round that a stage is in; of idle ticks any. Numbers, arrays or traced by jax."""
        return (tick + self.stages * self.rounds - stage) // self.stages % self.rounds


def layer_order(layers: int, stages: int, rounds: int) -> np.ndarray:
    """The layer in each row of the stored stack, of which stages hold equal parts: int [layers].

    Args:
        layers: a multiple of `stages` x `rounds`.
    """
    parts = np.arange(layers).reshape(rounds, stages, -1)
    return parts.transpose(1, 0, 2).reshape(-1)
