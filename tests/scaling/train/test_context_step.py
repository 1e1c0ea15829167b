"""The step on meshes with `context` computes what one device computes: loss and every gradient.

The fast tier covers pairs of choices by hand: devices of context, what it is mixed with, method,
model, remat policy, microbatches. The long tier runs every mesh of eight devices with context.
"""

import functools
import itertools
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from jax.tree_util import keystr, tree_flatten_with_path

from scaling.meshes.devices import host_mesh
from scaling.meshes.shape import MeshShape, parse_mesh
from scaling.models.config import ModelConfig
from scaling.models.execution import Execution
from scaling.parallelism.rules import rules_for
from scaling.run import Batch, Context, Run, Sharding, Train
from scaling.train.prepare import Programs, place_tokens
from scaling.train.step import (
    Tokens,
    abstract_state,
    abstract_tokens,
    init_state,
    loss_and_gradients,
)

RTOL = 1e-4
ATOL_OF_LARGEST = 1e-5  # for entries that cancel out: of the largest of the same array
SEQUENCES, SEQ_LEN = 8, 32
QUICK = {"xla_backend_optimization_level": 0}  # of LLVM's code, not of XLA's program

LLAMA = ModelConfig(64, d_model=32, n_layers=2, n_heads=8, n_kv_heads=4, head_dim=4, d_ff=64)
GPT = replace(
    LLAMA,
    n_kv_heads=8,
    mlp="gelu",
    norm="layernorm",
    positions="learned",
    max_positions=SEQ_LEN + 8,
    bias=True,
    tied_embeddings=True,
)
QWEN = replace(LLAMA, qk_norm=True, sliding_window=7, tied_embeddings=True)
ODD = replace(LLAMA, vocab_size=61, bias=True)  # a vocabulary that no tensor size divides
MODELS = {"llama": LLAMA, "gpt": GPT, "qwen": QWEN, "odd": ODD}


class Case(NamedTuple):
    """One point of the grid."""

    mesh: str
    method: str = "ring"
    model: str = "llama"
    remat: str = "none"
    microbatches: int = 1
    sequence_parallel: bool = True


FAST = [
    Case("context=2", "all-gather", "gpt", "selective", 2),
    Case("context=8", "ring", "qwen", "selective"),
    Case("fsdp=2,context=4", "all-gather", "qwen", "full", 2),
    Case("context=2,tensor=4", "ring", "odd", "full", 2),
    Case("context=2,tensor=2", "all-gather", "llama", "none", 1, False),
    Case("data=2,context=2,tensor=2", "ring", "qwen", "selective", 2),
]
MIXES = [  # beside the grid, which uses all eight devices
    Case("context=4", "ring", "gpt", "full"),
    Case("data=2,context=2", "ring", "llama", "none", 2),
    Case("data=2,fsdp=2,context=2", "all-gather", "odd", "selective"),
    Case("fsdp=2,context=2,tensor=2", "ring", "gpt", "none", 2),
]
MESHES = [
    f"data={d},fsdp={f},context={c},tensor={t}"
    for d, f, c, t in itertools.product((1, 2, 4), (1, 2, 4), (2, 4, 8), (1, 2, 4))
    if d * f * c * t == 8
]
REMATS = ("none", "selective", "full")
GRID = [  # remat policies and microbatches take turns
    Case(mesh, method, model, REMATS[i % 3], 1 + i // 3 % 2)
    for i, (method, mesh, model) in enumerate(
        itertools.product(("ring", "all-gather"), MESHES, MODELS)
    )
]


def run_of(case: Case) -> Run:
    batch = Batch(SEQUENCES, SEQ_LEN, case.microbatches)
    sharding = Sharding(sequence_parallel=case.sequence_parallel)
    mesh = parse_mesh(case.mesh)
    return Run("toy", MODELS[case.model], batch, mesh, sharding, context=Context(case.method))


@functools.cache
def numbers(model: str) -> tuple[list[np.ndarray], np.ndarray]:
    """Parameters, away from their initial ones and zeros, and a text."""
    case = Case("data=1", model=model)
    with jax.set_mesh(host_mesh(MeshShape())):
        params = jax.jit(lambda: init_state(MODELS[model], execution_of(case), Train()).params)()
    noise = np.random.default_rng(0)
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(params)]
    leaves = [np.float32(x + 0.1 * noise.standard_normal(x.shape)) for x in leaves]
    text = noise.integers(MODELS[model].vocab_size, size=(SEQUENCES, SEQ_LEN + 1))
    return leaves, text.astype(np.int32)


def execution_of(case: Case) -> Execution:
    run = run_of(case)
    return Execution(
        rules_for(run, run.mesh), compute="fp32", remat=case.remat, context_method=case.method
    )


def computed(case: Case) -> tuple[float, dict[str, np.ndarray]]:
    """Loss and gradients by name; tokens are placed as the trainer places them."""
    run, execution = run_of(case), execution_of(case)
    leaves, text = numbers(case.model)
    with jax.set_mesh(host_mesh(run.mesh)):
        wanted, treedef = jax.tree.flatten(abstract_state(run.model, execution, run.train).params)
        placed = [jax.device_put(x, w.sharding) for x, w in zip(leaves, wanted, strict=True)]
        params: Any = treedef.unflatten(placed)
        programs = Programs(None, abstract_tokens(run.batch, execution), None, None, None)
        tokens: Tokens = place_tokens(programs, (text[:, :-1], text[:, 1:]))
        lowered = jax.jit(loss_and_gradients).lower(params, tokens)
        value, gradients = lowered.compile(compiler_options=QUICK)(params, tokens)
        found, _ = tree_flatten_with_path(gradients)
        return float(value), {
            keystr(p, simple=True, separator="/"): np.asarray(x) for p, x in found
        }


@functools.cache
def on_one_device(model: str) -> tuple[float, dict[str, np.ndarray]]:
    return computed(Case("data=1", model=model))


def check(case: Case) -> None:
    value, gradients = computed(case)
    expected_value, expected = on_one_device(case.model)
    np.testing.assert_allclose(value, expected_value, rtol=RTOL)
    assert gradients.keys() == expected.keys()
    for name, gradient in gradients.items():
        largest = np.abs(expected[name]).max()
        if case.model == "gpt" and "key_bias" in name:  # zero but for rounding, see
            continue  # test_sharded_step: a key bias adds the same to all scores of a query
        atol = ATOL_OF_LARGEST * largest
        np.testing.assert_allclose(gradient, expected[name], RTOL, atol, err_msg=name)


@pytest.mark.parametrize("case", FAST, ids=lambda case: "-".join(map(str, case)))
def test_loss_and_gradients_equal_those_of_one_device(case: Case) -> None:
    check(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", [*MIXES, *GRID], ids=lambda case: "-".join(map(str, case)))
def test_the_whole_grid_on_eight_devices_equals_one_device(case: Case) -> None:
    check(case)


def test_the_fast_cases_choose_everything_that_the_grid_has() -> None:
    for choice in ("method", "model", "remat", "microbatches"):
        assert {getattr(c, choice) for c in FAST} == {getattr(c, choice) for c in GRID}
    sizes = {parse_mesh(case.mesh).context for case in FAST}
    assert sizes == {2, 4, 8}
    for axis in ("data", "fsdp", "tensor"):
        assert any(getattr(parse_mesh(case.mesh), axis) > 1 for case in FAST)
