"""A training step on a mesh computes what one device computes, and moves what the table says.

Fast: every pair of the six axes, every remat policy and method, experts in a pipeline. Slow: each
schedule, packed documents with experts, every mesh of eight devices, those of three axes dense and
with experts, other choices in turn.
"""

import functools
import itertools
from collections.abc import Iterator
from dataclasses import replace

import chex
import jax
import numpy as np
import pytest

from scaling.analytic.flops import BUFFERS, TILES
from scaling.analytic.table import expected_bytes
from scaling.comparing.discrepancy import FETCHED_ONCE, ONCE_PER_STEP, PASSED_ON_ONCE, TAKEN_APART
from scaling.meshes.devices import host_mesh
from scaling.meshes.shape import AXES, MeshShape, parse_mesh
from scaling.models.accounting import block_parameters
from scaling.models.accounting.remat import SavedTensors
from scaling.models.config import ModelConfig
from scaling.run import Batch
from scaling.training.step import (
    Tokens,
    TrainState,
    eval_step,
    init_state,
    jitted_step,
    train_step,
)
from tests.harness import (
    RTOL,
    SEQUENCES,
    Case,
    abstract_arguments,
    assert_equals_one_device,
    assert_one_hop_per_tick,
    discrepancies,
    execution_of,
    in_layer_order,
    placed,
    priced,
    stepped_alone,
)

FAST = [  # cases of one model beside one another: they share what one device computes
    Case("data=2,fsdp=2,stage=2", microbatches=2, zero=1),
    Case("data=2,context=2,tensor=2", "odd", "selective", 2, sequence_parallel=False),
    Case("fsdp=2,context=2,tensor=2", "gpt", "full", 2, "all-gather", device_order="reversed"),
    Case("stage=2,expert=2,tensor=2", "gpt", "selective", 2),
    Case("data=2,fsdp=2,expert=2", "mixtral", "selective", 2),
    Case("stage=2,expert=2,context=2", "mixtral", microbatches=2),
]
slow = functools.partial(pytest.param, marks=pytest.mark.slow)
PACKED = [
    Case("fsdp=2", documents="packed"),
    slow(Case("data=2,fsdp=2,tensor=2", "odd", "selective", 2, documents="packed")),
    slow(Case("fsdp=2,tensor=2", "gpt", microbatches=2, zero=1, documents="packed")),
    slow(Case("expert=2,tensor=2", "deepseek-v3", "full", documents="packed")),
    slow(Case("data=2,fsdp=2,expert=2", "mixtral", "selective", 2, documents="packed")),
    slow(Case("fsdp=2,expert=2,tensor=2", "padded", documents="packed")),
    slow(Case("fsdp=4,tensor=2", "gemma", "full", 2, documents="packed")),
    slow(Case("fsdp=2,context=4", "odd", "selective", 2, documents="packed")),
    slow(Case("context=2,tensor=2", "gpt", "full", 2, "all-gather", documents="packed")),
    slow(Case("expert=2,context=2", "mixtral", documents="packed")),
    slow(Case("fsdp=2,stage=2", "llama", "selective", 4, documents="packed")),
    slow(Case("stage=2,context=2", "gpt", "full", 4, documents="packed")),
    slow(Case("stage=2,expert=2", "mixtral", "selective", 2, documents="packed")),
    slow(Case("context=2,expert=2", "llama-4", "selective", documents="packed")),
    slow(Case("stage=2,context=4", "llama-4", "full", 2, documents="packed", layers=4)),
]
NAMED = [  # tensors that remat keeps; on CPU devices the host's memory is another part of theirs
    Case("data=2,fsdp=2,tensor=2", remat=SavedTensors(("value", "attention_out", "mlp_up"))),
    Case("fsdp=2,stage=2,tensor=2", "odd", SavedTensors(("query", "attention_out")), 2),
    Case("fsdp=2,context=2,tensor=2", remat="minimal"),
    Case("fsdp=2,expert=2,tensor=2", "deepseek-v3", SavedTensors(("expert_input", "attention"))),
    Case("fsdp=4,tensor=2", remat=SavedTensors(("query",), ("attention", "mlp_up"))),
]
FAMILIES = [  # patterns of layers in an accumulation of gradients, norms over sharded heads
    Case("data=2,fsdp=2,tensor=2", "gemma", "selective", 2),
    Case("data=2,fsdp=2,tensor=2", "gemma", "none", 2, zero=1),
    Case("fsdp=2,context=2,tensor=2", "olmo", "selective", 2),
    Case("fsdp=2,stage=2,tensor=2", "olmo", "full", 2, zero=1),
    Case("fsdp=2,stage=2", "gemma", "selective", 2),
    Case("fsdp=2,expert=2,tensor=2", "gpt-oss", "selective", 2),
    Case("fsdp=2,expert=4", "short latents", "selective"),
]
# What XLA's CPU compiler is known to do otherwise, and the empty rows of experts' buffers.
KNOWN = {ONCE_PER_STEP, FETCHED_ONCE, PASSED_ON_ONCE, TAKEN_APART, BUFFERS, TILES}
DENSE = ("llama", "odd", "latent", "gpt", "direct", "qwen")
EXPERTS = ("mixtral", "padded", "balanced", "deepseek-v3", "plain experts")


