"""A decoder-only transformer: embed, N pre-norm blocks, norm, output head.

    x = embed(tokens)
    for block in blocks:                  one `lax.scan` over the stacked layers
        x = x + attention(norm(x))
        x = x + mlp(norm(x))              or experts, after some dense layers of their own scan
    logits = norm(x) head

An NNX module is an ordinary pytree here: `jax.jit`, `jax.grad` and optax take it as it is.
"""

# Dims: B batch, S sequence, D model, V vocabulary, L layers

import chex
import jax
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

from scaling.models.accounting.matrices import n_dense_layers, n_moe_layers
from scaling.models.attention import Attention
from scaling.models.config import ModelConfig
from scaling.models.documents import Documents, documents_of
from scaling.models.embedding import Embedding
from scaling.models.execution import Execution
from scaling.models.experts import Experts
from scaling.models.head import gather_tokens, linear_cross_entropy, logits
from scaling.models.initializers import matrix, stacked_layers
from scaling.models.latent_attention import LatentAttention
from scaling.models.mlp import Mlp
from scaling.models.moe.routing import Routing
from scaling.models.norm import Norm
from scaling.models.remat import rematerialized


class Block(nnx.Module):
    """One pre-norm layer: attention, then MLP or experts, each added to the residual stream."""

    def __init__(
        self, config: ModelConfig, execution: Execution, key: jax.Array, moe: bool = False
    ):
        keys = jax.random.split(key)
        self.attention_norm = Norm(config, execution.rules, config.d_model)
        attention = LatentAttention if config.mla else Attention
        self.attention = attention(config, execution, keys[0])
        self.mlp_norm = Norm(config, execution.rules, config.d_model)
        self.mlp = Experts(config, execution, keys[1]) if moe else Mlp(config, execution, keys[1])

    def __call__(
        self, x_BSD: jax.Array, documents: Documents | None = None
    ) -> tuple[jax.Array, Routing | None]:
        """The residual stream after this layer; with experts also their load and losses."""
        with jax.named_scope("attention"):
            y_BSD = self.attention(self.attention_norm(x_BSD), documents)
            x_BSD = x_BSD + checkpoint_name(y_BSD, "attention_out")
        return self.feed_forward(x_BSD, documents)

    def feed_forward(
        self, x_BSD: jax.Array, documents: Documents | None = None
    ) -> tuple[jax.Array, Routing | None]:
        """The second half of the layer: MLP or experts, which padding does not reach."""
        with jax.named_scope("mlp"):
            h_BSD = self.mlp_norm(x_BSD)
            if isinstance(self.mlp, Experts):
                y_BSD, routing = self.mlp(
                    h_BSD, None if documents is None else documents.is_token_BS
                )
                return x_BSD + y_BSD, routing
            return x_BSD + self.mlp(h_BSD), None


class Transformer(nnx.Module):
    """tokens_BS -> logits_BSV float32. Build it under `jax.set_mesh(mesh)`."""

    def __init__(self, config: ModelConfig, execution: Execution, key: jax.Array):
        self.config, self.execution = config, execution
        embed_key, head_key, blocks_key = jax.random.split(key, 3)
        self.embedding = Embedding(config, execution, embed_key)
        keys = jax.random.split(blocks_key, config.n_layers)
        dense, has_experts = n_dense_layers(config), n_moe_layers(config) > 0
        stack = lambda keys, moe: stacked_layers(
            execution, lambda key: Block(config, execution, key, moe), keys
        )
        self.dense_layers = stack(keys[:dense], False) if has_experts and dense else None
        self.layers = stack(keys[dense:] if has_experts else keys, has_experts)
        self.final_norm = Norm(config, execution.rules, config.d_model)
        shape = (config.vocab_size, config.d_model)
        tied = config.tied_embeddings
        self.head_VD = (
            None if tied else matrix(execution.rules, head_key, shape, ("vocab", "embed"))
        )

    def __call__(self, tokens_BS: jax.Array) -> jax.Array:
        return self.logits(self.hidden_states(tokens_BS)[0])

    def hidden_states(
        self, tokens_BS: jax.Array, segments_BS: jax.Array | None = None
    ) -> tuple[jax.Array, Routing | None]:
        """The stream after the last layer [B, S, D]; with experts also their load and losses,
        stacked over their layers.

        `segments_BS` says which tokens are of one document (`scaling.models.documents`); None: all
        of a sequence.

        Saved for the backward pass: per layer what `remat` keeps (`scaling.models.remat`).
        """
        chex.assert_rank(tokens_BS, 2)
        with jax.named_scope("embed"):
            documents = None if segments_BS is None else documents_of(segments_BS)
            positions_BS = None if documents is None else documents.positions_BS
            x_BSD = self.embedding(tokens_BS, positions_BS=positions_BS)
        apply = rematerialized(lambda x_BSD, block: block(x_BSD, documents), self.execution)
        with jax.named_scope("layers"):
            if self.dense_layers is not None:
                x_BSD, _ = jax.lax.scan(apply, x_BSD, self.dense_layers)
            return jax.lax.scan(apply, x_BSD, self.layers)

    def logits(self, x_BSD: jax.Array) -> jax.Array:
        """float32 logits [B, S, V] of the stream after the last layer."""
        with jax.named_scope("head"):
            return logits(self.execution, *self._head(x_BSD))

    def loss(
        self,
        x_BSD: jax.Array,
        targets_BS: jax.Array,
        weights_BS: jax.Array | None = None,
        z_loss: float = 0.0,
    ) -> tuple[jax.Array, jax.Array]:
        """The losses that `linear_cross_entropy` returns, of the stream after the last layer."""
        with jax.named_scope("head"):
            x_BSD, head_VD = self._head(x_BSD)
        return linear_cross_entropy(self.execution, x_BSD, head_VD, targets_BS, weights_BS, z_loss)

    def _head(self, x_BSD: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The operands of the output head: normalised states [B, S, D], stored weight [V, D]."""
        x_BSD = gather_tokens(self.execution, self.final_norm(x_BSD))
        head = self.embedding.table_VD if self.head_VD is None else self.head_VD
        return x_BSD, head[...]
