"""Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1): low-rank q, k and v.

    q of a head      = [q_n, rotate(q_r)]       q_n, q_r from  norm(x Qa) Qb,  or from  x Q
    c, k_r           = parts of  x KVa          k_r is one for all heads
    k of a head      = [k_n, rotate(k_r)]       k_n, v   from  norm(c) KVb
    y                = softmax(q k^T / sqrt(n + r), causal) v O

The latents norm(x Qa), norm(c) and k_r are a fraction of d_model. So each device computes them for
its own shard of a sequence-parallel stream, and they, not the stream, are all-gathered over
`tensor`, which shards the heads. Qa and KVa are replicated over `tensor`.
"""

# Dims: B batch, S sequence, D model, N heads, R latent, K n + r channels of q and k, V of v

import functools

import jax
import jax.numpy as jnp
from flax import nnx

from scaling.models.accounting.matrices import query_key_dim
from scaling.models.adapters import adapted_product, adapters_of
from scaling.models.attention import HEADS, STREAM, attend, score_rules, sequence_rotation
from scaling.models.config import ModelConfig
from scaling.models.documents import Documents
from scaling.models.execution import Execution
from scaling.models.initializers import matrix, residual_std
from scaling.models.norm import Norm
from scaling.models.positions import Rotation, yarn_score_scale

EPS = 1e-6  # of the latents' norms: DeepSeek-V3's inference code, RMSNorm's default
LATENT = ("latent", "heads", None)  # Qb and KVb


class LatentAttention(nnx.Module):
    """x_BSD -> [B, S, D], both sharded along the sequence if sequence-parallel.

    Communication: all-gather of the latents over `tensor` (if sequence-parallel), then
    reduce-scatter (else all-reduce) of the result; keys and values over `context`.
    """

    def __init__(self, config: ModelConfig, execution: Execution, key: jax.Array):
        mla = config.mla
        assert mla is not None and not config.bias  # the latter is refused by check_trainable
        D, N, K = config.d_model, config.n_heads, query_key_dim(config)
        Q, R, V = mla.q_lora_rank, mla.kv_lora_rank, mla.v_head_dim
        self.config, self.mla, self.execution = config, mla, execution
        keys = jax.random.split(key, 5)
        make = functools.partial(matrix, execution.rules)
        norm = functools.partial(Norm, config, execution.rules, kind="rmsnorm", eps=EPS)
        per_head, shared = ("embed", "heads", None), ("embed", None)
        self.query_DNK = None if Q else make(keys[0], (D, N, K), per_head)
        self.query_a_DR = make(keys[0], (D, Q), shared) if Q else None
        self.query_a_norm = norm(size=Q) if Q else None
        self.query_b_RNK = make(keys[1], (Q, N, K), LATENT) if Q else None
        self.kv_a_DR = make(keys[2], (D, R + mla.qk_rope_head_dim), shared)
        self.kv_a_norm = norm(size=R)
        self.kv_b_RNK = make(keys[3], (R, N, mla.qk_nope_head_dim + V), LATENT)
        std = residual_std(config.n_layers)
        self.out_NVD = make(keys[4], (N, V, D), ("heads", None, "embed"), std)
        self.adapters = adapters_of(execution, key, self)

    def __call__(
        self,
        x_BSD: jax.Array,
        documents: Documents | None = None,
        config: ModelConfig | None = None,
    ) -> jax.Array:
        """`config` is the model as this layer sees it; None: all layers are alike."""
        config = config or self.config
        heads = self._heads(x_BSD, documents, config)
        return self.output(attend(*heads, self.execution, score_rules(config), documents))

    def latents(self, x_BSD: jax.Array, rotate: Rotation) -> tuple[jax.Array, ...]:
        """The inputs of the queries (normed, or x itself), norm(c) and rotated k_r: [B, S, R] each.

        All-gathered along the sequence over `tensor`, if sequence-parallel.
        """
        kv_BSR = self._compressed(x_BSD, "kv_a_DR")
        c_BSR, k_BSR = jnp.split(kv_BSR, [self.mla.kv_lora_rank], axis=-1)
        q_BSR = x_BSD
        if self.query_a_DR is not None and self.query_a_norm is not None:
            q_BSR = self.query_a_norm(self._compressed(x_BSD, "query_a_DR"))
        # Rotated before the gather: so its gradient's sum over heads is reduce-scattered.
        k_BSR = rotate(k_BSR[:, :, None])[:, :, 0]
        return tuple(
            self.execution.place(y, "batch", "sequence", None)
            for y in (q_BSR, self.kv_a_norm(c_BSR), k_BSR)
        )

    def queries(self, q_BSR: jax.Array, rotate: Rotation) -> tuple[jax.Array, jax.Array]:
        """The two parts of the queries, [B, S, N, n] and rotated [B, S, N, r], scaled."""
        q_BSNK = self._expanded(q_BSR, "query_DNK" if self.query_b_RNK is None else "query_b_RNK")
        scale = yarn_score_scale(self.config)
        if scale != 1:
            q_BSNK = (q_BSNK * jnp.float32(scale)).astype(q_BSNK.dtype)
        n_BSNK, r_BSNK = jnp.split(q_BSNK, [self.mla.qk_nope_head_dim], axis=-1)
        return n_BSNK, rotate(r_BSNK)

    def _heads(
        self, x_BSD: jax.Array, documents: Documents | None, config: ModelConfig
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Queries, keys and values as they enter the attention."""
        execution, mla = self.execution, self.mla
        rotate = sequence_rotation(config, execution, x_BSD.shape[1], documents)
        q_BSR, c_BSR, k_BSR = self.latents(x_BSD, rotate)
        q_BSNK = jnp.concatenate(self.queries(q_BSR, rotate), axis=-1)
        kv_BSNK = self._expanded(c_BSR, "kv_b_RNK")
        kn_BSNK, v_BSNV = jnp.split(kv_BSNK, [mla.qk_nope_head_dim], axis=-1)
        shape = (*kn_BSNK.shape[:3], mla.qk_rope_head_dim)
        kr_BSNK = jnp.broadcast_to(k_BSR[:, :, None], shape, out_sharding=execution.spec(*HEADS))
        return q_BSNK, jnp.concatenate([kn_BSNK, kr_BSNK], axis=-1), v_BSNV

    def output(self, a_BSNV: jax.Array) -> jax.Array:
        return adapted_product(self, "bsnk,nkd->bsd", a_BSNV, "out_NVD", STREAM, partial=True)

    def _compressed(self, x_BSD: jax.Array, name: str) -> jax.Array:
        """The product of the stream and the matrix `name`: [B, S, R]."""
        return adapted_product(self, "bsd,dr->bsr", x_BSD, name, STREAM)

    def _expanded(self, x_BSR: jax.Array, name: str) -> jax.Array:
        """The product of a latent (or the stream) and the matrix `name`: [B, S, N, K]."""
        return adapted_product(self, "bsr,rnk->bsnk", x_BSR, name, HEADS)
