"""Helpers of the tests that compute on one device."""

import functools

import jax
import numpy as np

from scaling.meshes.rules import make_rules
from scaling.meshes.shape import MeshShape
from scaling.models.config import LayerKind, Moe
from scaling.models.execution import Execution
from scaling.models.moe.routing import Routing
from scaling.models.transformer import Transformer

ONE = MeshShape()
# Kinds of toys: GPT-2's blocks, and DeepSeek-V3's choice of experts.
GPT_KIND = {"mlp": "gelu", "norm": "layernorm", "positions": "learned", "bias": True}
# Gemma's blocks, its layers in turn with a window and without, scores and logits capped.
GEMMA_KIND = {
    **{"mlp": "geglu", "norms": "both", "norm_offset": True, "embedding_scale": True},
    **{"score_dim": 12, "score_softcap": 2.0, "logit_softcap": 3.0, "tied_embeddings": True},
    "layers": (LayerKind(sliding_window=4, rope_theta=100.0), LayerKind()),
}
# gpt-oss's: sinks, biases also of experts, clamped gates.
OSS_KIND = {
    **{"mlp": "clamped_swiglu", "bias": True, "sinks": True},
    "layers": (LayerKind(sliding_window=4), LayerKind()),
}
# Llama 4's: chunks with rotation and tempered queries without, experts in every other layer.
LLAMA4_KIND = {
    **{"unit_heads": True, "temperature": 0.5, "temperature_floor": 3},
    "layers": (LayerKind(attention_chunk=8), LayerKind(is_rotated=False)),
}
LLAMA4_CHOICE = {
    **{"gate": "sigmoid", "normalize_weights": False, "weighs_inputs": True, "every": 2},
    **{"experts_per_token": 1, "n_shared_experts": 1},
}
DEEPSEEK_CHOICE = {"gate": "sigmoid", "selection_bias": True, "n_groups": 4, "groups_per_token": 2}
# Least effort on LLVM's code, which would take longer to make than to run.
jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
FP32 = Execution(make_rules(ONE, sequence_parallel=False), compute="fp32")


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def perturbed(module):
    """Other values than the initial ones and zeros in every parameter."""
    leaves, treedef = jax.tree.flatten(module)
    return treedef.unflatten([x + 0.3 * numbers(*x.shape, seed=i) for i, x in enumerate(leaves)])


def choose(moe: Moe, logits: np.ndarray, bias: np.ndarray | None) -> dict[int, float]:
    """Expert -> weight of one token, decided step by step."""
    e = np.exp(logits - logits.max())
    gates = e / e.sum() if moe.gate == "softmax" else 1 / (1 + np.exp(-logits))
    scores = gates + (0 if bias is None else bias)
    size = moe.n_experts // moe.n_groups
    of_groups = [np.sort(scores[g * size : (g + 1) * size])[-2:].sum() for g in range(moe.n_groups)]
    open_groups = np.argsort(of_groups)[::-1][: moe.groups_per_token]
    allowed = [i for i in range(moe.n_experts) if i // size in open_groups]
    chosen = sorted(allowed, key=lambda i: -scores[i])[: moe.experts_per_token]
    total = sum(gates[i] for i in chosen) if moe.normalize_weights else 1.0
    return {i: float(gates[i] / total * moe.routed_scaling) for i in chosen}


def logits_and_routing(model: Transformer, *arrays: jax.Array) -> tuple[jax.Array, Routing | None]:
    """Logits [B, S, V] of tokens, perhaps of packed documents, and the routing."""
    x_BSD, routing = model.hidden_states(*arrays)
    return model.logits(x_BSD), routing
