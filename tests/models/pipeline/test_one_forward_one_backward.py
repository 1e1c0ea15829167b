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
from scaling.models.pipeline.schedule import PipelineSchedule, layer_order, slot_count
from scaling.models.pipeline.shard_map import STAGE

LAYERS, WIDTH, TOKENS = 2, 8, 4


def block(x, w):
    """A layer, and what it returns beside the stream."""
    y = x + jnp.tanh(x @ w)
    return y, jnp.square(y).mean()


def one_after_the_other(table, layers, inputs):
    """Sums of all microbatches: layers one after the other, each with a balancing loss."""

    def one(tokens):
        x, aux = table[tokens], []
        for layer in layers:
            x, term = block(x, layer)
            aux.append(term)
        return jnp.square(x @ table.T).mean(), jnp.stack(aux)

    losses, aux = zip(*map(one, inputs), strict=True)
    return sum(losses) + 0.1 * sum(aux).mean(), sum(losses)


def pipeline(schedule, table, layers, inputs):
    stages = schedule.stages

    def on_stage(x, stage):
        is_there = jnp.arange(stages) == stage
        return jnp.where(reshard(is_there, P(STAGE))[:, None, None], x, 0)

    def run(layers, x_P, numbers_P):
        return jax.lax.scan(lambda x_P, w_P: jax.vmap(block)(x_P, w_P), x_P, layers)

    def head(table, y_P, number):
        y = on_stage(y_P, stages - 1).sum(axis=0)
        loss = jnp.square(y @ table.T).mean()
        return loss, loss

    def hop(x_P, shift, ring):
        every = [(i, i + shift) for i in range(stages)]
        pairs = [(i, j % stages) for i, j in every if ring or 0 <= j < stages]
        move = lambda x_1: jax.lax.ppermute(x_1, STAGE, pairs)
        return jax.shard_map(move, in_specs=P(STAGE), out_specs=P(STAGE))(x_P)

    def embed(table, number):
        x = jnp.broadcast_to(table[inputs[number]], (stages, TOKENS, WIDTH))
        return on_stage(reshard(x, P(STAGE)), 0)

    share = 0.1 / schedule.virtual_stages  # a pass is through so much of a stage's layers
    balance = lambda aux: share * aux.mean()
    return OneForwardOneBackward(schedule, table, layers, embed, run, head, hop, balance)


def arguments(schedule):
    noise = np.random.default_rng(0)
    table = jnp.asarray(noise.standard_normal((16, WIDTH)), jnp.float32)
    layers = noise.standard_normal((LAYERS * schedule.lap, WIDTH, WIDTH)) / WIDTH
    inputs = noise.integers(16, size=(schedule.microbatches, TOKENS))
    return table, jnp.asarray(layers, jnp.float32), jnp.asarray(inputs)


def staged(schedule, layers):
    """Layers in their order as each stage's own: [V L, P, ...]."""
    order = layer_order(len(layers), schedule.stages, schedule.virtual_stages)
    stored = np.asarray(layers)[order].reshape(schedule.stages, -1, *layers.shape[1:])
    return stored.swapaxes(0, 1)


@pytest.mark.parametrize(
    ("stages", "parts", "microbatches"),
    [
        *((4, 1, 3), (2, 2, 4)),
        *(
            pytest.param(*n, marks=pytest.mark.slow)
            for n in (
                (2, 1, 1),
                (2, 1, 2),
                (4, 1, 1),
                (4, 1, 6),
                (4, 1, 7),
                (4, 1, 8),
                (4, 2, 4),
                (2, 3, 6),
                (4, 2, 12),
            )
        ),
    ],
)
def test_gradients_are_those_of_microbatches_one_after_the_other(stages, parts, microbatches):
    """With fewer microbatches than stages, as many slots as passes, and slots used again."""
    schedule = PipelineSchedule(stages, parts, microbatches)
    table, layers, inputs = arguments(schedule)
    find = jax.value_and_grad(one_after_the_other, argnums=(0, 1), has_aux=True)
    (total, losses), expected = find(table, layers, inputs)
    with jax.set_mesh(host_mesh(MeshShape(stage=stages))):

        @jax.jit
        def step(table, layers, inputs):
            one = pipeline(schedule, table, reshard(layers, P(None, STAGE)), inputs)
            return one.sums(), one.sums_and_gradients()

        without, found = step(table, staged(schedule, layers), inputs)
    (minimised, reported), aux, (dtable, dlayers) = found
    assert float(reported) == pytest.approx(float(losses), rel=1e-5)
    assert without == pytest.approx((float(minimised), float(reported)), rel=1e-5)
    assert float(minimised + 0.1 * aux.mean()) == pytest.approx(float(total), rel=1e-5)
    np.testing.assert_allclose(dtable, expected[0], rtol=1e-4, atol=1e-5)
    of_layers = staged(schedule, expected[1])
    np.testing.assert_allclose(dlayers, of_layers, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("parts", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_what_is_kept_does_not_grow_with_the_microbatches(parts):
    def kept(microbatches):
        schedule = PipelineSchedule(2, parts, microbatches)
        with jax.set_mesh(host_mesh(MeshShape(stage=2))):
            table, layers, inputs = arguments(schedule)
            layers = reshard(jnp.asarray(staged(schedule, layers)), P(None, STAGE))
            find = lambda *args: pipeline(schedule, *args).sums_and_gradients()
            step = jax.jit(find).lower(table, layers, inputs)
            return step.compile().memory_analysis().temp_size_in_bytes

    numbers = 4 * parts * (64 - 4)  # of the iterations
    assert kept(64) <= kept(4) + numbers
    assert [slot_count(4, m) for m in (1, 4, 6, 7, 64)] == [2, 5, 7, 7, 7]
