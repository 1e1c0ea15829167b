"""Parameters and FLOPs of a model, from its configuration alone (no jax)."""

from scaling.models.accounting.context import exchanged_bytes, padding, scores_share
from scaling.models.accounting.flops import (
    Flops,
    forward_flops,
    hardware_flops,
    model_flops,
    train_flops,
)
from scaling.models.accounting.parameters import Parameters, block_parameters, count_parameters

__all__ = [
    "Flops",
    "Parameters",
    "block_parameters",
    "count_parameters",
    "exchanged_bytes",
    "forward_flops",
    "hardware_flops",
    "model_flops",
    "padding",
    "scores_share",
    "train_flops",
]
