"""Layers cut over `stage`: the step computes what one device computes, loss and every gradient."""

import functools
import itertools
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from jax.tree_util import keystr, tree_flatten_with_path

from scaling.meshes.devices import host_mesh
from scaling.meshes.shape import MeshShape, parse_mesh
from scaling.models.config import ModelConfig
from scaling.models.execution import Execution
from scaling.parallelism.pipeline import recomputes
from scaling.parallelism.rules import rules_for
from scaling.run import Batch, Pipeline, Run, Sharding, Train
from scaling.train.checkpoint.layer_order import layer_order_of
from scaling.train.prepare import order
from scaling.train.step import (
    Tokens,
    abstract_state,
    abstract_tokens,
    eval_step,
    init_state,
    loss_and_gradients,
)

RTOL, ATOL_OF_LARGEST = 1e-4, 1e-5  # the second for entries that cancel out, of the array's largest
SEQUENCES, SEQ_LEN = 16, 16
QUICK = {"xla_backend_optimization_level": 0}  # of LLVM's code, not of XLA's program

_toy = functools.partial(ModelConfig, vocab_size=64, d_model=32, n_heads=16, head_dim=4, d_ff=64)
MODELS = {
    "llama": functools.partial(_toy, n_kv_heads=8),
    "gpt": functools.partial(
        _toy,
        mlp="gelu",
        norm="layernorm",
        positions="learned",
        max_positions=SEQ_LEN,
        bias=True,
        tied_embeddings=True,
    ),
    "odd": functools.partial(_toy, vocab_size=61, qk_norm=True, sliding_window=5),
}


class Case(NamedTuple):
    """A mesh and a schedule."""

    mesh: str
    schedule: str = "1f1b"
    remat: str = "none"
    model: str = "llama"
    microbatches: int = 4
    layers: int = 4
    zero: int = 3

    @property
    def shape(self) -> MeshShape:
        return parse_mesh(self.mesh)

    @property
    def alone(self) -> "Case":
        return Case("data=1", model=self.model, microbatches=1, layers=self.layers)

    @property
    def run(self) -> Run:
        return Run(
            "toy",
            MODELS[self.model](n_layers=self.layers),
            Batch(SEQUENCES, SEQ_LEN, self.microbatches),
            self.shape,
            Sharding(zero_stage=self.zero),
            pipeline=Pipeline(self.schedule, 2 if self.schedule == "circular" else 1),
        )

    @property
    def execution(self) -> Execution:
        run, rules = self.run, rules_for(self.run, self.shape)
        rounds = run.pipeline.virtual_stages
        again = recomputes(run)
        return Execution(
            rules,
            compute="fp32",
            remat=self.remat,
            virtual_stages=rounds,
            recompute_stages=again,
            zero_stage=self.zero,
        )

    def __str__(self) -> str:
        return "-".join(map(str, self))


FAST = [
    Case("stage=2,fsdp=2,tensor=2", "1f1b", "selective"),
    Case("stage=4,data=2", "gpipe", "full", microbatches=2),
    Case("stage=2,data=2", "circular"),
    Case("stage=2,fsdp=2,data=2", "1f1b", zero=1),
]
MORE = [
    Case("stage=2", "gpipe", microbatches=1),
    Case("stage=2", "circular", "full", microbatches=16),
    Case("stage=2,context=2,tensor=2", "1f1b", "none", "odd", 1),
    Case("stage=2,fsdp=2", "gpipe", "none", "gpt", 2),
    Case("stage=2,fsdp=2,expert=2", "gpipe", "selective"),  # an axis of replicas
]
ZERO = [  # stages 1 and 2 of ZeRO
    Case("stage=2,fsdp=2,tensor=2", "gpipe", "none", "gpt", 2, zero=1),
    Case("stage=2,fsdp=4", "circular", "selective", "odd", zero=1),
    Case("stage=4,fsdp=2", "1f1b", "full", "gpt", zero=1),
    Case("stage=2,fsdp=2,context=2", "circular", "full", "odd", zero=1),
    Case("stage=2,fsdp=2", "1f1b", "none", "gpt", 1, zero=1),
]
MESHES = [
    ",".join(f"{axis}={n}" for axis, n in zip(axes, sizes, strict=True) if n > 1)
    for axes in [("stage", "data", "fsdp", "context", "tensor")]
    for sizes in itertools.product((1, 2, 4, 8), repeat=5)
    if np.prod(sizes) == 8 and sizes[0] > 1
]
GRID = [
    Case(
        mesh,
        schedule,
        ("none", "selective", "full")[(i + j) % 3],
        list(MODELS)[i % 3],
        max(4, parse_mesh(mesh).stage),
        2 * parse_mesh(mesh).stage,
    )
    for i, mesh in enumerate(MESHES)
    for j, schedule in enumerate(("gpipe", "1f1b", "circular"))
]