def axes_of(mesh: MeshShape) -> tuple[str, ...]:
    """The axes of more than one device."""
    return tuple(axis for axis in AXES if mesh.sizes[axis] > 1)


def meshes_of_eight() -> list[str]:
    """Every mesh of eight devices."""
    sizes = [s for s in itertools.product((1, 2, 4, 8), repeat=len(AXES)) if np.prod(s) == 8]
    pairs = [zip(AXES, s, strict=True) for s in sizes]
    return [",".join(f"{axis}={n}" for axis, n in mesh if n > 1) for mesh in pairs]


def grid() -> Iterator[Case]:
    """Every mesh of eight devices; those of three axes dense and with experts, others in turn."""
    choices = itertools.cycle(
        itertools.product(("none", "selective", "full"), (1, 2), ("1f1b", "interleaved"))
    )
    models = itertools.cycle(DENSE), itertools.cycle(EXPERTS)
    for i, text in enumerate(meshes_of_eight()):
        mesh = parse_mesh(text)
        for kind in (0, 1) if len(axes_of(mesh)) == 3 else (i % 2,):
            remat, microbatches, schedule = next(choices)
            shards = mesh.data * mesh.fsdp * mesh.expert
            rounds = mesh.stage if schedule == "interleaved" else 1
            schedule = schedule if mesh.stage > 1 else "1f1b"
            # Two layers in a part of a stage: of one, in no loop, XLA for CPUs leaves out products
            # that selective recomputation does not need.
            deep = 2 if (schedule, remat) == ("interleaved", "selective") else 1
            yield Case(
                text,
                next(models[kind]),
                remat,
                min(microbatches * rounds, SEQUENCES // shards),
                ("ring", "all-gather")[i // 2 % 2],
                schedule,
                1 if mesh.fsdp > 1 and i % 3 == 0 else 3,
                layers=max(4, 2 * mesh.stage * deep),
            )


GRID = [
    *grid(),
    Case("data=2,fsdp=2,stage=2", "odd", schedule="interleaved", microbatches=4, zero=1),
    Case("data=2,stage=2,expert=2", "mixtral", microbatches=2, schedule="interleaved"),
    Case("data=2,fsdp=2,expert=2", "deepseek", "full"),
    Case("fsdp=4,expert=2", "short latents", "full", 2, zero=1),
    Case("expert=2,context=2,tensor=2", "deepseek", "selective", 2),
    Case("fsdp=2,expert=2,tensor=2", "mixtral", "full", sequence_parallel=False),
    Case("stage=2", schedule="interleaved", remat="full", microbatches=16),
    Case("fsdp=2,stage=2,tensor=2", "padded", microbatches=2),
    Case("stage=2,expert=2,tensor=2", "mixtral", "selective", 2),
    Case("fsdp=2,stage=2,expert=2", "deepseek-v3", microbatches=2, reduce="fp32"),
    Case("context=8", "odd"),
    Case("context=2,tensor=2", "gpt-oss", "selective"),
    Case("context=2", "gemma", "selective"),
    Case("context=2,expert=2", "llama-4", "selective"),
    Case("fsdp=2,expert=2,tensor=2", "llama-4", "selective"),
    Case("fsdp=2,stage=2,expert=2", "llama-4", "selective", 2),
    Case("stage=2,tensor=2", "llama-4", "full", 2, schedule="interleaved", layers=8),
    Case("data=2,tensor=4", "latent", "selective"),
    Case("data=2,fsdp=2,tensor=2", optimizer="lion"),
    Case("data=2,fsdp=4", microbatches=2, optimizer="muon"),
    Case("data=2,fsdp=4", microbatches=2, optimizer="adafactor", zero=1),
    Case("fsdp=2,stage=2,tensor=2", "odd", "selective", 2, optimizer="muon", zero=1),
]


def check(case: Case) -> None:
    """Numbers of one device, collectives and products of the table."""
    assert_equals_one_device(case)
    if not case.run.model.tied_embeddings and case.optimizer == "adamw":
        found = discrepancies(case)
        assert {d.reason for d in found} <= KNOWN, "\n".join(map(str, found))
    if case.run.mesh.stage > 1:
        assert_one_hop_per_tick(priced(case), case.run)


@pytest.mark.parametrize("case", FAST, ids=str)
def test_step_on_mesh_equals_one_device_and_moves_the_table(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("case", PACKED, ids=str)
def test_step_of_packed_documents_equals_one_device_however_weights_are_spread(case: Case) -> None:
    assert_equals_one_device(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", [*GRID, *NAMED, *FAMILIES], ids=str)
def test_step_on_every_mesh_equals_one_device_and_moves_the_table(case: Case) -> None:
    check(case)


@pytest.mark.parametrize(
    "case",
    [
        Case("data=2,stage=2", "odd", schedule="interleaved", microbatches=4),
        slow(Case("fsdp=2,stage=2", microbatches=2, zero=1)),
        slow(Case("data=2,fsdp=2,tensor=2", zero=1)),
    ],
    ids=str,
)
def test_held_out_loss_equals_the_loss_of_the_step_on_one_device(case: Case) -> None:
    with jax.set_mesh(host_mesh(case.run.mesh)):
        state, tokens = placed(case.run)
        value = jax.jit(functools.partial(eval_step, case.run.train))(state.params, tokens)
    assert float(value) == pytest.approx(stepped_alone(case.alone)["metrics"]["loss 1"], rel=RTOL)


@pytest.mark.slow
def test_initial_parameters_are_the_same_on_every_mesh() -> None:
    def initial(case: Case) -> dict[str, np.ndarray]:
        run, execution = case.run, execution_of(case.run)
        with jax.set_mesh(host_mesh(run.mesh)):
            make = jax.jit(lambda: init_state(run, execution).params)
            return in_layer_order(run, make())

    interleaved = Case("fsdp=2,stage=2,tensor=2", schedule="interleaved", microbatches=2)
    chex.assert_trees_all_equal(initial(interleaved), initial(interleaved.alone))


@pytest.mark.slow
def test_gathered_weights_are_not_kept_for_the_backward_pass() -> None:
    """Even without remat the temporary memory stays below the whole weights of the layers."""
    model = ModelConfig(64, d_model=64, n_layers=8, n_heads=8, d_ff=512)
    run = replace(Case("fsdp=8").run, model=model, batch=Batch(8, 8))
    with jax.set_mesh(host_mesh(run.mesh)):
        step = jitted_step(run).lower(*abstract_arguments(run)).compile()
    weights = 4 * model.n_layers * sum(block_parameters(model).values())
    assert step.memory_analysis().temp_size_in_bytes < weights


def test_step_is_traced_once() -> None:
    """The state that a step returns is one that it takes: same shapes, formats and shardings."""
    case = Case("data=2,fsdp=2,tensor=2")

    @jax.jit
    @chex.assert_max_traces(n=1)
    def step(state: TrainState, tokens: Tokens) -> tuple[TrainState, dict]:
        return train_step(state, tokens, case.run)

    with jax.set_mesh(host_mesh(case.run.mesh)):
        state, tokens = abstract_arguments(case.run)
        returned, _ = step.trace(state, tokens).out_info
        step.trace(returned, tokens)


def test_every_case_is_trainable_and_has_a_table() -> None:
    for case in (*FAST, *GRID):
        assert expected_bytes(case.run, case.run.mesh, 0) is not None, case


def test_fast_cases_cover_every_pair_of_axes_remat_policy_and_method() -> None:
    meshes = [axes_of(case.run.mesh) for case in FAST]
    pairs = {pair for axes in meshes for pair in itertools.combinations(axes, 2)}
    assert pairs == set(itertools.combinations(AXES, 2))
    for choice in ("remat", "method"):
        assert {getattr(c, choice) for c in FAST} == {getattr(c, choice) for c in GRID}
    assert {c.schedule for c in GRID} == {"1f1b", "interleaved"}


def test_slow_cases_cover_every_triple_of_axes_dense_and_with_experts() -> None:
    found = {(axes_of(case.run.mesh), case.run.model.moe is not None) for case in GRID}
    wanted = itertools.product(itertools.combinations(AXES, 3), (False, True))
    assert set(wanted) <= found
    assert {axes_of(parse_mesh(mesh)) for mesh in meshes_of_eight()} <= {axes for axes, _ in found}
