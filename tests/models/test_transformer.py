"""The whole model on one device: against a short reference of its own, and its laws.

The reference is plain jax.numpy: a loop over layers, whole arrays, no scan, no shardings.
"""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import keystr, tree_flatten_with_path

from scaling.meshes.rules import make_rules
from scaling.models.config import ModelConfig
from scaling.models.execution import Execution
from scaling.models.head import cross_entropy
from scaling.models.transformer import Transformer
from tests.models.one_device import GPT_KIND, ONE, jit

# Dims: B batch, S sequence, D model, N query heads, M key/value heads, K head dim, V vocabulary

pytestmark = pytest.mark.usefixtures("one_device")
SEQ = 10
_toy = functools.partial(ModelConfig, 32, d_model=24, n_layers=2, n_heads=4, d_ff=40)
LLAMA = _toy(n_kv_heads=2)
GPT = _toy(**GPT_KIND, max_positions=SEQ + 2, tied_embeddings=True)
QWEN = _toy(n_kv_heads=2, head_dim=8, qk_norm=True, qkv_bias=True, sliding_window=3)
BLOCK = ("attention", "mlp")  # first words of a layer's parameters
MODELS = {"llama": LLAMA, "gpt": GPT, "qwen": QWEN}


def build(config: ModelConfig, compute: str = "fp32", remat: str = "none") -> Transformer:
    """A model whose parameters are all random: no zero biases, no scales of one."""
    execution = Execution(make_rules(ONE, sequence_parallel=False), compute=compute, remat=remat)
    shapes = jax.eval_shape(lambda: Transformer(config, execution, jax.random.key(0)))
    noise = np.random.default_rng(0)
    draw = lambda leaf: jnp.asarray(0.3 * noise.standard_normal(leaf.shape), leaf.dtype)
    return jax.tree.map(draw, shapes)


def text(config: ModelConfig) -> np.ndarray:
    return np.random.default_rng(1).integers(config.vocab_size, size=(2, SEQ)).astype(np.int32)


def weights(model: Transformer) -> dict[str, jax.Array]:
    """Parameters by the last word of their path, those of layers stacked: {"up_DF": [L, D, F]}."""
    leaves, _ = tree_flatten_with_path(model)
    names = [keystr(path, simple=True, separator="/") for path, _ in leaves]
    short = [name.replace("layers/", "").removesuffix("/value") for name in names]
    return dict(zip(short, [leaf for _, leaf in leaves], strict=True))


def reference(config: ModelConfig, w: dict[str, jax.Array], tokens_BS: np.ndarray) -> jax.Array:
    """Logits [B, S, V] from the formulas of the papers."""
    x = w["embedding/table_VD"][tokens_BS]
    if config.positions == "learned":
        x = x + w["embedding/positions_TD"][: tokens_BS.shape[1]]
    for i in range(config.n_layers):
        layer = {name: value[i] for name, value in w.items() if name.startswith(BLOCK)}
        x = x + _attention(config, layer, _norm(config, layer, "attention_norm", x))
        x = x + _mlp(config, layer, _norm(config, layer, "mlp_norm", x))
    head = w["embedding/table_VD"] if config.tied_embeddings else w["head_VD"]
    return _norm(config, w, "final_norm", x) @ head.T


def _norm(config: ModelConfig, w: dict, name: str, x: jax.Array, kind: str = "") -> jax.Array:
    if (kind or config.norm) == "layernorm":
        x = x - x.mean(-1, keepdims=True)
    x = x / jnp.sqrt((x**2).mean(-1, keepdims=True) + config.norm_eps) * w[f"{name}/scale"]
    return x + w.get(f"{name}/bias", 0)


def _attention(config: ModelConfig, w: dict, x: jax.Array) -> jax.Array:
    q = jnp.einsum("bsd,dnk->bnsk", x, w["attention/query_DNK"])
    k = jnp.einsum("bsd,dmk->bmsk", x, w["attention/key_DMK"])
    v = jnp.einsum("bsd,dmk->bmsk", x, w["attention/value_DMK"])
    if config.bias or config.qkv_bias:
        q = q + w["attention/query_bias_NK"][:, None]
        k = k + w["attention/key_bias_MK"][:, None]
        v = v + w["attention/value_bias_MK"][:, None]
    if config.qk_norm:
        q = _norm(config, w, "attention/query_norm", q, "rmsnorm")
        k = _norm(config, w, "attention/key_norm", k, "rmsnorm")
    if config.positions == "rope":
        q, k = _rotated(config, q), _rotated(config, k)
    group = config.n_heads // config.n_kv_heads
    k, v = jnp.repeat(k, group, axis=1), jnp.repeat(v, group, axis=1)
    ago = np.arange(x.shape[1])[:, None] - np.arange(x.shape[1])
    seen = (ago >= 0) & (ago < (config.sliding_window or math.inf))
    scores = jnp.where(seen, q @ k.swapaxes(2, 3) / math.sqrt(config.head_dim), -jnp.inf)
    mixed = jax.nn.softmax(scores, axis=-1) @ v
    return jnp.einsum("bnsk,nkd->bsd", mixed, w["attention/out_NKD"]) + w.get(
        "attention/out_bias_D", 0
    )


def _rotated(config: ModelConfig, x_BNSK: jax.Array) -> jax.Array:
    half = config.head_dim // 2
    rates = config.rope_theta ** (-np.arange(half) / half)
    turn = np.exp(1j * np.arange(x_BNSK.shape[2])[:, None] * rates)
    pairs = (x_BNSK[..., :half] + 1j * x_BNSK[..., half:]) * turn
    return jnp.concatenate([pairs.real, pairs.imag], axis=-1)


