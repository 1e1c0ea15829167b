"""FLOPs of matrix products by component: those executed, and those that MFU credits.

    forward = 2 x tokens x inputs x outputs per matrix, 2 x heads x dim per query-key pair
    train   = 3 x forward + recomputation        (the gradient of a product is two products)

Norms, activations, rotations, softmax and the embedding look-up are no matrix products and are
not counted. Batch and sequence may be ints (the result is exact) or numpy arrays that broadcast
(computed as float64: one step of a large model exceeds the 9.2e18 of a 64-bit integer).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from scaling.meshes.errors import InputError, nearest
from scaling.models.accounting.matrices import Remat, query_key_dim, stacks, value_dim
from scaling.models.config import ModelConfig

Number = Any  # int, float or numpy array

FORWARD_AND_BACKWARD = 3  # a product, its gradient by the left and by the right operand

ATTENTION = ("scores", "values")
UNGROUPED = {**dict.fromkeys(ATTENTION, "attention"), "router": "router", "head": "head"}
MLP = ("gate", "up", "down")
PROJECTIONS = ("q", "k", "v", "q_a", "q_b", "kv_a", "kv_b")

# How often the backward pass recomputes a product of the forward pass, by remat policy.
#
# full: only the block's input is saved, so every product whose result enters a gradient is
#   recomputed. The last product of the MLP is not: its result is only added to the residual.
#   Nor is an expert's: the router's weight multiplies its hidden units.
# selective: q, k, v as they enter the attention, its output and the MLP's gate and up are saved.
#   The softmax needs the scores again; the second norm needs the residual after the attention,
#   hence o; the router needs its logits; latent attention needs its compressed vectors.
# (Flash attention recomputes the scores under any policy; here the scores are those of an
# attention that stores them.)
RECOMPUTED: dict[Remat, dict[str, int]] = {
    "none": {},
    "full": dict.fromkeys(
        (*PROJECTIONS, *ATTENTION, "o", "gate", "up", "router")
        + ("shared_gate", "shared_up", "expert_gate", "expert_up"),
        1,
    ),
    "selective": dict.fromkeys(("q_a", "kv_a", "scores", "o", "router"), 1),
}
# ... and under "selective" with qk_norm: the norms' own inputs are not saved (v is in one product
# with q and k).
RECOMPUTED_FOR_QK_NORM = {"q": 1, "q_b": 1, "k": 1, "v": 1, "kv_b": 1}


@dataclass(frozen=True)
class Flops:
    """FLOPs over all layers: `components` by name of the product."""

    components: Mapping[str, Number]

    @property
    def total(self) -> Number:
        """The sum over all components."""
        return sum(self.components.values())

    @property
    def groups(self) -> dict[str, Number]:
        """Sums for projections, attention, mlp (dense, shared and routed), router and head."""
        sums: dict[str, Number] = {}
        for name, flops in self.components.items():
            mlp = "mlp" if name.endswith(MLP) else "projections"
            group = UNGROUPED.get(name, mlp)
            sums[group] = sums.get(group, 0) + flops
        return sums


def forward_flops(config: ModelConfig, batch: Number, seq: Number) -> Flops:
    """One forward pass as an attention of full [seq, seq] scores executes it.

    Neither the causal mask nor a sliding window saves work; the head runs at every position. A
    capacity factor, which pads the experts' buffers, is not included.
    """
    batch, seq = _exact(batch), _exact(seq)
    return Flops(_products(config, tokens=batch * seq, pair_flops=2 * batch * seq * seq))


def train_flops(config: ModelConfig, batch: Number, seq: Number, remat: Remat = "none") -> Flops:
    """Forward, backward and recomputation of one step as executed (see `forward_flops`)."""
    return _train(config, forward_flops(config, batch, seq), remat)


def model_flops(config: ModelConfig, batch: Number, seq: Number, causal: bool = False) -> Number:
    """The FLOPs of one training step that MFU credits, regardless of recomputation and masks.

        6 x weights x tokens + 6 x layers x heads x (qk_dim + v_dim) x context x tokens

    Weights are those multiplied once per token: projections, MLP, router, active and shared
    experts, output head also when tied. The context is the sequence, or the window if shorter.
    (PaLM, arXiv 2204.02311, appendix B, with the head and the window stated.) `causal` counts half
    of the context: a causal mask needs no more.
    """
    return _credited(config, batch, seq, "none", causal)


def hardware_flops(
    config: ModelConfig, batch: Number, seq: Number, remat: Remat, causal: bool = False
) -> Number:
    """`model_flops` plus what the remat policy recomputes: the numerator of HFU."""
    return _credited(config, batch, seq, remat, causal)


def _credited(
    config: ModelConfig, batch: Number, seq: Number, remat: Remat, causal: bool
) -> Number:
    batch, seq = _exact(batch), _exact(seq)
    window = seq if config.sliding_window is None else config.sliding_window
    context = min(seq, window) if isinstance(seq, int) else np.minimum(seq, window)
    pair_flops = (1 if causal else 2) * batch * seq * context
    return _train(config, Flops(_products(config, batch * seq, pair_flops)), remat).total


def _train(config: ModelConfig, forward: Flops, remat: Remat) -> Flops:
    if remat not in RECOMPUTED:
        raise InputError(f"remat {remat!r} is not a policy; {nearest(remat, RECOMPUTED)}")
    again = RECOMPUTED[remat]
    if remat == "selective" and config.qk_norm:
        again = again | RECOMPUTED_FOR_QK_NORM
    return Flops(
        {n: (FORWARD_AND_BACKWARD + again.get(n, 0)) * f for n, f in forward.components.items()}
    )


def _exact(value: Number) -> Number:
    """Scalars as Python numbers, whose integers do not overflow; arrays as float64."""
    if np.ndim(value) == 0:
        return int(value) if value == int(value) else float(value)
    return np.asarray(value, dtype=np.float64)


def _products(config: ModelConfig, tokens: Number, pair_flops: Number) -> dict[str, Number]:
    """FLOPs of each product of one forward pass.

    `pair_flops` are those of all query-key pairs, per head and per element of a head. Every token
    passes the router, the shared experts and `experts_per_token` routed ones.
    """
    per_head = config.n_layers * config.n_heads * pair_flops
    products = {
        "scores": per_head * query_key_dim(config),
        "values": per_head * value_dim(config),
        "head": 2 * tokens * config.d_model * config.vocab_size,
    }
    for stack in stacks(config):
        flops = 2 * (stack.layers * stack.used * tokens) * stack.size
        products[stack.name] = products.get(stack.name, 0) + flops
    return products
