"""Gradients computed in bf16 are those of fp32 within rounding, also where thousands are added up.

A sum held in bfloat16 stands still once it is 256 times what is added. So whatever adds over tokens
(the rows of frequent tokens, biases, norms) must add in float32. Real text has such tokens: here
every third is the same one.
"""

from dataclasses import replace

import jax
import numpy as np
import pytest

from scaling.meshes.devices import host_mesh
from scaling.meshes.rules import make_rules
from scaling.meshes.shape import parse_mesh
from scaling.models.config import ModelConfig
from scaling.models.execution import Execution
from scaling.models.transformer import Transformer
from scaling.run import Batch
from scaling.train.step import Tokens, abstract_tokens, loss_and_gradients
from scaling.weights.naming import names

BATCH = Batch(global_batch=32, seq_len=128)  # 4,096 tokens
LLAMA = ModelConfig(64, d_model=32, n_layers=2, n_heads=4, d_ff=64, qk_norm=True)
GPT = ModelConfig(
    65,  # not divisible by tensor=2: the table stays whole
    d_model=32,
    n_layers=2,
    n_heads=4,
    d_ff=64,
    mlp="gelu",
    norm="layernorm",
    positions="learned",
    max_positions=128,
    tied_embeddings=True,
    bias=True,
)
TOLERANCE = 0.02  # of a gradient's norm; bf16 keeps 8 bits, the worst seen is 0.008
ZERO = "layers/attention/key_bias_MK"  # softmax does not see it: its gradient is rounding only


def gradients(
    model: ModelConfig, mesh: str, compute: str, zero: int = 3, microbatches: int = 1
) -> dict[str, np.ndarray]:
    shape, batch = parse_mesh(mesh), replace(BATCH, microbatches=microbatches)
    rules = make_rules(shape, True, ("vocab",) if model.vocab_size % 2 else ())
    execution = Execution(rules, compute=compute, zero_stage=zero)
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, model.vocab_size, (1, 32, 129)).astype(np.int32)
    tokens[..., ::3] = 7
    with jax.set_mesh(host_mesh(shape)):
        like = abstract_tokens(batch, execution)
        parts = (x.reshape(like.inputs.shape) for x in (tokens[..., :-1], tokens[..., 1:]))
        placed = Tokens(*(jax.device_put(p, t.sharding) for p, t in zip(parts, like, strict=True)))
        params = jax.jit(lambda: Transformer(model, execution, jax.random.key(0)))()
        _, found = jax.jit(loss_and_gradients)(params, placed)
        return dict(zip(names(found), map(np.asarray, jax.tree.leaves(found)), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mesh", "zero", "microbatches"),
    [
        ("data=1", 3, 1),
        ("data=2,fsdp=2,tensor=2", 3, 1),
        ("data=2,fsdp=2,tensor=2", 1, 8),
        ("fsdp=2,stage=2,tensor=2", 3, 8),
        ("fsdp=2,stage=2,tensor=2", 1, 8),
        ("data=2,fsdp=2,stage=2", 2, 8),
    ],
)
@pytest.mark.parametrize("model", [LLAMA, GPT], ids=["llama", "gpt"])
def test_bf16_gradients_are_the_fp32_ones_within_rounding(model, mesh, zero, microbatches):
    exact = gradients(model, "data=1", "fp32")
    rounded = gradients(model, mesh, "bf16", zero, microbatches)
    errors = {
        name: np.linalg.norm(rounded[name] - exact[name]) / np.linalg.norm(exact[name])
        for name in exact
        if name != ZERO
    }
    assert {name: e for name, e in errors.items() if e > TOLERANCE} == {}
