"""Low-rank adapters (LoRA, arXiv 2106.09685) as plain data: of which matrices, and how large.

    y = x W + (alpha / rank) x A B        W stays as it is; A [inputs, rank], B [rank, outputs]

B begins at zero, so that the first step is the model's own. Imports no jax.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from scaling.meshes.errors import InputError, check_range
from scaling.models.accounting.matrices import Shape, attention_matrices, mlp_matrices
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

    Those of the attention and of dense MLPs; experts, router, tables and head have none.
    """
    mlp = {} if config.moe else mlp_matrices(config, config.d_ff)
    return {TARGETS[name]: shape for name, shape in (attention_matrices(config) | mlp).items()}


def check_lora(lora: Lora, config: ModelConfig) -> None:
    """Raise InputError for targets that the model does not have, or a rank above a matrix's."""
    known = adaptable(config)
    unknown = [name for name in lora.targets if name not in known]
    if unknown or not lora.targets:
        what = f"no matrix {', '.join(unknown)} in this model" if unknown else "none is named"
        experts = "; experts and routers have no adapters" if config.moe else ""
        raise InputError(f"train.lora.targets: {what}; there are {', '.join(known)}{experts}")
    for name in lora.targets:
        if lora.rank > min(known[name]):
            inputs, outputs = known[name]
            raise InputError(
                f"train.lora.rank={lora.rank} is above the rank of {name}, {inputs:,} x "
                f"{outputs:,}; use at most {min(known[name])}"
            )


def adapter_parameters(lora: Lora, config: ModelConfig) -> int:
    """Numbers in all adapters of the model."""
    shapes = adaptable(config)
    return config.n_layers * sum(lora.rank * sum(shapes[name]) for name in set(lora.targets))
