"""The accounting, which imports no jax, against the models that jax builds and differentiates.

Parameters: sizes of the abstract Transformer. FLOPs: 2 x (elements of the result) x (contracted
length) for each product in the jaxpr, times the iterations of the loops around it.
"""

import functools
import math
from collections import Counter
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn
from jax.tree_util import keystr, tree_flatten_with_path

from scaling.meshes.devices import abstract_mesh
from scaling.meshes.rules import make_rules
from scaling.meshes.shape import MeshShape
from scaling.models.accounting import count_parameters, train_flops
from scaling.models.accounting.expert_buffers import buffer_rows
from scaling.models.accounting.remat import HIDDEN, Remat, SavedTensors, tensor_names
from scaling.models.config import Mla, ModelConfig, Moe
from scaling.models.execution import Execution
from scaling.models.head import cross_entropy
from scaling.models.presets import preset, preset_names
from scaling.models.transformer import Transformer
from tests.models.one_device import (
    DEEPSEEK_CHOICE,
    GEMMA_KIND,
    GPT_KIND,
    LLAMA4_CHOICE,
    LLAMA4_KIND,
    OSS_KIND,
)

KINDS = "tiny-moe gpt2-124m gpt-305m llama3-1b qwen2.5-7b qwen3-30b-a3b deepseek-v3".split()
COMPONENTS = {  # ours -> the model's, dense_layers counted as layers
    "token_embedding": "embedding/table",
    "position_table": "embedding/positions",
    "norm1": "layers/attention_norm",
    "q": "layers/attention/query_D layers/attention/query_bias",
    "k": "layers/attention/key_D layers/attention/key_bias",
    "v": "layers/attention/value_D layers/attention/value_bias",
    "o": "layers/attention/out_",
    "q_a": "layers/attention/query_a_DR",
    "q_b": "layers/attention/query_b_RNK",
    "kv_a": "layers/attention/kv_a_DR",
    "kv_b": "layers/attention/kv_b_RNK",
    "q_a_norm": "layers/attention/query_a_norm",
    "kv_a_norm": "layers/attention/kv_a_norm",
    "q_norm": "layers/attention/query_norm",
    "k_norm": "layers/attention/key_norm",
    "norm2": "layers/mlp_norm",
    "post_norm1": "layers/attention_post_norm",
    "post_norm2": "layers/mlp_post_norm",
    "gate": "layers/mlp/gate_DF layers/mlp/gate_bias_F/",
    "up": "layers/mlp/up_DF layers/mlp/up_bias_F/",
    "down": "layers/mlp/down_FD layers/mlp/down_bias_D/",
    "router": "layers/mlp/router_DE layers/mlp/logit_bias",
    "sinks": "layers/attention/sinks",
    "router_bias": "layers/mlp/router_bias",
    "expert_gate": "layers/mlp/gate_EDF layers/mlp/gate_bias_EF",
    "expert_up": "layers/mlp/up_EDF layers/mlp/up_bias_EF",
    "expert_down": "layers/mlp/down_EFD layers/mlp/down_bias_ED",
    "shared_gate": "layers/mlp/shared_gate",
    "shared_up": "layers/mlp/shared_up",
    "shared_down": "layers/mlp/shared_down",
    "final_norm": "final_norm",
    "output_head": "head_",
}

