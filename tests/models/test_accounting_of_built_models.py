"""The accounting, which imports no jax, against the models that jax builds and differentiates.

Parameters: sizes of the abstract Transformer. FLOPs: 2 x (elements of the result) x (contracted
length) for each product in the jaxpr, times the iterations of the loops around it.
"""

import functools
import math
from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn
from jax.tree_util import keystr, tree_flatten_with_path

from meshes.devices import abstract_mesh
from meshes.rules import make_rules
from meshes.shape import MeshShape
from models.accounting import count_parameters, forward_flops, train_flops
from models.config import ModelConfig
from models.head import cross_entropy
from models.layout import Layout
from models.presets import preset, preset_names
from models.transformer import Transformer

BUILT = [name for name in preset_names() if not preset(name).moe and not preset(name).mla]
COMPONENTS = {  # ours -> the model's
    "token_embedding": "embedding/table",
    "position_table": "embedding/positions",
    "norm1": "layers/attention_norm",
    "q": "layers/attention/query_D layers/attention/query_bias",
    "k": "layers/attention/key_D layers/attention/key_bias",
    "v": "layers/attention/value_D layers/attention/value_bias",
    "o": "layers/attention/out_",
    "q_norm": "layers/attention/query_norm",
    "k_norm": "layers/attention/key_norm",
    "norm2": "layers/mlp_norm",
    "gate": "layers/mlp/gate_",
    "up": "layers/mlp/up_",
    "down": "layers/mlp/down_",
    "final_norm": "final_norm",
    "output_head": "head_",
}

BATCH, SEQ = 8, 16
SHAPE = functools.partial(ModelConfig, vocab_size=48, d_model=32, n_layers=3, n_heads=8, d_ff=80)
MODELS = {
    "llama": SHAPE(n_kv_heads=2),
    "gpt": SHAPE(
        mlp="gelu",
        norm="layernorm",
        positions="learned",
        max_positions=SEQ,
        bias=True,
        tied_embeddings=True,
    ),
    "qwen": SHAPE(n_kv_heads=4, head_dim=16, qk_norm=True, tied_embeddings=True),
    "window": SHAPE(n_kv_heads=4, mlp="relu", sliding_window=5, norm="layernorm", bias=True),
}
MESHES = {"one": MeshShape(), "data2-fsdp2-tensor2": MeshShape(data=2, fsdp=2, tensor=2)}


def layout(mesh: MeshShape, remat: str = "none") -> Layout:
    return Layout(make_rules(mesh, sequence_parallel=True), "bf16", remat, "xla")


def abstract(config: ModelConfig, layout: Layout) -> Transformer:
    return jax.eval_shape(lambda: Transformer(config, layout, jax.random.key(0)))


@pytest.mark.parametrize("name", BUILT)
def test_parameters_equal_those_of_the_built_model(name: str) -> None:
    config = preset(name)
    with jax.sharding.use_abstract_mesh(abstract_mesh(MeshShape())):
        leaves, _ = tree_flatten_with_path(abstract(config, layout(MeshShape())))
    built: Counter = Counter()
    for path, leaf in leaves:
        place = keystr(path, simple=True, separator="/")
        (component,) = [c for c, starts in COMPONENTS.items() if place.startswith(_any(starts))]
        built[component] += math.prod(leaf.shape)
    counted = count_parameters(config)
    assert counted.components == built
    assert counted.total == sum(built.values())


@pytest.mark.parametrize("mesh", MESHES.values(), ids=MESHES)
@pytest.mark.parametrize("config", MODELS.values(), ids=MODELS)
def test_forward_flops_equal_the_products_of_the_jaxpr(
    config: ModelConfig, mesh: MeshShape
) -> None:
    with jax.sharding.use_abstract_mesh(abstract_mesh(mesh)):
        model = abstract(config, layout(mesh))
        jaxpr = jax.make_jaxpr(lambda model, tokens: model(tokens))(model, tokens(mesh))
    assert flops(jaxpr.jaxpr) == forward_flops(config, BATCH, SEQ).total


@pytest.mark.parametrize("mesh", MESHES.values(), ids=MESHES)
@pytest.mark.parametrize("remat", ["none", "selective", "full"])
@pytest.mark.parametrize("config", MODELS.values(), ids=MODELS)
def test_train_flops_equal_the_products_of_the_jaxpr(
    config: ModelConfig, remat: str, mesh: MeshShape
) -> None:
    def loss(model: Transformer, tokens_BS: jax.Array) -> jax.Array:
        return cross_entropy(model(tokens_BS), tokens_BS)

    with jax.sharding.use_abstract_mesh(abstract_mesh(mesh)):
        model = abstract(config, layout(mesh, remat))
        jaxpr = jax.make_jaxpr(jax.value_and_grad(loss))(model, tokens(mesh))
    assert flops(jaxpr.jaxpr) == train_flops(config, BATCH, SEQ, remat).total


def tokens(mesh: MeshShape) -> jax.ShapeDtypeStruct:
    spec = layout(mesh).spec("batch", None)
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
    assert eqn.primitive.name not in ("while", "cond"), "runs of unknown number"
    runs = eqn.params.get("length", 1) if eqn.primitive.name == "scan" else 1
    if eqn.primitive.name == "shard_map":
        runs = eqn.params["mesh"].size  # shapes inside are those of one device
    return runs * sum(flops(inner) for inner in _inner(eqn.params))


def _inner(params: dict[str, Any]) -> list[Jaxpr]:
    found = [getattr(p, "jaxpr", p) if isinstance(p, ClosedJaxpr) else p for p in params.values()]
    return [p for p in found if isinstance(p, Jaxpr)]


def _any(starts: str) -> tuple[str, ...]:
    return tuple(starts.split())
