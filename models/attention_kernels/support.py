"""Which heads cuDNN's flash attention takes on which NVIDIA GPU, in bf16 (no jax).

    compute capability        keys and values, multiples of 8
    8.x  Ampere, Ada          equally long, up to 128
    9.x  Hopper               up to 256 each
    10.x Blackwell            up to 128 each, or keys of 192 with values of 128
    else                      equally long, up to 128

A training step needs the backward kernel, which takes less than the forward one: cuDNN frontend's
docs/operations/Attention.md (support matrix of cuDNN 9.18.1) and its checks of that kernel in
include/cudnn_frontend/node/scaled_dot_product_flash_attention.h (read 8 May 2026); that unequal
lengths need Hopper, and cuDNN 9.10, is jax's check (0.10.2). Heads of 256 on Blackwell stand in the
matrix, for cuDNN 9.23 and later, but the checks refuse them.
"""

from scaling.meshes.errors import InputError
from scaling.models.accounting.matrices import query_key_dim, value_dim
from scaling.models.config import ModelConfig

AMPERE, HOPPER, BLACKWELL = 8, 9, 10  # major compute capabilities
LATENT = (192, 128)  # DeepSeek-V2's and -V3's keys and values
UNEQUAL_CUDNN = 91002  # 9.10.2: the kernels of 9.10.0 and 9.10.1 are refused by the checks above


def has_flash(config: ModelConfig, capability: float) -> bool:
    """True if an NVIDIA GPU of this compute capability (0.0: another device) has such a kernel."""
    return int(capability) >= AMPERE and not lacks_flash(config, capability)


def lacks_flash(config: ModelConfig, capability: float) -> str:
    """Why an NVIDIA GPU has no kernel of this model's attention; "" where it has one."""
    heads, major = (query_key_dim(config), value_dim(config)), int(capability)
    if config.score_softcap:  # jax 0.10.2 to 0.12 hand no function of the scores to cuDNN
        return f"cuDNN's flash attention has no softcap (score_softcap={config.score_softcap:g})"
    longest = 256 if major == HOPPER else 128
    unequal = heads[0] == heads[1] or major in (HOPPER, BLACKWELL)
    fits = (max(heads) <= longest and unequal) or (major == BLACKWELL and heads == LATENT)
    if fits and not any(length % 8 for length in heads):
        return ""
    return (
        f"cuDNN's flash attention has no keys of {heads[0]} with values of {heads[1]} on compute "
        f"capability {capability}"
    )


def check_cudnn(config: ModelConfig, version: int) -> None:
    """Raise InputError if an installed cuDNN, 91002 for 9.10.2, lacks the kernel of such heads."""
    keys, values = query_key_dim(config), value_dim(config)
    if keys != values and version < UNEQUAL_CUDNN:
        raise InputError(
            f"cuDNN {_written(version)} has no attention with keys of {keys} and values of "
            f"{values}, which begins with {_written(UNEQUAL_CUDNN)}; install a later nvidia-cudnn, "
            "or --set attention=unfused"
        )


def _written(version: int) -> str:
    return f"{version // 10_000}.{version // 100 % 100}.{version % 100}"
