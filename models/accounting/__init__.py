"""Parameters, FLOPs and activation bytes of a model, from its configuration alone (no jax)."""

from scaling.models.accounting.activations import (
    activation_bytes,
    activation_tensors,
    kv_cache_bytes,
)
from scaling.models.accounting.context import exchanged_bytes, scores_share
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
    "activation_bytes",
    "activation_tensors",
    "block_parameters",
    "count_parameters",
    "exchanged_bytes",
    "forward_flops",
    "hardware_flops",
    "kv_cache_bytes",
    "model_flops",
    "scores_share",
    "train_flops",
]
