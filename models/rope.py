"""How rotary positions are stretched for longer sequences, as plain data (no jax)."""

import math
from dataclasses import dataclass

from scaling.meshes.errors import InputError, check_fields, check_positive


@dataclass(frozen=True)
class RopeScaling:
    """Llama 3.1's stretch of rotary wavelengths (Hugging Face `rope_type: llama3`)."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_positions: int

    def __post_init__(self) -> None:
        check_fields(self, ("factor", "original_max_positions"), 1)
        if not 0 < self.low_freq_factor <= self.high_freq_factor:
            raise InputError(
                f"low_freq_factor={self.low_freq_factor} must be positive and at most "
                f"high_freq_factor={self.high_freq_factor}"
            )


@dataclass(frozen=True)
class Yarn:
    """YaRN (arXiv 2309.00071): long wavelengths stretched, short ones kept, scores sharpened.

    Names, defaults and meanings are Hugging Face's (`rope_type: yarn`).
    """

    factor: float  # of the longest sequence over that before
    original_max_positions: int
    beta_fast: float = 32.0  # turns within the original sequence from which a pair is kept
    beta_slow: float = 1.0  # turns below which it is stretched by the whole factor
    attention_factor: float | None = None  # of rotated q and k; None: follows from the others
    mscale: float = 0.0  # 0: not given
    mscale_all_dim: float = 0.0  # 0: not given; with latent attention it also scales the scores
    truncate: bool = True  # the ramp between the two begins and ends at whole pairs

    def __post_init__(self) -> None:
        check_fields(self, ("factor", "original_max_positions"), 1)
        check_fields(self, ("mscale", "mscale_all_dim"), 0)
        if not 0 < self.beta_slow < self.beta_fast:
            raise InputError(
                f"beta_slow={self.beta_slow} must be positive and below beta_fast={self.beta_fast}"
            )
        check_positive(self, ("attention_factor",))


@dataclass(frozen=True)
class LongRope:
    """LongRoPE (arXiv 2402.13753): each pair of channels has a stretch of its own.

    Names and meanings are Hugging Face's (`rope_type: longrope`).
    """

    short_factor: tuple[float, ...]  # of each pair, in sequences up to the original length
    long_factor: tuple[float, ...]  # and in longer ones
    original_max_positions: int
    factor: float = 1.0  # of the longest sequence over the original: sets the scale of q and k
    attention_factor: float | None = None  # that scale; None: follows from the others

    def __post_init__(self) -> None:
        check_fields(self, ("original_max_positions", "factor"), 1)
        check_positive(self, ("attention_factor",))
        if not self.short_factor or len(self.short_factor) != len(self.long_factor):
            raise InputError(
                f"longrope has {len(self.short_factor)} short and {len(self.long_factor)} long "
                "factors; give one of each for every pair of rotated channels"
            )
        if not all(0 < factor < math.inf for factor in (*self.short_factor, *self.long_factor)):
            raise InputError("the factors of longrope must be positive numbers")
