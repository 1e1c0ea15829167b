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
from scaling.models.transformer import Transformer
from scaling.run import Batch, Precision
from scaling.training.gradients import Tokens, output_and_gradients
from scaling.training.step import abstract_tokens
from tests.harness import MODELS, Case, execution_of, in_layer_order

SEQUENCES, SEQ_LEN = 32, 128  # 4,096 tokens
TOLERANCE = 0.02  # of a gradient's norm; bf16 keeps 8 bits, the worst seen is 0.008
ZERO = "layers/attention/key_bias_MK"  # softmax does not see it: its gradient is rounding only
# The vocabulary is not divisible by tensor=2: the table stays whole.
GPT = replace(MODELS["gpt"], vocab_size=65, max_positions=SEQ_LEN)


def gradients(case: Case, compute: str) -> dict[str, np.ndarray]:
    """Gradients of a case by name, of the model's own initial parameters."""
    model = replace(GPT if case.model == "gpt" else MODELS[case.model], n_layers=2)
    batch = Batch(SEQUENCES, SEQ_LEN, case.microbatches)
    run = replace(case.run, model=model, batch=batch, precision=Precision(compute))
    execution = execution_of(run)
    text = np.random.default_rng(0).integers(0, model.vocab_size, (SEQUENCES, SEQ_LEN + 1))
    text = text.astype(np.int32)
    text[..., ::3] = 7
    with jax.set_mesh(host_mesh(run.mesh)):
        like = abstract_tokens(batch, execution).inputs
        parts = (x.reshape(like.shape) for x in (text[:, :-1], text[:, 1:]))
        tokens = Tokens(*jax.device_put(tuple(parts), like.sharding))
        params = jax.jit(lambda: Transformer(model, execution, jax.random.key(0)))()
        return in_layer_order(run, jax.jit(output_and_gradients)(params, tokens)[1])


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        Case(),
        Case("data=2,fsdp=2,tensor=2"),
        Case("data=2,fsdp=2,tensor=2", microbatches=8, zero=1),
        Case("fsdp=2,stage=2,tensor=2", microbatches=8),
        Case("fsdp=2,stage=2,tensor=2", microbatches=8, zero=1),
    ],
    ids=str,
)
@pytest.mark.parametrize("model", ["llama", "gpt"])
def test_bf16_gradients_equal_fp32_ones_within_rounding(model: str, case: Case) -> None:
    exact = gradients(Case(model=model), "fp32")
    rounded = gradients(replace(case, model=model), "bf16")
    errors = {
        name: np.linalg.norm(rounded[name] - exact[name]) / np.linalg.norm(exact[name])
        for name in exact
        if name != ZERO
    }
    assert {name: e for name, e in errors.items() if e > TOLERANCE} == {}
