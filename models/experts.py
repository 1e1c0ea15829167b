"""A mixture of experts in place of the MLP: route, dispatch over `expert`, multiply, combine.

One `shard_map` over all mesh axes; on each device

    own tokens      router, k experts and weights of each     sequence sharded over context, tensor
    all-gather      tokens, weights and experts over tensor   as the dense MLP does
    all-gather      tokens over expert                        fixed buffers (models/moe/dispatch.py)
    experts         this device's hidden units                models/moe/expert_mlps.py
    reduce-scatter  sums of each token's k over expert
    reduce-scatter  partial sums over tensor

With a capacity factor an all-to-all over expert takes rows there, and another one results back.

Padding of packed documents has no expert: number E of 0 to E - 1. So it takes no row and no room,
and does not count in load and losses; only the shared experts see it, as a dense MLP does.

Experts are stored sharded over expert, their embed dimension over fsdp and context, their hidden
units over tensor. Devices along tensor exchange the same tokens, each for its part of these.
"""

# Dims: b, s a device's shard of batch and sequence, T tokens, K experts per token, E experts,
# R rows of the buffer, D model, F hidden units of an expert

import functools

import chex
import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import PartitionSpec as P
from jax.sharding import reshard

from scaling.models.accounting.expert_buffers import buffer_rows, capacity
from scaling.models.accounting.matrices import expert_width
from scaling.models.adapters import adapters_of, expert_weight
from scaling.models.config import ModelConfig
from scaling.models.execution import Execution, spec_of
from scaling.models.initializers import bias, constant, matrix, residual_std
from scaling.models.moe.config import Moe
from scaling.models.moe.dispatch import (
    all_gather,
    all_to_all,
    combine,
    dispatch,
    padded_indices,
    reduce_scatter,
    sorted_indices,
    weights_of_rows,
)
from scaling.models.moe.expert_mlps import BIASES, DIMS, LocalExperts, Weights
from scaling.models.moe.routing import Routing, empty_routing, routing_statistics, top_k_gating
from scaling.models.moe.triton_tiles import Rows
from scaling.models.pipeline.shard_map import shard_map_per_stage


class Experts(nnx.Module):
    """x_BSD -> [B, S, D], sharded like the residual stream; and load and losses of the routing."""

    def __init__(self, config: ModelConfig, execution: Execution, key: jax.Array):
        moe = config.moe
        assert moe is not None
        D, F, E = config.d_model, expert_width(config), moe.n_experts
        S = moe.n_shared_experts * F  # shared experts side by side are one MLP
        self.config, self.execution = config, execution
        keys = dict(zip(DIMS, jax.random.split(key, len(DIMS)), strict=True))
        std = residual_std(config.n_layers)
        make = lambda name, shape, *std: matrix(
            execution.rules, keys[name], shape, DIMS[name], *std
        )
        gated = config.is_gated
        self.router_DE = make("router", (D, E))
        self.router_bias_E = (
            constant(execution.rules, 0.0, (E,), (None,)) if moe.selection_bias else None
        )
        self.up_EDF = make("up", (E, D, F))
        self.gate_EDF = make("gate", (E, D, F)) if gated else None
        self.down_EFD = make("down", (E, F, D), std)
        made = lambda name, *shape: bias(config.bias, execution.rules, shape, BIASES[name])
        self.logit_bias_E = made("logit_bias", E)
        self.up_bias_EF = made("up_bias", E, F)
        self.gate_bias_EF = made("gate_bias", E, F) if gated else None
        self.down_bias_ED = made("down_bias", E, D)
        self.shared_up_DF = make("shared_up", (D, S)) if S else None
        self.shared_gate_DF = make("shared_gate", (D, S)) if S and gated else None
        self.shared_down_FD = make("shared_down", (S, D), std) if S else None
        self.adapters = adapters_of(execution, key, self)

    def __call__(
        self, x_BSD: jax.Array, is_token_BS: jax.Array | None = None
    ) -> tuple[jax.Array, Routing]:
        """The layer's result and its routing; `is_token_BS` is False in padding (None: none)."""
        chex.assert_shape(x_BSD, (None, None, self.config.d_model))
        residual = self.execution.spec("stream", "residual", None)
        place = self.execution.spec("stream", "residual")
        if is_token_BS is not None:
            is_token_BS = reshard(is_token_BS, place)
        weights = self._weights()
        specs = {name: spec_of(w) for name, w in weights.items()}
        mapped = shard_map_per_stage(
            self.execution.rules,
            functools.partial(_local, self.config, self.execution),
            in_specs=(residual, specs, None if is_token_BS is None else place),
            out_specs=(residual, P()),  # the routing is the same on all devices of a stage
            abstract_impl=lambda x_BSD, weights, _: (
                x_BSD,
                empty_routing(weights["router"].shape[-1]),
            ),
        )
        y_BSD, routing = mapped(x_BSD, weights, is_token_BS)
        # As in `sharding.project`: between the gather of this result's gradient and the stream's.
        return jax.lax.optimization_barrier(y_BSD), routing

    def _weights(self) -> Weights:
        params = {
            "router": self.router_DE,
            "bias": self.router_bias_E,
            "shared_up": self.shared_up_DF,
            "shared_gate": self.shared_gate_DF,
            "shared_down": self.shared_down_FD,
            "logit_bias": self.logit_bias_E,
            "up_bias": self.up_bias_EF,
            "gate_bias": self.gate_bias_EF,
            "down_bias": self.down_bias_ED,
        }
        routed = {"up": "up_EDF", "gate": "gate_EDF", "down": "down_EFD"}
        adapted = {
            k: expert_weight(self, name) for k, name in routed.items() if getattr(self, name)
        }
        return adapted | {n: param[...] for n, param in params.items() if param is not None}