def _mlp(config: ModelConfig, w: dict, x: jax.Array) -> jax.Array:
    up = x @ w["mlp/up_DF"] + w.get("mlp/up_bias_F", 0)
    if config.mlp == "swiglu":
        hidden = jax.nn.silu(x @ w["mlp/gate_DF"]) * up
    else:
        hidden = jax.nn.gelu(up, approximate=True)
    return hidden @ w["mlp/down_FD"] + w.get("mlp/down_bias_D", 0)


@functools.cache
def computed(config: ModelConfig, compute: str = "fp32", remat: str = "none") -> tuple:
    """Logits, loss and gradients by name, of the model."""
    tokens = text(config)

    def loss(model: Transformer) -> tuple[jax.Array, jax.Array]:
        logits = model(tokens)
        return cross_entropy(logits, tokens)[0], logits

    compute_all = jit(jax.value_and_grad(loss, has_aux=True))
    (value, logits), gradients = compute_all(build(config, compute, remat))
    return logits, value, weights(gradients)


@functools.cache
def expected(config: ModelConfig) -> tuple:
    """The same of the reference."""
    tokens = text(config)

    def loss(w: dict[str, jax.Array]) -> tuple[jax.Array, jax.Array]:
        logits = reference(config, w, tokens)
        picked = jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[..., None], axis=-1)
        return -picked.mean(), logits

    with jax.default_matmul_precision("highest"):
        compute_all = jit(jax.value_and_grad(loss, has_aux=True))
        (value, logits), gradients = compute_all(weights(build(config)))
    return logits, value, gradients


@pytest.mark.parametrize(
    ("name", "remat"),
    [
        pytest.param(name, remat, marks=[pytest.mark.slow] * (remat != "none" and name != "llama"))
        for name in MODELS
        for remat in ("none", "selective", "full")
    ],
)
def test_logits_and_gradients_equal_those_of_the_reference(name: str, remat: str) -> None:
    logits, value, gradients = computed(MODELS[name], "fp32", remat)
    right_logits, right_value, right = expected(MODELS[name])
    np.testing.assert_allclose(logits, right_logits, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(value, right_value, rtol=1e-5)
    assert gradients.keys() == right.keys()
    largest = max(np.abs(gradient).max() for gradient in right.values())
    for key, gradient in gradients.items():
        atol = 1e-4 * np.abs(right[key]).max() + 1e-7 * largest  # 1e-7: what is exactly zero
        np.testing.assert_allclose(gradient, right[key], 1e-3, atol, err_msg=key)


@pytest.mark.parametrize("config, reach", [(LLAMA, SEQ), (QWEN, QWEN.n_layers * 2)])
def test_no_position_sees_later_ones_nor_those_outside_its_window(
    config: ModelConfig, reach: int
) -> None:
    """Each layer looks window - 1 places back."""
    tokens = np.arange(SEQ, dtype=np.int32)[None]  # each once: row i of the table is position i
    model = build(config)

    def outputs(table: jax.Array) -> jax.Array:
        return with_table(model, table)(tokens)[0].sum(-1)

    jacobian = jit(jax.jacrev(outputs))(model.embedding.table_VD[...])
    sees = np.abs(jacobian[:, :SEQ]).max(-1) > 0
    ago = np.arange(SEQ)[:, None] - np.arange(SEQ)
    np.testing.assert_array_equal(sees, (ago >= 0) & (ago <= reach))


def with_table(model: Transformer, table: jax.Array) -> Transformer:
    """The model with another embedding table."""
    paths, treedef = tree_flatten_with_path(model)
    is_table = ["table_VD" in keystr(path) for path, _ in paths]
    leaves = [table if hit else leaf for hit, (_, leaf) in zip(is_table, paths, strict=True)]
    return treedef.unflatten(leaves)


def test_tied_embeddings_share_one_table() -> None:
    _, _, gradients = computed(GPT)
    assert build(GPT).head_VD is None
    assert not [name for name in gradients if name.startswith("head")]
    rows = np.abs(gradients["embedding/table_VD"]).max(axis=-1)
    assert len(np.unique(text(GPT))) < GPT.vocab_size
    assert (rows > 0).all()  # as output head: every row, not only those of tokens that occur


@pytest.mark.parametrize("name", ["llama", "gpt"])
def test_bf16_logits_are_close_to_those_of_fp32(name: str) -> None:
    exact = computed(MODELS[name])[0]
    rounded = jit(lambda model: model(text(MODELS[name])))(build(MODELS[name], "bf16"))
    assert rounded.dtype == np.float32
    error = np.abs(rounded - exact).max() / exact.std()
    assert 1e-4 < error < 0.1  # bf16 has 8 bits, and the roundings of the layers add up


def test_initial_values_have_the_published_scales() -> None:
    """normal(0, 0.02); matrices that write into the residual stream / sqrt(2 layers) (GPT-2)."""
    config = ModelConfig(256, d_model=64, n_layers=8, n_heads=4, d_ff=128, bias=True)
    execution = Execution(make_rules(ONE, sequence_parallel=False), compute="fp32")
    model = weights(jit(lambda: Transformer(config, execution, jax.random.key(0)))())
    for name, value in model.items():
        if "bias" in name or "norm" in name:
            assert (value == (1 if "scale" in name else 0)).all()
        else:
            small = any(part in name for part in ("out_NKD", "down_FD"))
            assert np.std(value) == pytest.approx(0.02 / (4 if small else 1), rel=0.02)
            assert abs(np.mean(value)) < 5e-4
