"""FLOPs of matrix products by component: those executed, and those that MFU credits.

    forward = 2 x tokens x inputs x outputs per matrix, 2 x heads x dim per query-key pair
    train   = 3 x forward + recomputation        (the gradient of a product is two products)

Norms, activations, rotations, softmax and the embedding look-up are no matrix products and are
not counted. Batch and sequence may be ints (the result is exact) or numpy arrays that broadcast
(computed as float64: one step of a large model exceeds the 9.2e18 of a 64-bit integer).
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from scaling.models.accounting.matrices import (
    Number,
    mean_context,
    query_key_dim,
    stacks,
    value_dim,
)
from scaling.models.accounting.remat import HIDDEN, QKV, Remat, kept_by, tensor_names
from scaling.models.config import ModelConfig, layer_configs

FORWARD_AND_BACKWARD = 3  # a product, its gradient by the left and by the right operand

ATTENTION = ("scores", "values")
UNGROUPED = {**dict.fromkeys(ATTENTION, "attention"), "router": "router", "head": "head"}
MLP = ("gate", "up", "down")
PROJECTIONS = ("q", "k", "v", "q_a", "q_b", "kv_a", "kv_b")

# The backward pass computes a product again unless remat keeps these tensors. Under "none" it
# computes none again.
#
# The last product of the MLP is not in it: its result is only added to the stream. Nor is an
# expert's: the router's weight multiplies its hidden units. Products of one input run as one. Those
# of shared experts, and of experts with a capacity factor, are apart.
# (Flash attention recomputes the scores under any policy; here the scores are those of an
# attention that stores them.)
AGAIN_WITHOUT: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("q", "k", "v"), QKV),
    "q_b": ("query",),
    "kv_b": ("key", "value"),
    "values": ("attention",),
    "o": ("attention_out",),  # the second norm needs the stream between
    **dict.fromkeys(("gate", "up"), HIDDEN),
    **dict.fromkeys(("shared_gate", "expert_gate"), ("mlp_gate",)),
    **dict.fromkeys(("shared_up", "expert_up"), ("mlp_up",)),
}
# ... and where a norm follows attention and MLP, its input.
AGAIN_FOR_POST_NORM = ("down", "shared_down", "expert_down")
# No policy names the softmax, the router's logits, or latents.
ALWAYS_AGAIN = ("scores", "router", "q_a", "kv_a")
# ... and with qk_norm the norms' own inputs.
AGAIN_FOR_QK_NORM = ("q", "q_b", "k", "v", "kv_b")


@cache
def recomputed(config: ModelConfig, remat: Remat) -> dict[str, float]:
    """The products that the backward pass computes again, with the share of the layers that do.

    Raises:
        InputError: a name that is no policy.
    """
    kinds = layer_configs(config)
    counts = Counter[str]()
    for layer in range(config.n_layers):
        counts.update(_recomputed(kinds[layer % len(kinds)], remat))
    return {name: _exact(layers / config.n_layers) for name, layers in counts.items()}


def _recomputed(config: ModelConfig, remat: Remat) -> frozenset[str]:
    """The products that layers which are all alike compute again."""
    kept = kept_by(remat)
    if kept is None:
        return frozenset()
    there = kept.names | (set(HIDDEN) - set(tensor_names(config)))  # what a model lacks is kept
    direct = config.mla is not None  # then q is a product of its own
    needed = AGAIN_WITHOUT | ({"q": ("query",)} if direct else {})
    if config.moe and config.moe.capacity_factor is None:
        needed |= dict.fromkeys(("expert_gate", "expert_up"), HIDDEN)
    names = {name for name, tensors in needed.items() if not there >= set(tensors)}
    inputs = (*AGAIN_FOR_QK_NORM * config.norms_heads, *AGAIN_FOR_POST_NORM * config.has_post_norms)
    return frozenset((*names, *ALWAYS_AGAIN, *inputs))


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
    """One forward pass as an attention of full scores, [seq, seq] or of each chunk, executes it.

    Neither the causal mask nor a sliding window saves work; the head runs at every position. A
    capacity factor, which pads the experts' buffers, is not included.
    """
    batch, seq = _exact(batch), _exact(seq)
    pair_flops = 2 * batch * seq * _exact(mean_context(config, seq, windows=False))
    return Flops(_products(config, tokens=batch * seq, pair_flops=pair_flops))


def train_flops(config: ModelConfig, batch: Number, seq: Number, remat: Remat = "none") -> Flops:
    """Forward, backward and recomputation of one step as executed (see `forward_flops`)."""
    return _train(config, forward_flops(config, batch, seq), remat)


def model_flops(config: ModelConfig, batch: Number, seq: Number, causal: bool = False) -> Number:
    """The FLOPs of one training step that MFU credits, regardless of recomputation and masks.

        6 x weights x tokens + 6 x layers x heads x (qk_dim + v_dim) x context x tokens

    Weights are those multiplied once per token: projections, MLP, router, active and shared
    experts, output head also when tied. The context is the sequence, or the window if shorter; the
    mean over layers with and without one.
    (PaLM, arXiv 2204.02311, appendix B, with the head and the window stated.) `causal` counts half
    of the context: a causal mask needs no more.
    """
    return hardware_flops(config, batch, seq, "none", causal)


def hardware_flops(
    config: ModelConfig, batch: Number, seq: Number, remat: Remat, causal: bool = False
) -> Number:
    """`model_flops` plus what the remat policy recomputes: the numerator of HFU."""
    return _train(config, credited_forward(config, batch, seq, causal), remat).total


def credited_forward(
    config: ModelConfig, batch: Number, seq: Number, causal: bool = False
) -> Flops:
    """The products of one forward pass that `model_flops` counts."""
    batch, seq = _exact(batch), _exact(seq)
    pair_flops = (1 if causal else 2) * batch * seq * _exact(mean_context(config, seq))
    return Flops(_products(config, batch * seq, pair_flops))


def _train(config: ModelConfig, forward: Flops, remat: Remat) -> Flops:
    again = recomputed(config, remat)
    times = {name: _exact(FORWARD_AND_BACKWARD + again.get(name, 0)) for name in forward.components}
    return Flops({name: _exact(times[name] * flops) for name, flops in forward.components.items()})


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
