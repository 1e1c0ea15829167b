"""Layers of stages: dealt out one by one, as nanotron does, or as many to each."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scaling.analytic.stages import stages_of
from scaling.models.accounting.matrices import stacks
from scaling.models.config import ModelConfig

MODEL = ModelConfig(131_072, d_model=3072, n_layers=28, n_heads=32, head_dim=96, d_ff=8192)


def dealt_out(model: ModelConfig, stages: int) -> list[tuple[int, int]]:
    """(layers, 1 if with the head) of each stage: block after block, as build_model does."""
    own = sum(stack.matrices * stack.size for stack in stacks(model)) / model.n_layers
    costs = [own] * model.n_layers + [model.vocab_size * model.d_model]
    found, so_far, stage = [[0, 0] for _ in range(stages)], 0.0, 0
    for block, cost in enumerate(costs):
        found[stage][block == model.n_layers] += 1
        so_far += cost
        stage += so_far > sum(costs) * (stage + 1) / stages * (1 + 1e-12)
    return [(layers, head) for layers, head in found]


@given(st.integers(8, 130), st.integers(1, 32), st.integers(1, 40))
def test_layers_are_dealt_out_as_by_the_program(layers, stages, thousands):
    model = replace(MODEL, n_layers=layers, vocab_size=4096 * thousands)
    found, every = stages_of(model, 4096, stages, "cost"), dealt_out(model, stages)
    assert found.fullest == max(n for n, _ in every)
    ((with_head, _),) = (each for each in every if each[1])
    assert (found.slowest, found.head) in ((with_head, 1), (found.fullest, 0))


def test_a_vocabulary_of_three_layers_makes_the_last_stage_short():
    assert stages_of(MODEL, 4096, 4, "cost").slowest == 8  # the last one has 4 and the head
    last = stages_of(MODEL, 4096, 16, "cost")
    assert (last.fullest, last.slowest, last.head) == (2, 0, 1)  # the head alone
    layer = sum(stack.matrices * stack.size for stack in stacks(MODEL)) / MODEL.n_layers
    waits = stages_of(MODEL, 4096, 16, "cost", host=10 * layer)
    assert (waits.slowest, waits.head) == (2, 0)  # where the host is late, layers are slower


@given(st.integers(2, 20), st.integers(2, 12), st.integers(1, 60))
def test_a_lighter_last_stage_is_the_best_of_all_that_there_can_be(layers, stages, thousands):
    stages = min(stages, layers)
    model = replace(MODEL, n_layers=layers, vocab_size=4096 * thousands)
    own = sum(stack.matrices * stack.size for stack in stacks(model)) / layers
    head = model.vocab_size * model.d_model / (own + 4096 * model.n_heads * model.head_dim)
    best = min(max(-(-(layers - n) // (stages - 1)), n + head) for n in range(1, layers))
    found = stages_of(model, 4096, stages, "head")
    assert abs(found.slowest + head * found.head - best) < 1e-9
    even = stages_of(model, 4096, stages, "layers")
    assert best <= even.slowest + head
    several = stages_of(model, 4096, np.array([1, stages]), "head")
    assert [several.fullest[1], several.slowest[1]] == [found.fullest, found.slowest]
    assert [several.fullest[0], several.slowest[0], several.head[0]] == [layers, layers, 1]
