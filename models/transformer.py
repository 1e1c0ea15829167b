"""A decoder-only transformer: embed, N blocks, norm, output head.

    x = embed(tokens)
    for block in blocks:                  one `lax.scan` over the stacked layers
        x = x + attention(norm(x))        or norm(attention(x)), or both norms
        x = x + mlp(norm(x))              or experts, after some dense layers of their own scan
    logits = norm(x) head

Layers that differ in turn, in attention (`ModelConfig.layers`) or in having experts (`Moe.every`),
are scanned pattern by pattern; those that fill no whole pattern are a stack of their own,
`last_layers`.

An NNX module is an ordinary pytree here: `jax.jit`, `jax.grad` and optax take it as it is.
"""

# Dims: B batch, S sequence, D model, V vocabulary, L layers

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

from scaling.models.accounting.matrices import layer_scans, layer_stacks
from scaling.models.attention import Attention
from scaling.models.attention_kernels.zigzag import zigzag_order
from scaling.models.config import ModelConfig, layer_configs
from scaling.models.documents import Documents, documents_of
from scaling.models.embedding import Embedding
from scaling.models.execution import Execution
from scaling.models.experts import Experts
from scaling.models.head import OutputHead, logits
from scaling.models.initializers import matrix, stacked_layers
from scaling.models.latent_attention import LatentAttention
from scaling.models.mlp import Mlp
from scaling.models.moe.routing import Routing
from scaling.models.norm import Norm
from scaling.models.pattern import scan_layers, scan_places
from scaling.models.remat import rematerialized


class Block(nnx.Module):
    """One layer: attention, then MLP or experts, each added to the residual stream."""

    def __init__(
        self, config: ModelConfig, execution: Execution, key: jax.Array, moe: bool = False
    ):
        keys = jax.random.split(key)
        self.residual_factor = config.residual_factor
        norm = lambda exists: Norm(config, execution.rules, config.d_model) if exists else None
        before, after = config.norms != "after", config.has_post_norms
        self.attention_norm, self.attention_post_norm = norm(before), norm(after)
        attention = LatentAttention if config.mla else Attention
        self.attention = attention(config, execution, keys[0])
        self.mlp_norm, self.mlp_post_norm = norm(before), norm(after)
        self.mlp = Experts(config, execution, keys[1]) if moe else Mlp(config, execution, keys[1])

    def __call__(
        self,
        x_BSD: jax.Array,
        documents: Documents | None = None,
        config: ModelConfig | None = None,
    ) -> tuple[jax.Array, Routing | None]:
        """The residual stream after this layer; with experts also their load and losses.

        `config` is the model as this layer sees it (`layer_configs`); None: all layers are alike.
        """
        with jax.named_scope("attention"):
            y_BSD = self.attention(normed(self.attention_norm, x_BSD), documents, config)
            x_BSD = self.with_attention(x_BSD, y_BSD)
        return self.feed_forward(x_BSD, documents)

    def with_attention(self, x_BSD: jax.Array, y_BSD: jax.Array) -> jax.Array:
        """The stream after the first half of the layer; `y_BSD` is what its attention returned."""
        y_BSD = checkpoint_name(y_BSD, "attention_out")
        return self.added(x_BSD, normed(self.attention_post_norm, y_BSD))

    def feed_forward(
        self, x_BSD: jax.Array, documents: Documents | None = None
    ) -> tuple[jax.Array, Routing | None]:
        """The second half of the layer: MLP or experts, which padding does not reach."""
        with jax.named_scope("mlp"):
            h_BSD, routing = normed(self.mlp_norm, x_BSD), None
            if isinstance(self.mlp, Experts):
                y_BSD, routing = self.mlp(
                    h_BSD, None if documents is None else documents.is_token_BS
                )
            else:
                y_BSD = self.mlp(h_BSD)
            return self.added(x_BSD, normed(self.mlp_post_norm, y_BSD)), routing

    def added(self, x_BSD: jax.Array, y_BSD: jax.Array) -> jax.Array:
        """The stream with a result of attention or MLP."""
        factor = self.residual_factor
        return x_BSD + (y_BSD if factor == 1 else y_BSD * jnp.asarray(factor, y_BSD.dtype))


def normed(norm: Norm | None, x_BSD: jax.Array) -> jax.Array:
    """`norm(x)`; x where there is none."""
    return x_BSD if norm is None else norm(x_BSD)


class Transformer(nnx.Module):
    """tokens_BS -> logits_BSV float32. Build it under `jax.set_mesh(mesh)`."""

    def __init__(self, config: ModelConfig, execution: Execution, key: jax.Array):
        self.config, self.execution = config, execution
        embed_key, head_key, blocks_key = jax.random.split(key, 3)
        self.embedding = Embedding(config, execution, embed_key)
        keys = jax.random.split(blocks_key, config.n_layers)
        stacks = {
            stack.name: stacked_layers(
                execution,
                functools.partial(Block, config, execution, moe=stack.moe),
                keys[np.array(stack.layers)],
            )
            for stack in layer_stacks(config)
        }
        self.dense_layers = stacks.get("dense_layers")
        self.layers, self.last_layers = stacks["layers"], stacks.get("last_layers")
        divisor = config.logit_divisor
        self.final_norm = Norm(config, execution.rules, config.d_model, divisor=divisor)
        shape = (config.vocab_size, config.d_model)
        tied = config.tied_embeddings
        self.head_VD = (
            None if tied else matrix(execution.rules, head_key, shape, ("vocab", "embed"))
        )

    @property
    def stacks(self) -> list[Block]:
        """The stacks of layers, from the first one."""
        return [getattr(self, stack.name) for stack in layer_stacks(self.config)]

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
            documents = self.documents(segments_BS)
            positions_BS = None if documents is None else documents.positions_BS
            x_BSD = self.embedding(tokens_BS, positions_BS=positions_BS)
        config = self.config
        layer = lambda kind: rematerialized(
            lambda x_BSD, block: block(x_BSD, documents, kind), self.execution
        )
        routing = None
        with jax.named_scope("layers"):
            for stacks in layer_scans(self.config):
                blocks, places = (
                    [getattr(self, s.name) for s in stacks],
                    scan_places(config, stacks),
                )
                x_BSD, (*_, routing) = scan_layers(
                    layer, layer_configs(config), x_BSD, *blocks, places=places
                )
        return x_BSD, routing

    def documents(self, segments_BS: jax.Array | None) -> Documents | None:
        """The documents of packed sequences, which over `context` are in zigzag order."""
        if segments_BS is None:
            return None
        devices = self.execution.rules.mesh.context
        order = zigzag_order(segments_BS.shape[-1], devices) if devices > 1 else None
        return documents_of(segments_BS, order)

    @property
    def head(self) -> OutputHead:
        """Return the final norm and output projection, which follow the last layer."""
        table = self.embedding.table_VD if self.head_VD is None else self.head_VD
        return OutputHead(self.execution, self.final_norm, table[...], self.config.logit_softcap)

    def logits(self, x_BSD: jax.Array) -> jax.Array:
        """float32 logits [B, S, V] of the stream after the last layer."""
        head = self.head
        with jax.named_scope("head"):
            return logits(self.execution, head.inputs(x_BSD), head.weight_VD, head.softcap)