def _local(
    config: ModelConfig,
    execution: Execution,
    x_bsD: jax.Array,
    weights: Weights,
    is_token_bs: jax.Array | None,
) -> tuple[jax.Array, Routing]:
    """The layer on one device's tokens [b, s, D]."""
    experts, rules = LocalExperts(config, execution, weights), execution.rules
    moe = experts.moe
    sharded, dim = rules.stream_cut
    token_axes = (*rules.axes("stream"), *rules.axes("residual"))
    with jax.named_scope("router"):
        # float32 whatever the compute format
        exact = functools.partial(jnp.dot, precision=jax.lax.Precision.HIGHEST)
        in_float32 = lambda x, router_DE: exact(x.astype(jnp.float32), router_DE)
        logits_bsE = experts.times(x_bsD, "router", in_float32, token_axes)
        if "logit_bias" in weights:
            logits_bsE = logits_bsE + weights["logit_bias"]
        gating = top_k_gating(moe, logits_bsE, weights.get("bias"), is_token_bs)
    flat = lambda y: _gather_tokens(execution, y)
    x_TD, experts_TK = flat(x_bsD), flat(gating.experts)
    exchange = _rows_gathered if moe.capacity_factor is None else _rows_sent
    y_TD, dropped = exchange(experts, x_TD, flat(gating.weights), experts_TK)
    if moe.n_shared_experts:
        with jax.named_scope("shared"):
            y_TD = y_TD + experts.shared(x_TD)
    if sharded:  # each of these devices has counted the same tokens
        dropped = dropped / jax.lax.axis_size(sharded)
    with jax.named_scope("router"):
        routing = routing_statistics(logits_bsE, gating, token_axes, dropped, is_token_bs)
    parts = jax.lax.axis_size(sharded) if sharded else 1
    y_BSD = y_TD.reshape(x_bsD.shape[0] * (parts if dim == 0 else 1), -1, x_bsD.shape[2])
    if sharded:
        return jax.lax.psum_scatter(y_BSD, sharded, scatter_dimension=dim, tiled=True), routing
    summed = rules.axes("mlp")
    return (jax.lax.psum(y_BSD, summed) if summed else y_BSD), routing