BATCH, SEQ = 8, 16
SHAPE = functools.partial(ModelConfig, vocab_size=48, d_model=32, n_layers=3, n_heads=8, d_ff=80)
MODELS = {
    "llama": SHAPE(n_kv_heads=2),
    "gpt": SHAPE(**GPT_KIND, max_positions=SEQ, tied_embeddings=True),
    "qwen": SHAPE(n_kv_heads=4, head_dim=16, qk_norm=True, tied_embeddings=True),
    "gemma": SHAPE(n_kv_heads=2, **GEMMA_KIND),
    "olmo": SHAPE(qk_norm=True, qk_norm_over="projection", norms="after"),
    "window": SHAPE(n_kv_heads=4, mlp="relu", sliding_window=5, norm="layernorm", bias=True),
}
EXPERTS = {
    "mixtral": Moe(4, 2, d_ff_expert=24),
    "deepseek": Moe(8, 3, 16, n_shared_experts=2, first_dense_layers=1, **DEEPSEEK_CHOICE),
}
MODELS |= {name: SHAPE(n_kv_heads=2, moe=moe) for name, moe in EXPERTS.items()}
MODELS["gpt-oss"] = SHAPE(n_layers=4, n_kv_heads=4, moe=EXPERTS["mixtral"], **OSS_KIND)
LATENT = Mla(12, 10, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=8)
MODELS |= {
    "latent": SHAPE(mla=LATENT),
    "direct": SHAPE(mla=replace(LATENT, q_lora_rank=None), moe=EXPERTS["deepseek"]),
}
MODELS["llama-4"] = SHAPE(
    n_layers=4, n_kv_heads=2, moe=Moe(4, d_ff_expert=24, **LLAMA4_CHOICE), **LLAMA4_KIND
)
MESHES = {"one": MeshShape(), "data2-fsdp2-tensor2": MeshShape(data=2, fsdp=2, tensor=2)}


def execution(mesh: MeshShape, remat: Remat = "none") -> Execution:
    return Execution(make_rules(mesh, sequence_parallel=True), compute="bf16", remat=remat)


def abstract(config: ModelConfig, execution: Execution) -> Transformer:
    return jax.eval_shape(lambda: Transformer(config, execution, jax.random.key(0)))


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n not in KINDS)) for n in preset_names()]
)
def test_parameters_equal_those_of_the_built_model(name: str) -> None:
    config = preset(name)
    with jax.sharding.use_abstract_mesh(abstract_mesh(MeshShape())):
        leaves, _ = tree_flatten_with_path(abstract(config, execution(MeshShape())))
    built: Counter = Counter()
    for path, leaf in leaves:
        place = (
            keystr(path, simple=True, separator="/").removeprefix("dense_").removeprefix("last_")
        )
        (component,) = [c for c, starts in COMPONENTS.items() if place.startswith(_any(starts))]
        built[component] += math.prod(leaf.shape)
    counted = count_parameters(config)
    assert counted.components == built
    assert counted.total == sum(built.values())


TRAINED = [  # every model on one mesh with one remat policy in turn; the long tier has the rest
    pytest.param(
        config,
        remat,
        mesh,
        id=f"{model}-{remat}-{name}",
        marks=[pytest.mark.slow] * ((i + j) % 3 > 0 or i % 2 != k),
    )
    for k, (name, mesh) in enumerate(MESHES.items())
    for i, (model, config) in enumerate(MODELS.items())
    for j, remat in enumerate(("none", "selective", "full"))
]


# Of each model some subsets of the tensors that a policy can name, the same in every execution.
CHOSEN = np.random.default_rng(0)


def drawn(config: ModelConfig) -> SavedTensors:
    """A subset, with both hidden tensors of dropless experts or none: the kernels, which are
    counted, compute both again where one is missing; what replaces them here only that one."""
    names = {name for name in tensor_names(config) if CHOSEN.random() < 0.5}
    if config.moe and not names >= set(HIDDEN):
        names -= set(HIDDEN)
    return SavedTensors(tuple(name for name in tensor_names(config) if name in names))


LISTED = [
    pytest.param(
        config,
        drawn(config),
        MESHES["one"],
        id=f"{model}-list-{n}",
        marks=[pytest.mark.slow] * (n > 0 or i % 2),
    )
    for i, (model, config) in enumerate(MODELS.items())
    for n in range(4)
]


@pytest.mark.parametrize(("config", "remat", "mesh"), [*TRAINED, *LISTED])
def test_train_flops_equal_the_products_of_the_jaxpr(
    config: ModelConfig, remat: Remat, mesh: MeshShape
) -> None:
    def loss(model: Transformer, tokens_BS: jax.Array) -> jax.Array:
        return cross_entropy(model(tokens_BS), tokens_BS)[0]

    with jax.sharding.use_abstract_mesh(abstract_mesh(mesh)):
        model = abstract(config, execution(mesh, remat))
        jaxpr = jax.make_jaxpr(jax.value_and_grad(loss))(model, tokens(mesh))
    assert flops(jaxpr.jaxpr) == train_flops(config, BATCH, SEQ, remat).total


