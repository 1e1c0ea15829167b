"""Causal self-attention with grouped queries (arXiv 2305.13245), optional QK-norm and window.

The attention core runs inside a `shard_map`, on whole sequences and the device's own heads: cuDNN's
flash kernel has no rule of its own for explicit shardings, and needs none there. Sequences that are
cut over `context` are told in `scaling.models.attention_kernels.context`.
"""

# Dims: B batch, S sequence, D model, N query heads, M key/value heads, K head dim

import functools
from collections.abc import Callable

import jax
from flax import nnx
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import PartitionSpec as P

from scaling.models.attention_kernels.context import attend_across
from scaling.models.attention_kernels.kv_cache import Past
from scaling.models.attention_kernels.reference import attend_stored, seen_TU
from scaling.models.attention_kernels.zigzag import order
from scaling.models.config import ModelConfig
from scaling.models.execution import Execution
from scaling.models.initializers import add_bias, matrix, residual_std, zeros
from scaling.models.norm import Norm
from scaling.models.pipeline.shard_map import stage_map
from scaling.models.positions import frequencies, magnitude, rotate, rotate_from
from scaling.models.sharding import project

HEADS = ("batch", "sequence", "heads", None)


class Attention(nnx.Module):
    """x_BSD -> [B, S, D], both cut over the sequence if sequence-parallel."""

    def __init__(self, config: ModelConfig, execution: Execution, key: jax.Array):
        D, N, M, K = config.d_model, config.n_heads, config.n_kv_heads, config.head_dim
        self.config, self.execution = config, execution
        keys = jax.random.split(key, 4)
        std = residual_std(config.n_layers)
        self.query_DNK = matrix(execution.rules, keys[0], (D, N, K), ("embed", "heads", None))
        self.key_DMK = matrix(execution.rules, keys[1], (D, M, K), ("embed", "kv_heads", None))
        self.value_DMK = matrix(execution.rules, keys[2], (D, M, K), ("embed", "kv_heads", None))
        self.out_NKD = matrix(execution.rules, keys[3], (N, K, D), ("heads", None, "embed"), std)
        self.query_bias_NK = zeros(config, execution.rules, (N, K), ("heads", None))
        self.key_bias_MK = zeros(config, execution.rules, (M, K), ("kv_heads", None))
        self.value_bias_MK = zeros(config, execution.rules, (M, K), ("kv_heads", None))
        self.out_bias_D = zeros(config, execution.rules, (D,), (None,))
        self.query_norm = Norm(config, execution.rules, K, "rmsnorm") if config.qk_norm else None
        self.key_norm = Norm(config, execution.rules, K, "rmsnorm") if config.qk_norm else None

    def __call__(self, x_BSD: jax.Array) -> jax.Array:
        execution = self.execution
        places = order(x_BSD.shape[1], execution.rules.mesh.context)
        turn = frequencies(self.config), places, magnitude(self.config)
        q_BSNK, k_BSMK, v_BSMK = self._projected(x_BSD, lambda x: rotate(x, *turn))
        q_BSNK, k_BSMK = checkpoint_name(q_BSNK, "query"), checkpoint_name(k_BSMK, "key")
        v_BSMK = checkpoint_name(v_BSMK, "value")
        a_BSNK = attend(q_BSNK, k_BSMK, v_BSMK, execution, self.config.sliding_window)
        return self._output(a_BSNK)

    def extended(self, x_BTD: jax.Array, past: Past, start: jax.Array) -> tuple[jax.Array, Past]:
        """Attention of tokens from position `start` on, to those before and to themselves.

        Args:
            x_BTD: of T new tokens.
            past: keys and values [B, U, M, K] of U positions, of which `start` are filled.
            start: int32 scalar.

        Returns:
            [B, T, D], and the past with the new keys and values in it.
        """
        execution, config = self.execution, self.config
        turn = frequencies(config), start, past.first.shape[1], magnitude(config)
        q_BTNK, k_BTMK, v_BTMK = self._projected(x_BTD, lambda x: rotate_from(x, *turn))

        def core(q: jax.Array, k: jax.Array, v: jax.Array, past: Past, start: jax.Array) -> tuple:
            past = past.with_new(k, v, start)
            seen = seen_TU(q.shape[1], past.first.shape[1], config.sliding_window, start)
            return attend_stored(q, past.first, past.second, seen, execution.precision), past

        query, keys = execution.spec(*HEADS), execution.spec("batch", "sequence", "kv_heads", None)
        both = Past(keys, keys)
        mapped = jax.shard_map(
            core, in_specs=(query, keys, keys, both, P()), out_specs=(query, both), check_vma=False
        )
        a_BTNK, past = mapped(q_BTNK, k_BTMK, v_BTMK, past, start)
        return self._output(a_BTNK), past

    def _projected(
        self, x_BSD: jax.Array, rotation: Callable[[jax.Array], jax.Array]
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Queries, keys and values as they enter the attention."""
        x_BSD = self.execution.place(x_BSD, "batch", "sequence", None)
        q_BSNK = self._heads(x_BSD, self.query_DNK, self.query_bias_NK, "heads")
        k_BSMK = self._heads(x_BSD, self.key_DMK, self.key_bias_MK, "kv_heads")
        v_BSMK = self._heads(x_BSD, self.value_DMK, self.value_bias_MK, "kv_heads")
        if self.query_norm is not None and self.key_norm is not None:
            q_BSNK, k_BSMK = self.query_norm(q_BSNK), self.key_norm(k_BSMK)
        if self.config.positions == "rope":
            q_BSNK, k_BSMK = rotation(q_BSNK), rotation(k_BSMK)
        return q_BSNK, k_BSMK, v_BSMK

    def _output(self, a_BSNK: jax.Array) -> jax.Array:
        y_BSD = project(
            self.execution,
            "bsnk,nkd->bsd",
            a_BSNK,
            self.out_NKD[...],
            ("heads", None, "embed"),
            ("batch", "residual", None),
            partial=True,
        )
        return add_bias(y_BSD, self.out_bias_D)

    def _heads(
        self, x_BSD: jax.Array, w: nnx.Param, bias: nnx.Param | None, heads: str
    ) -> jax.Array:
        out = ("batch", "sequence", heads, None)
        y = project(self.execution, "bsd,dnk->bsnk", x_BSD, w[...], ("embed", heads, None), out)
        return add_bias(y, bias)


def attend(
    q_BSNK: jax.Array,
    k_BSMK: jax.Array,
    v_BSMK: jax.Array,
    execution: Execution,
    window: int | None,
) -> jax.Array:
    """softmax(q k^T / sqrt(K), causal) v -> [B, S, N, K], each device on its own rows and heads.

    Args:
        q_BSNK: queries; `k_BSMK`, `v_BSMK`: keys and values, M a divisor of N.
        execution: says which implementation: "cudnn" (flash) or "xla".
        window: tokens that each position sees, itself included; None: all before it.
    """
    if execution.rules.axes("sequence"):
        return attend_across(execution, window, q_BSNK, k_BSMK, v_BSMK)
    core = functools.partial(
        jax.nn.dot_product_attention,
        is_causal=True,
        local_window_size=None if window is None else (window - 1, 0),
        implementation=execution.attention_kernel,
    )
    query = execution.spec("batch", "sequence", "heads", None)
    keys = execution.spec("batch", "sequence", "kv_heads", None)
    mapped = stage_map(execution.rules, core, (query, keys, keys), query, check_vma=False)
    with jax.default_matmul_precision(execution.precision.name.lower()):
        return checkpoint_name(mapped(q_BSNK, k_BSMK, v_BSMK), "attention")