@functools.cache
def numbers(model: str, layers: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Parameters by name, layers in their order, and tokens; no scale is 1 and no bias 0."""
    case = Case("data=1", model=model, layers=layers)
    with jax.set_mesh(host_mesh(case.shape)):
        shapes = abstract_state(case.run.model, case.execution, Train()).params
    noise = np.random.default_rng(0)
    made = {}
    for path, leaf in tree_flatten_with_path(shapes)[0]:
        name = keystr(path, simple=True, separator="/")
        x = 0.1 * noise.standard_normal(leaf.shape) + name.endswith("scale/value")
        made[name] = np.float32(x)
    tokens = noise.integers(case.run.model.vocab_size, size=(SEQUENCES, SEQ_LEN + 1))
    return made, tokens.astype(np.int32)


def placed(case: Case) -> tuple[Any, Tokens]:
    """Parameters, stacks as the case stores them, and tokens, on the mesh that is set."""
    arrays, text = numbers(case.model, case.layers)
    rows = layer_order_of(case.run)
    shapes = abstract_state(case.run.model, case.execution, Train()).params
    flat, treedef = tree_flatten_with_path(shapes)
    leaves = []
    for path, leaf in flat:
        name = keystr(path, simple=True, separator="/")
        x = arrays[name][rows] if name.startswith("layers/") else arrays[name]
        leaves.append(jax.device_put(x, leaf.sharding))
    cut = abstract_tokens(case.run.batch, case.execution).inputs
    zigzag = order(SEQ_LEN, case.shape.context)
    parts = (part[:, zigzag].reshape(cut.shape) for part in (text[:, :-1], text[:, 1:]))
    return treedef.unflatten(leaves), Tokens(*jax.device_put(tuple(parts), cut.sharding))


def compiled(function: jax.stages.Wrapped, *arguments: Any) -> jax.stages.Compiled:
    return function.lower(*arguments).compile(compiler_options=QUICK)


def by_name(tree: Any) -> dict[str, np.ndarray]:
    leaves, _ = tree_flatten_with_path(tree)
    return {keystr(path, simple=True, separator="/"): np.asarray(leaf) for path, leaf in leaves}


def computed(case: Case) -> dict[str, np.ndarray]:
    """Loss and gradients by name, layers in their order."""
    with jax.set_mesh(host_mesh(case.shape)):
        arguments = placed(case)
        step = compiled(jax.jit(loss_and_gradients), *arguments)
        if case.shape.stage > 1 and case.shape.context == 1:  # one hop forward, one backward
            assert step.as_text().count(" collective-permute(") == 2
        value, gradients = step(*arguments)
        both = zip(*map(jax.tree.leaves, (gradients, arguments[0])), strict=True)
        assert all(g.sharding.is_equivalent_to(param.sharding, g.ndim) for g, param in both)
    back = np.argsort(layer_order_of(case.run))
    named = by_name(gradients).items()
    in_order = {n: g[back] if n.startswith("layers/") else g for n, g in named}
    return {"loss": np.asarray(value), **in_order}


@functools.cache
def on_one_device(case: Case) -> dict[str, np.ndarray]:
    return computed(case)


def check(case: Case) -> None:
    found, expected = computed(case), on_one_device(case.alone)
    assert found.keys() == expected.keys()
    for name, value in found.items():
        largest = np.abs(expected[name]).max()
        if "key_bias" in name:  # zero: it adds the same to all scores of a query
            largest = np.abs(expected[name.replace("key_bias_MK", "query_bias_NK")]).max()
            assert np.abs(value).max() < RTOL * largest
        np.testing.assert_allclose(
            value, expected[name], RTOL, ATOL_OF_LARGEST * largest, err_msg=name
        )


@pytest.mark.parametrize("case", FAST, ids=str)
def test_loss_and_gradients_equal_those_of_one_device(case: Case) -> None:
    check(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", [*MORE, *ZERO, *GRID], ids=str)
def test_every_mesh_with_stages_equals_one_device(case: Case) -> None:
    check(case)


@pytest.mark.parametrize(
    "case",
    [
        Case("stage=2,data=2", "circular"),
        pytest.param(Case("stage=2,fsdp=2", zero=1), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_the_held_out_loss_is_the_same_through_the_pipeline(case: Case) -> None:
    with jax.set_mesh(host_mesh(case.shape)):
        arguments = placed(case)
        value = compiled(jax.jit(eval_step), *arguments)(*arguments)
    assert float(value) == pytest.approx(float(on_one_device(case.alone)["loss"]), rel=RTOL)


@pytest.mark.slow
def test_rounds_give_the_same_numbers_in_every_execution(monkeypatch) -> None:
    """In larger arrays than the toys': a part chosen by a `dot` varied with the threads' timing."""
    larger = functools.partial(ModelConfig, 256, 64, n_heads=4, d_ff=128)
    monkeypatch.setitem(MODELS, "larger", larger)
    case = Case("data=2,stage=2", "circular", model="larger")
    check(case)
    with jax.set_mesh(host_mesh(case.shape)):
        arguments = placed(case)
        step = compiled(jax.jit(loss_and_gradients), *arguments)
        first, *others = (by_name(step(*arguments)[1]) for _ in range(6))
    for again in others:
        for name, gradient in again.items():
            np.testing.assert_array_equal(gradient, first[name], err_msg=name)


@pytest.mark.slow
def test_a_pipeline_starts_from_the_same_numbers_as_one_device() -> None:
    case = Case("stage=2", "circular")

    def initial(case: Case) -> dict[str, np.ndarray]:
        with jax.set_mesh(host_mesh(case.shape)):
            make = jax.jit(lambda: init_state(case.run.model, case.execution, Train()).params)
            return by_name(compiled(make)())

    alone, back = initial(case.alone), np.argsort(layer_order_of(case.run))
    for name, x in initial(case).items():
        here = x[back] if name.startswith("layers/") else x
        np.testing.assert_array_equal(here, alone[name], err_msg=name)


def test_the_grid_has_every_mesh_and_schedule() -> None:
    assert len(MESHES) == 15 and len(GRID) == 45
    assert {case.schedule for case in FAST} == {"gpipe", "1f1b", "circular"}
