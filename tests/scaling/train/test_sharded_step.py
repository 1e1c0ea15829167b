"""The sharded step computes what one device computes: loss, every gradient, parameters after AdamW.

Cases are points of a grid: axis sizes, device order, model, remat policy, microbatches, sequence
parallelism. The fast tier runs the fewest cases in which every pair of values of two of these
occurs (pairwise covering); the long tier runs every mesh of eight devices with every model,
remat policy and number of microbatches.
"""

import functools
import itertools
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from jax.tree_util import keystr, tree_flatten_with_path

from scaling.meshes.devices import host_mesh
from scaling.meshes.shape import AXES, MeshShape
from scaling.models.config import ModelConfig
from scaling.models.execution import Execution
from scaling.parallelism.rules import rules_for
from scaling.run import Batch, Run, Sharding, Train
from scaling.train.step import (
    Tokens,
    abstract_state,
    abstract_tokens,
    init_state,
    jitted_step,
    loss_and_gradients,
)

RTOL = 1e-4
ATOL_OF_LARGEST = 1e-5  # for entries that cancel out: of the largest of the same array
SEQUENCES, SEQ_LEN = 16, 16
SINGLE = MeshShape()
QUICK = {"xla_backend_optimization_level": 0}  # of LLVM's code, not of XLA's program: 1 s less
ORDERS = {"default": AXES, "reversed": AXES[::-1]}

_toy = functools.partial(ModelConfig, vocab_size=64, d_model=32, n_layers=2, head_dim=4, d_ff=64)
_llama = functools.partial(_toy, n_heads=16, n_kv_heads=8)  # 8: also for tensor=8
MODELS = {
    "llama": _llama(),
    "gpt": _toy(
        n_heads=8,
        mlp="gelu",
        norm="layernorm",
        positions="learned",
        max_positions=SEQ_LEN,
        bias=True,
        tied_embeddings=True,
    ),
    "qwen": _llama(qk_norm=True, sliding_window=5, tied_embeddings=True),
    "odd": _llama(vocab_size=61, bias=True),  # a vocabulary that no tensor size divides
}


class Case(NamedTuple):
    """One point of the grid."""

    data: int
    fsdp: int
    tensor: int
    order: str = "default"
    model: str = "llama"
    remat: str = "none"
    microbatches: int = 1
    sequence_parallel: bool = True

    @property
    def mesh(self) -> MeshShape:
        return MeshShape(self.data, self.fsdp, tensor=self.tensor, device_order=ORDERS[self.order])

    def __str__(self) -> str:
        rest = "-".join(map(str, self[3:7])) + ("" if self.sequence_parallel else "-whole")
        return f"{self.data}x{self.fsdp}x{self.tensor}-{rest}"


def grid() -> Iterator[Case]:
    """All cases on 2, 4 and 8 devices. Without `tensor` sequence parallelism says nothing."""
    sizes = (1, 2, 4, 8)
    meshes = [s for s in itertools.product(sizes, repeat=3) if 2 <= np.prod(s) <= 8]
    choices = itertools.product(ORDERS, MODELS, ("none", "selective", "full"), (1, 2))
    for mesh, choice in itertools.product(meshes, list(choices)):
        for sequence_parallel in (True, False) if mesh[2] > 1 else (True,):
            yield Case(*mesh, *choice, sequence_parallel)


def pairs(case: tuple) -> set[tuple]:
    """Every two choices that a case makes, each named by its place."""
    return set(itertools.combinations(enumerate(case), 2))


def pairwise(cases: Iterable[Case]) -> list[Case]:
    """A small subset that makes every pair of choices; new meshes first among equals. Greedy."""
    cases = {case: pairs(case) for case in cases}
    missing, chosen = set().union(*cases.values()), []
    while missing:
        seen = {case[:4] for case in chosen}
        best = max(cases, key=lambda case: (len(cases[case] & missing), case[:4] not in seen))
        missing -= cases.pop(best)
        chosen.append(best)
    return chosen


# Beyond pairs: a position table that accumulation marks over data while tensor shards the sequence.
FAST = [*pairwise(grid()), Case(2, 1, 4, model="gpt", remat="full", microbatches=2)]
GRID = [
    case
    for case in grid()
    if case.mesh.devices == 8 and case.order == "default" and case.sequence_parallel
]


def run_of(case: Case) -> Run:
    """The run that a case describes."""
    batch = Batch(SEQUENCES, SEQ_LEN, case.microbatches)
    train = Train(steps=10, learning_rate=1e-2, warmup_steps=0)
    sharding = Sharding(sequence_parallel=case.sequence_parallel)
    return Run("toy", MODELS[case.model], batch, case.mesh, sharding, train=train)


def execution_of(case: Case) -> Execution:
    return Execution(rules_for(run_of(case), case.mesh), compute="fp32", remat=case.remat)


@functools.cache
def numbers(model: str) -> tuple[list[np.ndarray], np.ndarray]:
    """Parameters and tokens of a toy. Fixed noise on top of the initial values, so that norm
    scales differ from 1 and biases from 0, where a wrong gradient could hide."""
    with jax.set_mesh(host_mesh(SINGLE)):
        case = Case(1, 1, 1, model=model)
        params = jax.jit(lambda: init_state(MODELS[model], execution_of(case), Train()).params)()
    noise = np.random.default_rng(0)
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(params)]
    leaves = [np.float32(x + 0.1 * noise.standard_normal(x.shape)) for x in leaves]
    tokens = noise.integers(MODELS[model].vocab_size, size=(SEQUENCES, SEQ_LEN + 1))
    return leaves, tokens.astype(np.int32)


