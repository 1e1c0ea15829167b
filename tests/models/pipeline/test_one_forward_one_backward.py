"""1F1B against the gradient of all microbatches one after the other, and what it keeps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P
from jax.sharding import reshard

from scaling.meshes.devices import host_mesh
from scaling.meshes.shape import MeshShape
from scaling.models.pipeline.one_forward_one_backward import OneForwardOneBackward
from scaling.models.pipeline.schedule import slot_count
from scaling.models.pipeline.shard_map import STAGE

LAYERS, WIDTH, TOKENS = 2, 8, 4


def block(x, w):
    """A layer, and what it returns beside the stream."""
    y = x + jnp.tanh(x @ w)
    return y, jnp.square(y).mean()


def one_after_the_other(table, layers, inputs):
    """Mean loss of all microbatches: layers of stage after stage, each with a balancing loss."""

    def one(tokens):
        x, aux = table[tokens], []
        for stage in range(layers.shape[1]):
            for layer in range(LAYERS):
                x, term = block(x, layers[layer, stage])
                aux.append(term)
        return jnp.square(x @ table.T).mean(), jnp.stack(aux)

    losses, aux = zip(*map(one, inputs), strict=True)
    return sum(losses) / len(inputs) + 0.1 * sum(aux).mean() / len(inputs), sum(losses)


def pipeline(stages, table, layers, inputs):
    def on_stage(x, stage):
        is_there = jnp.arange(stages) == stage
        return jnp.where(reshard(is_there, P(STAGE))[:, None, None], x, 0)

    def run(layers, x_P):
        return jax.lax.scan(lambda x_P, w_P: jax.vmap(block)(x_P, w_P), x_P, layers)

    def head(table, y_P, number):
        y = on_stage(y_P, stages - 1).sum(axis=0)
        loss = jnp.square(y @ table.T).mean()
        return loss / len(inputs), loss

    def hop(x_P, shift):
        pairs = [(i, i + shift) for i in range(stages) if 0 <= i + shift < stages]
        move = lambda x_1: jax.lax.ppermute(x_1, STAGE, pairs)
        return jax.shard_map(move, in_specs=P(STAGE), out_specs=P(STAGE))(x_P)

    def embed(table, number):
        x = jnp.broadcast_to(table[inputs[number]], (stages, TOKENS, WIDTH))
        return on_stage(reshard(x, P(STAGE)), 0)

    balance = lambda aux: 0.1 * aux.mean() / len(inputs)
    return OneForwardOneBackward(
        stages, len(inputs), table, layers, embed, run, head, hop, balance
    ).sums_and_gradients()


def arguments(stages, microbatches):
    noise = np.random.default_rng(0)
    table = jnp.asarray(noise.standard_normal((16, WIDTH)), jnp.float32)
    layers = jnp.asarray(noise.standard_normal((LAYERS, stages, WIDTH, WIDTH)), jnp.float32)
    return table, layers, jnp.asarray(noise.integers(16, size=(microbatches, TOKENS)))


@pytest.mark.parametrize(
    ("stages", "microbatches"),
    [
        *((2, 1), (4, 3), (4, 8)),
        *(pytest.param(*n, marks=pytest.mark.slow) for n in ((2, 2), (4, 1), (4, 6), (4, 7))),
    ],
)
def test_gradients_are_those_of_microbatches_one_after_the_other(stages, microbatches):
    """With fewer microbatches than stages, as many slots as microbatches, and slots used again."""
    table, layers, inputs = arguments(stages, microbatches)
    find = jax.value_and_grad(one_after_the_other, argnums=(0, 1), has_aux=True)
    (total, losses), expected = find(table, layers, inputs)
    with jax.set_mesh(host_mesh(MeshShape(stage=stages))):
        split = reshard(layers, P(None, STAGE))
        (minimised, reported), aux, found = jax.jit(pipeline, static_argnums=0)(
            stages, table, split, inputs
        )
    assert float(reported) == pytest.approx(float(losses), rel=1e-5)
    mean = aux.mean() / microbatches
    assert float(minimised + 0.1 * mean) == pytest.approx(float(total), rel=1e-5)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_what_is_kept_does_not_grow_with_the_microbatches():
    stages = 2

    def kept(microbatches):
        with jax.set_mesh(host_mesh(MeshShape(stage=stages))):
            table, layers, inputs = arguments(stages, microbatches)
            layers = reshard(layers, P(None, STAGE))
            step = jax.jit(pipeline, static_argnums=0).lower(stages, table, layers, inputs)
            return step.compile().memory_analysis().temp_size_in_bytes

    numbers = 4 * (64 - 4)  # of the iterations
    assert kept(64) <= kept(4) + numbers
    assert [slot_count(4, m) for m in (1, 4, 6, 7, 64)] == [2, 5, 7, 7, 7]
