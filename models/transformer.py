"""A decoder-only transformer: embed, N pre-norm blocks, norm, output head.

    x = embed(tokens)
    for block in blocks:                  one `lax.scan` over the stacked layers
        x = x + attention(norm(x))
        x = x + mlp(norm(x))
    logits = norm(x) head

An NNX module is an ordinary pytree here: `jax.jit`, `jax.grad` and optax take it as it is.
"""

# Dims: B batch, S sequence, D model, V vocabulary, L layers

import jax
from flax import nnx

from models.attention import Attention
from models.config import ModelConfig
from models.embedding import Embedding
from models.head import logits, sequence_dim
from models.layout import Layout
from models.mlp import Mlp
from models.norm import Norm
from models.remat import rematerialized
from models.weights import matrix


class Block(nnx.Module):
    """One pre-norm layer: attention, then MLP, each added to the residual stream."""

    def __init__(self, config: ModelConfig, layout: Layout, key: jax.Array):
        keys = jax.random.split(key)
        self.attention_norm = Norm(config, layout, config.d_model)
        self.attention = Attention(config, layout, keys[0])
        self.mlp_norm = Norm(config, layout, config.d_model)
        self.mlp = Mlp(config, layout, keys[1])

    def __call__(self, x_BSD: jax.Array) -> jax.Array:
        with jax.named_scope("attention"):
            x_BSD = x_BSD + self.attention(self.attention_norm(x_BSD))
        with jax.named_scope("mlp"):
            return x_BSD + self.mlp(self.mlp_norm(x_BSD))


class Transformer(nnx.Module):
    """tokens_BS -> logits_BSV float32. Build it under `jax.set_mesh(mesh)`."""

    def __init__(self, config: ModelConfig, layout: Layout, key: jax.Array):
        self.config, self.layout = config, layout
        embed_key, head_key, blocks_key = jax.random.split(key, 3)
        self.embedding = Embedding(config, layout, embed_key)
        make_block = lambda key: Block(config, layout, key)
        self.layers = jax.vmap(make_block)(jax.random.split(blocks_key, config.n_layers))
        self.final_norm = Norm(config, layout, config.d_model)
        shape = (config.vocab_size, config.d_model)
        tied = config.tied_embeddings
        self.head_VD = None if tied else matrix(layout, head_key, shape, ("vocab", "embed"))

    def __call__(self, tokens_BS: jax.Array) -> jax.Array:
        layout = self.layout
        with jax.named_scope("embed"):
            x_BSD = self.embedding(tokens_BS)
        apply = rematerialized(lambda x_BSD, block: (block(x_BSD), None), layout)
        with jax.named_scope("layers"):
            x_BSD, _ = jax.lax.scan(apply, x_BSD, self.layers)
        with jax.named_scope("head"):
            x_BSD = layout.place(self.final_norm(x_BSD), "batch", sequence_dim(layout), None)
            head = self.embedding.table_VD if self.head_VD is None else self.head_VD
            return logits(layout, x_BSD, head[...])
