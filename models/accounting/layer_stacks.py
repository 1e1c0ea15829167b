"""The matrices of the layers as they are stored: one array for each matrix of all layers."""

from dataclasses import dataclass

from scaling.models.accounting.matrices import (
    attention_matrices,
    compressing_matrices,
    expert_width,
    mlp_matrices,
    n_dense_layers,
    n_moe_layers,
)
from scaling.models.config import ModelConfig


@dataclass(frozen=True)
class Stack:
    """Equal matrices of the layers, stored as one array."""

    name: str
    layers: int
    experts: int | None  # per layer; None: not a matrix of experts
    rows: int  # sharded over fsdp: d_model, or a latent
    columns: int
    over_tensor: bool  # True if tensor shards the columns

    @property
    def matrices(self) -> int:
        """Number of matrices."""
        return self.layers * (self.experts or 1)


def stacks(config: ModelConfig) -> list[Stack]:
    """All matrices of the layers; leading dense layers have their own stacks."""
    result = []
    for layers, moe in ((n_dense_layers(config), False), (n_moe_layers(config), True)):
        if layers:
            result += _attention_stacks(config, layers)
            result += _expert_stacks(config, layers) if moe else _mlp_stacks(config, layers)
    return result


def _attention_stacks(config: ModelConfig, layers: int) -> list[Stack]:
    latents = compressing_matrices(config)
    result = []
    for name, (inputs, outputs) in attention_matrices(config).items():
        rows, columns = (outputs, inputs) if name == "o" else (inputs, outputs)
        result.append(Stack(name, layers, None, rows, columns, name not in latents))
    return result


def _mlp_stacks(config: ModelConfig, layers: int) -> list[Stack]:
    names = mlp_matrices(config, config.d_ff)
    return [Stack(name, layers, None, config.d_model, config.d_ff, True) for name in names]


def _expert_stacks(config: ModelConfig, layers: int) -> list[Stack]:
    """The router, the experts, and the shared ones side by side as one MLP."""
    moe, D, width = config.moe, config.d_model, expert_width(config)
    assert moe is not None
    names, shared = mlp_matrices(config, width), moe.n_shared_experts * width
    result = [Stack("router", layers, None, D, moe.n_experts, False)]
    result += [Stack(f"expert_{name}", layers, moe.n_experts, D, width, True) for name in names]
    if shared:
        result += [Stack(f"shared_{name}", layers, None, D, shared, True) for name in names]
    return result