@pytest.mark.parametrize(
    ("name", "capacity_factor"), [("mixtral", None), ("mixtral", 0.5), ("deepseek", 1.25)]
)
def test_buffers_cost_their_empty_rows(name: str, capacity_factor: float | None) -> None:
    """Over `expert`, or with a capacity factor, experts' products have as many rows as buffers."""
    mesh = MeshShape(data=2, expert=2, tensor=2)
    config = replace(MODELS[name], moe=replace(EXPERTS[name], capacity_factor=capacity_factor))
    with jax.sharding.use_abstract_mesh(abstract_mesh(mesh)):
        model = abstract(config, execution(mesh, "full"))
        forward = lambda model, tokens: jnp.sum(model(tokens))
        jaxpr = jax.make_jaxpr(jax.grad(forward))(model, tokens(mesh))
    local = BATCH * SEQ // 4
    padding = buffer_rows(config.moe, local, 2) / (local * config.moe.experts_per_token)
    credited = train_flops(config, BATCH, SEQ, "full").components
    padded = {n: padding * f if n.startswith("expert_") else f for n, f in credited.items()}
    assert flops(jaxpr.jaxpr) == sum(padded.values())


def tokens(mesh: MeshShape) -> jax.ShapeDtypeStruct:
    spec = execution(mesh).spec("batch", None)
    sharding = jax.NamedSharding(abstract_mesh(mesh), spec)
    return jax.ShapeDtypeStruct((BATCH, SEQ), jnp.int32, sharding=sharding)


def flops(jaxpr: Jaxpr) -> int:
    """FLOPs of the products in a jaxpr, on all devices."""
    return sum(_equation(eqn) for eqn in jaxpr.eqns)


def _equation(eqn: JaxprEqn) -> int:
    """A product's own FLOPs, or those of the programs inside an equation, times their runs."""
    if eqn.primitive.name == "dot_general":
        (contracted, _), _ = eqn.params["dimension_numbers"]
        lengths = [eqn.invars[0].aval.shape[dim] for dim in contracted]
        return 2 * math.prod(lengths) * math.prod(eqn.outvars[0].aval.shape)
    if eqn.primitive.name == "ragged_dot_general":
        return _ragged(eqn)
    assert eqn.primitive.name not in ("while", "cond"), "runs of unknown number"
    runs = eqn.params.get("length", 1) if eqn.primitive.name == "scan" else 1
    if eqn.primitive.name == "shard_map":
        runs = eqn.params["mesh"].size  # shapes inside are those of one device
    return runs * sum(flops(inner) for inner in _inner(eqn.params))


def _ragged(eqn: JaxprEqn) -> int:
    """2 x rows x inputs x outputs, each row counted for one expert: rows are ragged in all three
    forms, contracted in the weight's gradient."""
    dims = eqn.params["ragged_dot_dimension_numbers"]
    (contracted, _), _ = dims.dot_dimension_numbers
    rows, *others = eqn.invars[0].aval.shape
    assert dims.lhs_ragged_dimensions == (0,) or list(dims.lhs_ragged_dimensions) == [0]
    if 0 in contracted:  # the weight's gradient [E, inputs, outputs]
        return 2 * rows * math.prod(eqn.outvars[0].aval.shape[1:])
    return 2 * rows * math.prod(others) * eqn.outvars[0].aval.shape[1]


def _inner(params: dict[str, Any]) -> list[Jaxpr]:
    found = [getattr(p, "jaxpr", p) if isinstance(p, ClosedJaxpr) else p for p in params.values()]
    return [p for p in found if isinstance(p, Jaxpr)]


def _any(starts: str) -> tuple[str, ...]:
    return tuple(starts.split())
