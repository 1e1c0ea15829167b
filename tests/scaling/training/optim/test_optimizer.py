"""AdamW against its formulas: clipping, decay of matrices only, each step by hand."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from scaling.meshes.devices import abstract_mesh
from scaling.meshes.shape import MeshShape
from scaling.models.config import ModelConfig
from scaling.models.execution import Execution
from scaling.models.presets import preset
from scaling.run import Batch, Run, Train
from scaling.run.parallelism.rules import rules_for
from scaling.training.optim.optimizer import decay_mask, make_optimizer, schedule
from scaling.training.step import abstract_state
from scaling.training.weights.naming import leaf_names

GPT = ModelConfig(
    256,
    d_model=32,
    n_layers=2,
    n_heads=4,
    d_ff=64,
    mlp="gelu",
    norm="layernorm",
    positions="learned",
    max_positions=16,
    bias=True,
)


def params(seed=0):
    """A matrix, a scale and a bias, as the model holds them."""
    draw = np.random.default_rng(seed).normal
    shapes = {
        "matrix": ((6, 4), ("embed", "mlp")),
        "scale": ((6,), ("norm",)),
        "bias": ((3, 2), ("heads", None)),
    }
    return {
        name: nnx.Param(jnp.asarray(draw(size=shape), jnp.float32), dims=dims)
        for name, (shape, dims) in shapes.items()
    }


def arrays(tree):
    return {name: np.asarray(param[...]) for name, param in tree.items()}


def one_update(train, gradients, given_params):
    """Parameters and optimiser state after one update."""
    optimizer = make_optimizer(train)
    updates, state = optimizer.update(gradients, optimizer.init(given_params), given_params)
    return optax.apply_updates(given_params, updates), state


@pytest.mark.parametrize("config", [GPT, preset("tiny"), preset("qwen3-0.6b")])
def test_of_a_whole_model_all_but_norms_and_biases_are_decayed(config):
    mesh = MeshShape()
    run = Run("toy", config, Batch(1, 16))
    with jax.sharding.use_abstract_mesh(abstract_mesh(mesh)):
        model = abstract_state(run, Execution(rules_for(run, mesh), compute="fp32")).params
    flags = dict(zip(leaf_names(model), jax.tree.leaves(decay_mask(model)), strict=True))
    vectors = {name for name in flags if "norm" in name or "bias" in name}
    assert vectors
    assert {name for name, flag in flags.items() if not flag} == vectors


def first_moment(train, gradients):
    """0.1 x the gradient that AdamW was given."""
    _, state = one_update(train, gradients, params())
    return optax.tree_utils.tree_get(state, "mu")


@pytest.mark.parametrize("clip_norm", [0.5, 20.0, 0.0, 1e9])
def test_a_gradient_above_the_norm_asked_for_is_scaled_to_it(clip_norm):
    gradients = jax.tree.map(lambda p: 100 * p, params(1))
    norm = float(optax.tree.norm(gradients))
    factor = min(1.0, clip_norm / norm) if clip_norm else 1.0  # one for all: the direction is kept
    moment = arrays(first_moment(Train(clip_norm=clip_norm), gradients))
    for name, gradient in arrays(gradients).items():
        np.testing.assert_allclose(moment[name], 0.1 * factor * gradient, rtol=1e-5)


def adamw_by_hand(train, start, gradients):
    """arXiv 1711.05101, algorithm 2, with the decay on the matrix only, in float64."""
    weights = {name: value.astype(np.float64) for name, value in start.items()}
    mean = {name: np.zeros_like(value) for name, value in weights.items()}
    square = {name: np.zeros_like(value) for name, value in weights.items()}
    for count, gradient in enumerate(gradients, 1):
        rate = float(schedule(train)(count - 1))
        norm = math.sqrt(sum(float(np.sum(g.astype(np.float64) ** 2)) for g in gradient.values()))
        scale = min(1.0, train.clip_norm / norm)
        for name in weights:
            clipped = gradient[name].astype(np.float64) * scale
            mean[name] = 0.9 * mean[name] + 0.1 * clipped
            square[name] = 0.95 * square[name] + 0.05 * clipped**2
            step = mean[name] / (1 - 0.9**count)
            step /= np.sqrt(square[name] / (1 - 0.95**count)) + 1e-8
            decay = train.weight_decay if name == "matrix" else 0.0
            weights[name] = weights[name] - rate * (step + decay * weights[name])
    return weights


def test_five_steps_are_those_of_the_paper():
    train = Train(steps=5, warmup_steps=2, learning_rate=1e-2, weight_decay=0.1, clip_norm=4.0)
    optimizer, weights = make_optimizer(train), params()
    state, start, gradients = optimizer.init(weights), arrays(weights), []
    for seed in range(1, 6):
        gradient = params(seed)
        gradients.append(arrays(gradient))
        updates, state = optimizer.update(gradient, state, weights)
        weights = optax.apply_updates(weights, updates)
    expected = adamw_by_hand(train, start, gradients)
    for name, value in arrays(weights).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=1e-7)