def _gather_tokens(execution: Execution, y_bsX: jax.Array) -> jax.Array:
    """A device's tokens, all-gathered over tensor if they are cut over it, flat: [T, X].

    A stream that is not sharded over tensor is marked varying there, so that its gradient is summed
    over the hidden units once.
    """
    sharded, dim = execution.rules.stream_cut
    if sharded:
        y_bsX = jax.lax.all_gather(y_bsX, sharded, axis=dim, tiled=True)
    elif jnp.issubdtype(y_bsX.dtype, jnp.floating):
        for axis in execution.rules.axes("mlp"):
            y_bsX = jax.lax.pcast(y_bsX, axis, to="varying")
    return y_bsX.reshape(-1, y_bsX.shape[-1])


def _rows_gathered(
    experts: LocalExperts, x_TD: jax.Array, weights_TK: jax.Array, experts_TK: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Every device along `expert` picks the rows of its experts from the tokens of all.

    As `_rows_sent` the weighted sum of each token's experts [T, D], partial over tensor, and the
    number of assignments that found no room, a float32 scalar.
    """
    moe, over = experts.moe, experts.execution.rules.axes("experts")
    devices = experts.execution.rules.mesh.expert
    local, rows = moe.n_experts // devices, buffer_rows(moe, x_TD.shape[0], devices)
    with jax.named_scope("dispatch"):
        first = jax.lax.axis_index(over) * local if over else 0
        own_GK = all_gather(experts_TK, over) - first
        idx, sizes_E = sorted_indices(own_GK, local, rows)
        x_SD, weights_SK = all_gather(x_TD, over), all_gather(weights_TK, over)
        weights_R, rows_RD = weights_of_rows(weights_SK, idx), None
        if not experts.has_kernels:
            rows_RD, weights_R = _weighed(moe, dispatch(x_SD, idx), weights_R)
        elif moe.weighs_inputs:  # of the one expert of each token
            x_SD, weights_R = _weighed(moe, x_SD, weights_SK[:, 0])[0], jnp.ones_like(weights_R)
    with jax.named_scope("experts"):
        if rows_RD is None:
            source_R = jnp.where(idx.is_used_R, idx.assignment_R % x_SD.shape[0], 0)
            kernel_rows = Rows(source_R, weights_R, sizes_E)
            y_SD = experts.by_kernels(x_SD, kernel_rows, idx.row_KT, x_TD.shape[0])
        else:
            rows_RD = experts.grouped(rows_RD, weights_R, sizes_E)
    with jax.named_scope("combine"):
        y_TD = reduce_scatter(y_SD if rows_RD is None else combine(rows_RD, idx), over)
    assigned = ((own_GK >= 0) & (own_GK < local)).sum()
    return y_TD, (assigned - idx.kept).astype(jnp.float32)


def _rows_sent(
    experts: LocalExperts, x_TD: jax.Array, weights_TK: jax.Array, experts_TK: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Every device sends the rows of its tokens, as many to each expert, and gets results back."""
    moe, over = experts.moe, experts.execution.rules.axes("experts")
    with jax.named_scope("dispatch"):
        idx = padded_indices(experts_TK, moe.n_experts, capacity(moe, x_TD.shape[0]))
        rows_RD = all_to_all(dispatch(x_TD, idx), over)
        weights_R = all_to_all(weights_of_rows(weights_TK, idx), over)
        rows_RD, weights_R = _weighed(moe, rows_RD, weights_R)
    with jax.named_scope("experts"):
        rows_RD = experts.padded(rows_RD, weights_R)
    with jax.named_scope("combine"):
        y_TD = combine(all_to_all(rows_RD, over), idx)
    assigned = (experts_TK < moe.n_experts).sum()
    return y_TD, (assigned - idx.kept).astype(jnp.float32)


def _weighed(moe: Moe, rows_RD: jax.Array, weights_R: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The inputs of experts, and the weights of their results: where inputs are weighed, ones."""
    if not moe.weighs_inputs:
        return rows_RD, weights_R
    return (rows_RD * weights_R[:, None]).astype(rows_RD.dtype), jnp.ones_like(weights_R)
