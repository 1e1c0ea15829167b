"""Logits from a cache equal those of the whole model, at every position."""

import functools
from dataclasses import replace

import jax
import numpy as np
import pytest

from scaling.meshes.devices import host_mesh
from scaling.meshes.errors import InputError
from scaling.meshes.rules import make_rules
from scaling.meshes.shape import MeshShape
from scaling.models.config import Mla, ModelConfig, Moe, Yarn
from scaling.models.decode import decode_step, empty_cache
from scaling.models.execution import Execution
from scaling.models.transformer import Transformer
from tests.models.one_device import GEMMA_KIND, GPT_KIND, LLAMA4_CHOICE, LLAMA4_KIND, OSS_KIND

QUICK = {"xla_backend_optimization_level": 0}  # of LLVM's code, not of XLA's program
BATCH, LENGTH, PROMPT = 4, 12, 5
RTOL, ATOL = 1e-4, 1e-5
ONE = MeshShape()
MLA = Mla(12, 8, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=10)
DEEPSEEK = Moe(8, 3, d_ff_expert=16, n_shared_experts=1, first_dense_layers=1, gate="sigmoid")
_toy = functools.partial(ModelConfig, 48, d_model=32, n_layers=2, n_heads=4, d_ff=40)
MODELS = {
    "grouped-window": _toy(n_kv_heads=2, sliding_window=4, qk_norm=True, tied_embeddings=True),
    "gpt": _toy(**GPT_KIND, max_positions=LENGTH),
    "latent-experts": _toy(mla=MLA, moe=DEEPSEEK, yarn=Yarn(4.0, 8, mscale_all_dim=1.0)),
    "direct-window": _toy(mla=Mla(None, 8, 6, 4, 10), sliding_window=4),
    "yarn-experts": _toy(n_kv_heads=2, moe=Moe(4, 2), yarn=Yarn(4.0, 8)),
    "gemma": replace(_toy(n_kv_heads=2, **GEMMA_KIND), n_layers=3),
    "gpt-oss": _toy(n_kv_heads=2, moe=Moe(4, 2), **OSS_KIND),
    "llama-4": replace(_toy(n_kv_heads=2, moe=Moe(4, **LLAMA4_CHOICE), **LLAMA4_KIND), n_layers=4),
    "no-positions": _toy(n_kv_heads=1, positions="none"),
}
FAST = {
    ("grouped-window", MeshShape(data=2, tensor=2)),
    ("gpt", ONE),
    ("direct-window", ONE),
}
MESHES = ONE, MeshShape(data=2, tensor=2), MeshShape(fsdp=2, tensor=2), MeshShape(data=2, expert=2)
CASES = [
    pytest.param(
        name, mesh, id=f"{name}-{mesh}", marks=() if (name, mesh) in FAST else pytest.mark.slow
    )
    for name in MODELS
    for mesh in MESHES
    if MODELS[name].n_kv_heads % mesh.tensor == 0
]


def built(config: ModelConfig, execution: Execution) -> Transformer:
    """Random parameters, norms and biases included."""
    init = jax.jit(lambda: Transformer(config, execution, jax.random.key(0)))
    model = init.lower().compile(compiler_options=QUICK)()
    random = np.random.default_rng(0)
    noisy = lambda x: jax.device_put(
        np.asarray(x) + np.float32(0.2 * random.standard_normal(x.shape)), x.sharding
    )
    return jax.tree.map(noisy, model)


def decoded_logits(model, cache, tokens, start):
    x, cache = decode_step(model, cache, tokens, start)
    return model.logits(x), cache


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_logits_from_the_cache_are_those_of_the_whole_model(name: str, shape: MeshShape) -> None:
    """Prompts of several lengths at once, padded with anything, then token by token."""
    config, execution = (
        MODELS[name],
        Execution(make_rules(shape, sequence_parallel=False), compute="fp32"),
    )
    mesh = host_mesh(shape)
    with jax.set_mesh(mesh):
        model = built(config, execution)
        random = np.random.default_rng(1)
        text = random.integers(config.vocab_size, size=(BATCH, LENGTH)).astype(np.int32)
        put = lambda x: jax.device_put(x, jax.NamedSharding(mesh, execution.spec("batch")))
        whole = jax.jit(lambda model, tokens: model(tokens))
        whole = whole.lower(model, put(text)).compile(compiler_options=QUICK)
        expected = np.asarray(whole(model, put(text)))
        cache = empty_cache(config, execution, BATCH, LENGTH)
        step = jax.jit(decoded_logits)
        steps = {
            tokens: step.lower(model, cache, put(text[:, :tokens]), put(text[:, 0])).compile(
                compiler_options=QUICK
            )
            for tokens in (1, PROMPT)
        }
        places = np.array([PROMPT, 1, 3, 2], np.int32)  # lengths of the prompts
        first = np.where(np.arange(PROMPT) < places[:, None], text[:, :PROMPT], 7)
        logits, cache = steps[PROMPT](model, cache, put(first), put(0 * places))
        found = np.zeros_like(expected)
        found[:, :PROMPT] = logits  # what is behind a prompt's end is replaced below
        while (places < LENGTH).any():
            at = np.minimum(places, LENGTH - 1)[:, None]
            token = np.take_along_axis(text, at, axis=1)
            logits, cache = steps[1](model, cache, put(token), put(at[:, 0]))
            np.put_along_axis(found, at[..., None], np.asarray(logits), axis=1)
            places = places + 1
    np.testing.assert_allclose(found, expected, RTOL, ATOL)


@pytest.mark.parametrize("name", MODELS)
def test_the_cache_holds_keys_and_values_or_latents(name: str) -> None:
    config = MODELS[name]
    for shape in (ONE, MeshShape(data=2, tensor=2)):
        if config.n_kv_heads % shape.tensor:
            continue
        with jax.set_mesh(host_mesh(shape)):
            execution = Execution(make_rules(shape, sequence_parallel=False), compute="bf16")
            cache = empty_cache(config, execution, BATCH, LENGTH)
        leaves = jax.tree.leaves(cache)
        per_layer = 2 * config.n_kv_heads * config.head_dim  # keys and values of a position
        if config.mla:
            per_layer = config.mla.kv_lora_rank + config.mla.qk_rope_head_dim
        expected = BATCH * LENGTH * config.n_layers * per_layer * 2  # bf16
        assert sum(leaf.nbytes for leaf in leaves) == expected
        parts = shape.data * (1 if config.mla else shape.tensor)
        assert all(x.addressable_shards[0].data.nbytes * parts == x.nbytes for x in leaves)


def test_a_mesh_that_shards_the_sequence_has_no_cache() -> None:
    execution = Execution(make_rules(MeshShape(tensor=2), sequence_parallel=True), compute="fp32")
    with pytest.raises(InputError, match="without context and sequence parallelism"):
        empty_cache(MODELS["gpt"], execution, BATCH, LENGTH)


def test_more_positions_than_were_learned_are_refused() -> None:
    execution = Execution(make_rules(ONE, sequence_parallel=False), compute="fp32")
    with pytest.raises(InputError, match="13 positions are beyond the model's 12 learned"):
        empty_cache(MODELS["gpt"], execution, BATCH, LENGTH + 1)