def placed(case: Case) -> tuple[Any, Tokens]:
    """The toy's parameters and tokens on the mesh of a case, which is set."""
    run, execution = run_of(case), execution_of(case)
    leaves, text = numbers(case.model)
    shapes = abstract_state(run.model, execution, run.train).params
    wanted, treedef = jax.tree.flatten(shapes)
    params = treedef.unflatten(
        [jax.device_put(x, leaf.sharding) for x, leaf in zip(leaves, wanted, strict=True)]
    )
    cut = abstract_tokens(run.batch, execution).inputs
    inputs, targets = (part.reshape(cut.shape) for part in (text[:, :-1], text[:, 1:]))
    return params, Tokens(*jax.device_put((inputs, targets), cut.sharding))


def compiled(function: jax.stages.Wrapped, *arguments: Any) -> jax.stages.Compiled:
    return function.lower(*arguments).compile(compiler_options=QUICK)


def computed(case: Case) -> tuple[float, dict[str, np.ndarray]]:
    """Loss and gradients by name, as whole arrays on the host."""
    with jax.set_mesh(host_mesh(case.mesh)):
        arguments = placed(case)
        value, gradients = compiled(jax.jit(loss_and_gradients), *arguments)(*arguments)
        both = zip(*map(jax.tree.leaves, (gradients, arguments[0])), strict=True)
        assert all(g.sharding.is_equivalent_to(param.sharding, g.ndim) for g, param in both)
        return float(value), by_name(gradients)


@functools.cache
def on_one_device(model: str) -> tuple[float, dict[str, np.ndarray]]:
    return computed(Case(1, 1, 1, model=model))


def by_name(tree: Any) -> dict[str, np.ndarray]:
    leaves, _ = tree_flatten_with_path(tree)
    return {keystr(path, simple=True, separator="/"): np.asarray(leaf) for path, leaf in leaves}


def check(case: Case) -> None:
    """Loss and every gradient of a case equal those of one device."""
    value, gradients = computed(case)
    expected_value, expected = on_one_device(case.model)
    np.testing.assert_allclose(value, expected_value, rtol=RTOL)
    assert gradients.keys() == expected.keys()
    for name, gradient in gradients.items():
        largest = np.abs(expected[name]).max()
        if case.model == "gpt" and "key_bias" in name:
            # Without rotation a key bias adds the same number to all scores of a query, which
            # softmax ignores: its gradient is zero, and only rounding remains of it.
            largest = np.abs(expected[name.replace("key_bias_MK", "query_bias_NK")]).max()
            assert np.abs(gradient).max() < RTOL * largest
        atol = ATOL_OF_LARGEST * largest
        np.testing.assert_allclose(gradient, expected[name], RTOL, atol, err_msg=name)


def trained(case: Case, steps: int = 3) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """Parameters and the last step's metrics after some steps from the initial state."""
    run, execution = run_of(case), execution_of(case)
    with jax.set_mesh(host_mesh(case.mesh)):
        state = jax.jit(lambda: init_state(run.model, execution, run.train))()
        tokens = placed(case)[1]
        step = compiled(jitted_step(run.train), state, tokens)
        for _ in range(steps):
            state, metrics = step(state, tokens)
        assert int(state.step) == steps
        return by_name(state.params), {name: float(value) for name, value in metrics.items()}


MORE_STEPS = [Case(8, 1, 1), Case(1, 8, 1, remat="full")]


@functools.cache
def trained_on_one_device() -> tuple[dict[str, np.ndarray], dict[str, float]]:
    return trained(Case(1, 1, 1))


@pytest.mark.parametrize("case", FAST, ids=str)
def test_loss_and_gradients_equal_those_of_one_device(case: Case) -> None:
    check(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", GRID, ids=str)
def test_the_whole_grid_on_eight_devices_equals_one_device(case: Case) -> None:
    check(case)


@pytest.mark.parametrize(
    "case",
    [
        *(pytest.param(case, marks=pytest.mark.slow) for case in MORE_STEPS),
        Case(2, 2, 2, microbatches=2),
    ],
    ids=str,
)
def test_adamw_steps_give_the_same_parameters_on_every_mesh(case: Case) -> None:
    parameters, metrics = trained(case)
    expected, expected_metrics = trained_on_one_device()
    rate = run_of(case).train.learning_rate
    for name, values in parameters.items():
        # AdamW divides a gradient by its own size: a step is about the learning rate, and the
        # rounding of the smallest gradients is seen in it.
        np.testing.assert_allclose(values, expected[name], RTOL, 1e-3 * rate, err_msg=name)
    assert metrics == pytest.approx(expected_metrics, rel=RTOL)


def test_accumulation_over_microbatches_equals_one_big_batch() -> None:
    check(Case(1, 1, 1, microbatches=4))


def test_the_fast_cases_make_every_pair_of_choices_on_many_meshes() -> None:
    assert set().union(*map(pairs, FAST)) == set().union(*map(pairs, grid()))
    assert len({case.mesh for case in FAST}) >= 16
    assert len(FAST) < 30
