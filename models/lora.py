"""Low-rank adapters (LoRA, arXiv 2106.09685) as plain data: of which matrices, and how large.

    y = x W + (alpha / rank) x A B        W stays as it is; A [inputs, rank], B [rank, outputs]

B begins at zero, so that the first step is the model's own. Imports no jax.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from scaling.meshes.errors import InputError, check_range
from scaling.models.accounting.matrices import (
    Shape,
    attention_matrices,
    expert_width,
    mlp_matrices,
    n_moe_layers,
)
from scaling.models.config import ModelConfig

# The arrays of a block by the names of their matrices in `models.accounting.matrices`.
ATTENTION_ARRAYS = {
    **{"q": "query_DNK", "k": "key_DMK", "v": "value_DMK", "o": "out_NKD"},
    **{"q_a": "query_a_DR", "q_b": "query_b_RNK", "kv_a": "kv_a_DR", "kv_b": "kv_b_RNK"},
}
MLP_ARRAYS = {"up": "up_DF", "gate": "gate_DF", "down": "down_FD"}
# ... and as targets of adapters
TARGETS = {k: name.rpartition("_")[0] for k, name in (ATTENTION_ARRAYS | MLP_ARRAYS).items()}


@dataclass(frozen=True)
class Lora:
    """Adapters beside some matrices of every layer."""

    rank: int = 8
    alpha: float = 16.0
    targets: tuple[str, ...] = ("query", "value")  # the paper's choice, section 7.1

    def __post_init__(self) -> None:
        check_range("rank", self.rank, 1)
        if not 0 < self.alpha < math.inf:
            raise InputError(f"alpha={self.alpha} must be above 0; at 0 adapters do nothing")
        object.__setattr__(self, "targets", tuple(self.targets))

    @property
    def scale(self) -> float:
        """Factor of the adapters' results."""
        return self.alpha / self.rank


def adaptable(config: ModelConfig) -> Mapping[str, Shape]:
    """Inputs and outputs of the matrices that can have adapters, by the name of a target.

    Those of the attention and of MLPs, with experts those of each routed one; router, shared
    experts, tables and head have none.
    """
    mlp = mlp_matrices(config, expert_width(config) if config.moe else config.d_ff)
    return {TARGETS[name]: shape for name, shape in (attention_matrices(config) | mlp).items()}


def check_lora(lora: Lora, config: ModelConfig) -> None:
    """Raise InputError for targets that the model does not have, or a rank above a matrix's."""
    known = adaptable(config)
    unknown = [name for name in lora.targets if name not in known]
    if unknown or not lora.targets:
        what = f"no matrix {', '.join(unknown)} in this model" if unknown else "none is named"
        experts = "; routers and shared experts have no adapters" if config.moe else ""
        raise InputError(f"train.lora.targets: {what}; there are {', '.join(known)}{experts}")
    for name in lora.targets:
        if lora.rank > min(known[name]):
            inputs, outputs = known[name]
            raise InputError(
                f"train.lora.rank={lora.rank} is above the rank of {name}, {inputs:,} x "
                f"{outputs:,}; use at most {min(known[name])}"
            )


def of_experts(lora: Lora | None, config: ModelConfig) -> bool:
    """True if routed experts have adapters."""
    names = {TARGETS[name] for name in MLP_ARRAYS}
    return bool(lora and config.moe and names & set(lora.targets))


def adapter_parameters(lora: Lora, config: ModelConfig, used: bool = False) -> int:
    """Numbers in all adapters of the model; `used`: those that a token passes."""
    shapes, of_mlp = adaptable(config), {TARGETS[name] for name in MLP_ARRAYS}
    size = lambda shapes, names: lora.rank * sum(sum(shapes[n]) for n in set(names))
    mlp = of_mlp & set(lora.targets)
    total = config.n_layers * size(shapes, set(lora.targets) - mlp)
    sparse = n_moe_layers(config)
    dense = {TARGETS[name]: shape for name, shape in mlp_matrices(config, config.d_ff).items()}
    total += (config.n_layers - sparse) * size(dense, mlp)
    if config.moe:
        each = config.moe.experts_per_token if used else config.moe.n_experts
        total += sparse * each * size(shapes, mlp)
    return total
