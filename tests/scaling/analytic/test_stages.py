"""Layers of stages: dealt out one by one, as nanotron does, or as many to each."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import scaling as sc
from scaling.analytic.saved import activations, saved_bytes
from scaling.analytic.stages import AGAIN, stages_of
from scaling.analytic.step import step_sizes
from scaling.meshes.shape import MeshShape
from scaling.models.accounting.matrices import stacks
from scaling.models.config import ModelConfig
from scaling.run import Pipeline
from scaling.run.recipes import recipe

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


@given(st.integers(2, 20), st.integers(2, 12), st.integers(1, 60), st.booleans())
def test_lighter_ends_are_the_best_of_all_that_there_can_be(layers, stages, thousands, repeats):
    stages = min(stages, layers)
    model = replace(MODEL, n_layers=layers, vocab_size=4096 * thousands)
    own = sum(stack.matrices * stack.size for stack in stacks(model)) / layers
    head = model.vocab_size * model.d_model / (own + 4096 * model.n_heads * model.head_dim)
    head /= 1 + AGAIN * repeats
    every = [
        (max(first, between * (stages > 2), last + head), first)
        for between in range(1, layers)
        for first in range(1, layers)
        if (last := layers - first - (stages - 2) * between) > 0
    ]
    found = stages_of(model, 4096, stages, "ends", repeats=int(repeats))
    time, _ = min(every)
    assert abs(found.slowest + head * found.head - time) < 1e-9
    first, last = found.table[0][0, 0], found.table[0][-1, 0]
    assert found.table[0].sum() == layers and last + head <= time + 1e-9 and first <= time
    even = stages_of(model, 4096, stages, "layers")
    if (stages - 1) * even.slowest < layers:  # rounded up they leave the last stage a layer
        assert time <= even.slowest + head
    several = stages_of(model, 4096, np.array([1, stages]), "ends", repeats=int(repeats))
    assert [several.fullest[1], several.slowest[1]] == [found.fullest, found.slowest]
    assert [several.fullest[0], several.slowest[0], several.head[0]] == [layers, layers, 1]


@given(st.integers(1, 12), st.integers(1, 8), st.integers(1, 12), st.floats(0, 3))
def test_stages_compute_as_many_layers_again_as_they_are_told(each, stages, again, fewer):
    model = replace(MODEL, n_layers=each * stages)
    found = stages_of(model, 4096, stages, "layers", again=again, fewer=fewer, repeats=1)
    wanted = [min(max(again - int(stage * fewer), 0), each) for stage in range(stages)]
    assert found.table[1][:, 0].tolist() == wanted and found.all_again == sum(wanted)
    assert found.slowest == each and found.again in (wanted[0], wanted[-1])


def step_of(**pipeline):
    run = replace(recipe("llama3-8b"), software="nemo", remat="full", pipeline=Pipeline(**pipeline))
    run = replace(run, batch=replace(run.batch, global_batch=16, microbatches=16))
    return step_sizes(run, MeshShape(stage=4, tensor=2))


def test_the_first_stage_keeps_most_and_later_ones_may_keep_more_layers():
    """8 layers a stage, 4 passes in flight on the first, 3, 2 and 1 on the others."""
    none, full = (saved_bytes(replace(s, grid=replace(s.grid, remat=r)), False)
                  for s in [step_of()] for r in (0, 2))  # fmt: skip
    kept = lambda **pipeline: activations(step_of(**pipeline))
    assert kept() == pytest.approx(4 * 8 * full) == kept(remat_layers=8)
    assert kept(remat_layers=6) == pytest.approx(4 * (6 * full + 2 * none))
    assert kept(remat_layers=6, remat_fewer=1.0) == pytest.approx(
        max((4 - s) * ((6 - s) * full + (2 + s) * none) for s in range(4))
    )
    assert kept(remat_layers=2, layers="by-cost") < kept(remat_layers=2)


def test_the_fewer_layers_are_computed_again_the_faster_is_a_step_and_the_more_it_keeps():
    found = []
    for options in ({"remat_layers": n} for n in (1, 4, 7, 8)):
        run = step_of(**options).run
        p = sc.predict(run, "dgx-h100", mesh="stage=4,tensor=2", source="analytic")
        found.append((float(p.step_time), -float(p.memory.peak), float(p.time.bubble)))
    assert found == sorted(found) and found[0][1] < found[-1][1]
    run = replace(step_of().run, pipeline=Pipeline())
    whole = sc.predict(run, "dgx-h100", mesh="stage=4,tensor=2", source="analytic")
    assert found[-1][0] == pytest.approx(float(whole.step_time), rel=1e-9)
    assert -found[-1][1] == pytest.approx(float(whole.memory.peak), rel=1e-9)
    falling = replace(run, pipeline=Pipeline(remat_layers=7, remat_fewer=2.0))
    later = sc.predict(falling, "dgx-h100", mesh="stage=4,tensor=2", source="analytic")
    assert float(later.time.bubble) < found[2][2] and float(later.step_time) < found[2][0]
