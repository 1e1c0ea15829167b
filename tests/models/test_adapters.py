"""Adapters: which matrices have them, and the same model when they are merged."""

import dataclasses

import jax
import numpy as np
import pytest

from scaling.meshes.devices import host_mesh
from scaling.meshes.errors import InputError
from scaling.models.adapters import merged, without_adapters
from scaling.models.config import ModelConfig, Moe
from scaling.models.lora import Lora, adaptable, adapter_parameters, check_lora
from scaling.models.transformer import Transformer
from scaling.training.weights.naming import leaf_names
from tests.harness import MODELS, Case, execution_of

TOKENS = np.arange(24, dtype=np.int32).reshape(2, 12)


def noisy(model, lora):
    """The model on one device, its adapters filled with noise."""
    run = Case(model=model).run
    execution = dataclasses.replace(execution_of(run), lora=lora)
    params = Transformer(run.model, execution, jax.random.key(0))
    draw = np.random.default_rng(0)
    names = iter(leaf_names(params))
    fill = lambda x: x + draw.normal(0, 0.1, x.shape).astype(x.dtype) * next(names).endswith("/b")
    return jax.tree.map(fill, params)


@pytest.mark.parametrize(
    "model",
    [
        "odd",
        *(pytest.param(m, marks=pytest.mark.slow) for m in ("gpt", "latent", "direct", "mixtral")),
    ],
)
def test_the_merged_model_computes_what_the_adapters_compute(model):
    config = MODELS[model]
    lora = Lora(4, 8.0, tuple(adaptable(config)))
    with jax.set_mesh(host_mesh(Case().run.mesh)):
        params = noisy(model, lora)
        call = jax.jit(lambda params: params(TOKENS))
        adapted, whole, base = map(call, (params, merged(params), without_adapters(params)))
    count = sum(
        x.size
        for n, x in zip(leaf_names(params), jax.tree.leaves(params), strict=True)
        if "adapters" in n
    )
    assert count == adapter_parameters(lora, config)
    np.testing.assert_allclose(whole, adapted, rtol=1e-4, atol=1e-5)
    assert np.abs(adapted - base).max() > 100 * np.abs(whole - adapted).max()


CONFIG = ModelConfig(128, d_model=64, n_layers=2, n_heads=8, d_ff=32, n_kv_heads=2)


@pytest.mark.parametrize(
    ("lora", "moe", "message"),
    [
        (Lora(targets=("q_proj",)), None, "no matrix q_proj in this model; there are query, key"),
        (Lora(targets=()), None, "none is named; there are query"),
        (
            Lora(targets=("router",)),
            Moe(4, 2, 32),
            "no matrix router .*routers and shared experts have no adapters",
        ),
        (
            Lora(17, targets=("query", "key")),
            None,
            "rank=17 is above the rank of key, 64 x 16; .*16",
        ),
    ],
)
def test_what_cannot_be_adapted_is_said_with_the_names_there_are(lora, moe, message):
    with pytest.raises(InputError, match=message):
        check_lora(lora, dataclasses.replace(CONFIG, moe=moe))


@pytest.mark.parametrize(("rank", "alpha"), [(0, 1.0), (4, -1.0), (4, 0.0)])
def test_a_rank_is_at_least_1_and_alpha_above_0(rank, alpha):
    with pytest.raises(InputError, match="rank|alpha"):
        Lora(rank, alpha)
