"""The shapes and options of a mixture of experts, as plain data (no jax)."""

from dataclasses import dataclass
from typing import Literal

from scaling.meshes.errors import InputError, check_fields, check_positive

LARGEST_SIZE = 1 << 20  # so that the bytes of layers x inputs x outputs stay below 2**63


@dataclass(frozen=True)
class Moe:
    """Mixture of experts in place of the MLP."""

    n_experts: int
    experts_per_token: int
    d_ff_expert: int | None = None  # None: the model's d_ff
    n_shared_experts: int = 0  # always active, each of d_ff_expert
    first_dense_layers: int = 0  # leading layers that keep the dense MLP
    capacity_factor: float | None = None  # rows of an expert over an even load; None: no bound
    device_capacity_factor: float | None = None  # of all experts of a device; both None: dropless
    skew: float = 1.0  # busiest expert's load over the mean; 1.0 is balanced
    gate: Literal["softmax", "sigmoid"] = "softmax"  # of the router's logits
    normalize_weights: bool = True  # a token's weights are divided by their sum
    routed_scaling: float = 1.0  # and multiplied by this
    selection_bias: bool = False  # per expert, added to select experts but not to weigh them
    bias_update_rate: float = 0.0  # of that bias per step, against the sign of the excess load
    n_groups: int = 1  # groups of experts, of which a token selects the best first
    groups_per_token: int = 1
    aux_loss: float = 0.0  # weight of the load-balancing loss (models/moe/routing.py)
    z_loss: float = 0.0  # weight of the router's z-loss (likewise)
    best_of_group: int = 2  # largest scores of a group, whose sum is the group's (DeepSeek-V2: 1)
    every: int = 1  # the last of so many layers has experts, the others the dense MLP (Llama 4)
    weighs_inputs: bool = False  # weights multiply the inputs of experts, not results (Llama 4)

    def __post_init__(self) -> None:
        check_fields(self, ("n_experts", "skew", "n_groups", "best_of_group", "every"), 1)
        check_fields(self, ("d_ff_expert",), 1, LARGEST_SIZE)
        check_fields(self, ("n_shared_experts", "first_dense_layers"), 0)
        check_fields(self, ("bias_update_rate", "aux_loss", "z_loss"), 0)  # 0 is off
        check_positive(self, ("routed_scaling", "capacity_factor", "device_capacity_factor"))
        if self.capacity_factor is not None and self.device_capacity_factor is not None:
            raise InputError(
                f"capacity_factor={self.capacity_factor} bounds each expert and "
                f"device_capacity_factor={self.device_capacity_factor} those of a device together: "
                "set one of them to null"
            )
        if not 1 <= self.experts_per_token <= self.n_experts:
            raise InputError(
                f"experts_per_token={self.experts_per_token} must lie between 1 and "
                f"n_experts={self.n_experts}"
            )
        if self.bias_update_rate and not self.selection_bias:
            raise InputError(
                f"bias_update_rate={self.bias_update_rate} has no bias to update; "
                "set selection_bias true"
            )
        if self.first_dense_layers and self.every > 1:
            raise InputError(
                f"first_dense_layers={self.first_dense_layers} and every={self.every} both say "
                "which layers have experts; give one of them"
            )
        if self.n_experts % self.n_groups:
            raise InputError(
                f"n_experts={self.n_experts} is not divisible by n_groups={self.n_groups}"
            )
        if not 1 <= self.groups_per_token <= self.n_groups:
            raise InputError(
                f"groups_per_token={self.groups_per_token} must lie between 1 and "
                f"n_groups={self.n_groups}"
            )
        selectable = self.groups_per_token * self.n_experts // self.n_groups
        if self.experts_per_token > selectable:
            raise InputError(
                f"experts_per_token={self.experts_per_token} exceeds the {selectable} experts "
                f"of groups_per_token={self.groups_per_token}; raise groups_per_token"
            )
