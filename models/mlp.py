"""The feed-forward network: SwiGLU, GEGLU (arXiv 2002.05202), GELU (tanh form) or ReLU.

swiglu, geglu:  (act(x gate) * (x up)) down          gelu, relu:  act(x up) down
clamped_swiglu: g = min(x gate, 7), u = x up within 7 of 0:  (g sigmoid(1.702 g) * (u + 1)) down
                (gpt-oss, openai/gpt-oss: gpt_oss/torch/model.py, swiglu)
"""

# Dims: B batch, S sequence, D model, F hidden

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

from scaling.models.adapters import adapted, adapted_product, adapters_of
from scaling.models.config import ModelConfig
from scaling.models.execution import Execution
from scaling.models.initializers import add_bias, bias, matrix, residual_std
from scaling.models.sharding import project

CLAMP, STEEPNESS = 7.0, 1.702  # of clamped_swiglu
ACTIVATIONS = {
    "swiglu": jax.nn.silu,
    "geglu": jax.nn.gelu,
    "gelu": jax.nn.gelu,
    "relu": jax.nn.relu,
}


class Mlp(nnx.Module):
    """x_BSD -> [B, S, D]; hidden units are sharded over `tensor`.

    Communication: all-gather of x over `tensor` along the sequence (if sequence-parallel), then
    reduce-scatter (else all-reduce) of the result; the backward pass does the reverse.
    """

    def __init__(self, config: ModelConfig, execution: Execution, key: jax.Array):
        D, F = config.d_model, config.d_ff
        self.execution, self.kind = execution, config.mlp
        keys = jax.random.split(key, 3)
        std = residual_std(config.n_layers)
        gated = config.is_gated
        self.up_DF = matrix(execution.rules, keys[0], (D, F), ("embed", "mlp"))
        self.gate_DF = matrix(execution.rules, keys[1], (D, F), ("embed", "mlp")) if gated else None
        self.down_FD = matrix(execution.rules, keys[2], (F, D), ("mlp", "embed"), std)
        self.up_bias_F = bias(config.bias, execution.rules, (F,), ("mlp",))
        self.gate_bias_F = bias(config.bias, execution.rules, (F,), ("mlp",)) if gated else None
        self.down_bias_D = bias(config.bias, execution.rules, (D,), (None,))
        self.adapters = adapters_of(execution, key, self)

    def __call__(self, x_BSD: jax.Array) -> jax.Array:
        x_BSD = self.execution.place(x_BSD, "batch", "sequence", None)
        hidden = self._hidden(x_BSD)
        up_BSF = checkpoint_name(add_bias(hidden[0], self.up_bias_F), "mlp_up")
        if self.gate_DF is None:
            h_BSF = _saving_inputs(ACTIVATIONS[self.kind])(up_BSF)
        else:
            gate_BSF = checkpoint_name(add_bias(hidden[1], self.gate_bias_F), "mlp_gate")
            h_BSF = _saving_inputs(gated_units(self.kind))(gate_BSF, up_BSF)
        out = ("stream", "residual", None)
        y_BSD = adapted_product(self, "bsf,fd->bsd", h_BSF, "down_FD", out, partial=True)
        return add_bias(y_BSD, self.down_bias_D)

    def _hidden(self, x_BSD: jax.Array) -> list[jax.Array]:
        """x up and, if gated, x gate, [B, S, F] each: one product, and their adapters'."""
        weights = tuple(w[...] for w in (self.up_DF, self.gate_DF) if w is not None)
        columns = lambda weights: tuple(w[:, None] for w in weights)
        dims, out = ("embed", None, "mlp"), ("batch", "sequence", None, "mlp")
        y_BSCF = project(self.execution, "bsd,dcf->bscf", x_BSD, weights, dims, out, shape=columns)
        parts = (y[:, :, 0] for y in jnp.split(y_BSCF, len(weights), axis=2))
        named = dict(zip(("up_DF", "gate_DF"), parts, strict=False))
        hidden = ("batch", "sequence", "mlp")
        return adapted(self.adapters, self.execution, x_BSD, named, hidden)


def gated_units(kind: str) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """The hidden units of a gated MLP as a function of x gate and x up."""
    if kind != "clamped_swiglu":
        return lambda gate, up: ACTIVATIONS[kind](gate) * up

    def clamped(gate: jax.Array, up: jax.Array) -> jax.Array:
        gate, up = jnp.minimum(gate, CLAMP), jnp.clip(up, -CLAMP, CLAMP)
        return gate * jax.nn.sigmoid(STEEPNESS * gate) * (up + 1)

    return clamped


def _saving_inputs(activation: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """An elementwise function that saves only its inputs for the backward pass."""
    return jax.checkpoint(activation, prevent_cse=False)
