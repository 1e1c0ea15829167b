"""Any three of the six axes, dense and with experts: loss, load and gradients of one device, and
the collectives of the table derived by hand.

Other files have each axis in depth; here is every mix. The last tests count.

A capacity means an even load of what one device holds, however its tokens were cut off: so it drops
on `context` what it drops on `data` when devices hold the same tokens.
"""

import functools
import importlib.util
import itertools
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from jax.tree_util import keystr, tree_flatten_with_path

from scaling.analytic.communication.experts import BUFFERS, EVERY_EXPERT
from scaling.compare.audit import audit
from scaling.compare.known_causes import ALONE, ONCE
from scaling.meshes import catalog
from scaling.meshes.devices import host_mesh
from scaling.meshes.shape import AXES, MeshShape, parse_mesh
from scaling.models.config import Mla, ModelConfig, Moe
from scaling.models.experts import Experts
from scaling.parallelism.rules import rules_for
from scaling.profiles.io import ideal
from scaling.run import Batch, Context, Precision, Run, Sharding
from scaling.simulate.step import price, running_collectives
from scaling.train.execution import execution_for
from scaling.train.prepare import order
from scaling.train.program import program_of_run
from scaling.train.step import Tokens, abstract_state, abstract_tokens, output_and_gradients

RTOL, ATOL_OF_LARGEST = 1e-4, 1e-5  # the second for entries that cancel out, of the array's largest
SEQUENCES, SEQ_LEN = 16, 16
QUICK = {"xla_backend_optimization_level": 0}  # of LLVM's code, not of XLA's program
H100, HOST = catalog.load("dgx-h100"), catalog.load("host")
BALANCED = Moe(8, 3, 16, n_shared_experts=1, gate="sigmoid", aux_loss=0.1, z_loss=0.01)
_toy = functools.partial(
    ModelConfig, 64, d_model=32, n_layers=2, n_heads=8, n_kv_heads=4, head_dim=4, d_ff=64
)
MODELS = {
    "dense": _toy(qk_norm=True),
    "least": _toy(mlp="gelu", positions="none", moe=Moe(8, 2, 32, aux_loss=0.1, z_loss=0.01)),
    "mixtral": _toy(moe=Moe(8, 2, 32, aux_loss=0.1, z_loss=0.01)),
    "padded": _toy(moe=Moe(8, 2, 32, aux_loss=0.1, capacity_factor=4.0)),  # room for all
    "balanced": _toy(moe=replace(BALANCED, selection_bias=True), qk_norm=True, sliding_window=5),
    "latent": _toy(mla=Mla(8, 8, 4, 4, 6)),
    "deepseek-v3": _toy(mla=Mla(8, 8, 4, 4, 6), moe=replace(BALANCED, selection_bias=True)),
    "deepseek": _toy(moe=replace(BALANCED, first_dense_layers=1)),
}


class Case(NamedTuple):
    mesh: str
    model: str
    remat: str = "none"
    microbatches: int = 1
    method: str = "ring"
    zero: int = 3

    @property
    def alone(self) -> "Case":
        """On one device; losses are means over a microbatch, so it keeps their number."""
        return Case("data=1", self.model, microbatches=self.microbatches)

    @property
    def run(self) -> Run:
        batch, mesh = Batch(SEQUENCES, SEQ_LEN, self.microbatches), parse_mesh(self.mesh)
        return Run(
            "toy",
            MODELS[self.model],
            batch,
            mesh,
            sharding=Sharding(zero_stage=self.zero),
            context=Context(self.method),
            precision=Precision("fp32"),
            remat=self.remat,
        )

    def __str__(self) -> str:
        return "-".join(map(str, self))


FAST = [
    Case("stage=2,expert=2,context=2", "mixtral", "none", 2),
]
EXPERTS = [
    Case("data=2,expert=2,context=2", "least", "selective"),
    Case("expert=2,context=2,tensor=2", "least", "full", 1, "all-gather"),
    Case("data=2,expert=2,context=2", "balanced", "none", 2, "all-gather"),
    Case("expert=2,context=2,tensor=2", "balanced", "selective", 2),
    Case("fsdp=2,expert=2,context=2", "deepseek", "none", 2),
    Case("expert=2,context=4", "padded", "selective"),
    Case("data=2,fsdp=2,context=2", "padded", "full", 2, "all-gather"),
    Case("data=2,context=2,tensor=2", "mixtral", "none"),
    Case("fsdp=2,context=2,tensor=2", "deepseek", "selective", 1, "all-gather"),
    Case("data=2,stage=2,context=2", "padded", "selective", 2),
    Case("fsdp=2,stage=2,context=2", "mixtral", "full", 2, "all-gather"),
    Case("stage=2,expert=2,context=2", "balanced", "none", 2),
    Case("stage=2,context=2,tensor=2", "mixtral", "selective", 2),
    Case("data=2,fsdp=2,stage=2", "mixtral", "none", 2),
    Case("data=2,stage=2,tensor=2", "balanced", "full", 2),
    Case("fsdp=2,stage=2,expert=2", "padded", "none", 2),
    Case("data=2,fsdp=2,expert=2", "mixtral", "selective"),
    Case("data=2,fsdp=2,tensor=2", "balanced", "none", 2),
    Case("data=2,stage=2,expert=2", "mixtral", "full", 2),
    Case("data=2,expert=2,tensor=2", "balanced", "full"),
    Case("fsdp=2,stage=2,tensor=2", "padded", "none", 2),
    Case("fsdp=2,expert=2,tensor=2", "deepseek", "none", 2),
    Case("stage=2,expert=2,tensor=2", "mixtral", "selective", 2),
]
DENSE = [
    Case("data=2,fsdp=2,expert=2", "dense", "full", 2),
    Case("data=2,expert=2,context=2", "dense", "none"),
    Case("data=2,expert=2,tensor=2", "dense", "selective", 2),
    Case("fsdp=2,expert=2,context=2", "dense", "full", 2, "all-gather"),
    Case("fsdp=2,expert=2,tensor=2", "dense", "none"),
    Case("expert=2,context=2,tensor=2", "dense", "selective", 2),
    Case("data=2,stage=2,expert=2", "dense", "none", 2),
    Case("stage=2,expert=2,context=2", "dense", "full", 2),
    Case("stage=2,expert=2,tensor=2", "dense", "selective", 2),
    Case("data=2,fsdp=2,stage=2", "dense", "none", 2),
    Case("data=2,fsdp=2,context=2", "dense", "selective", 2),
    Case("data=2,fsdp=2,tensor=2", "dense", "full"),
    Case("data=2,stage=2,context=2", "dense", "full", 2, "all-gather"),
    Case("data=2,stage=2,tensor=2", "dense", "selective", 2),
    Case("fsdp=2,stage=2,context=2", "dense", "none", 2),
    Case("fsdp=2,stage=2,expert=2", "dense", "full", 2),
    Case("fsdp=2,context=2,tensor=2", "dense", "none", 1, "all-gather"),
    Case("data=2,context=2,tensor=2", "dense", "selective", 2),
    Case("fsdp=2,stage=2,tensor=2", "dense", "none", 2),
    Case("stage=2,context=2,tensor=2", "dense", "full", 2),
]
LATENT = [
    Case("data=2,context=2,tensor=2", "latent", "selective", 2),
    Case("fsdp=2,context=4", "latent", "full", 1, "all-gather"),
    Case("fsdp=2,stage=2,tensor=2", "latent", "none", 2),
    Case("stage=2,context=2,tensor=2", "latent", "selective", 2),
    Case("data=2,expert=2,context=2", "deepseek-v3", "none"),
    Case("fsdp=2,stage=2,expert=2", "deepseek-v3", "selective", 2),
]
ZERO = [  # stages 1 and 2 of ZeRO in a pipeline, with each of the other axes
    Case("data=2,fsdp=2,stage=2", "dense", "none", 2, zero=1),
    Case("fsdp=2,stage=2,expert=2", "dense", "selective", 2, zero=1),
    Case("fsdp=2,stage=2,context=2", "dense", "full", 2, zero=1),
    Case("fsdp=2,stage=2,tensor=2", "dense", "selective", 2, zero=1),
    Case("data=2,fsdp=2,stage=2", "mixtral", "full", 2, zero=1),
    Case("fsdp=2,stage=2,expert=2", "balanced", "none", 2, zero=1),
    Case("fsdp=2,stage=2,context=2", "mixtral", "selective", 2, "all-gather", 2),
    Case("fsdp=2,stage=2,tensor=2", "padded", "none", 2, zero=1),
    Case("fsdp=2,stage=2,tensor=2", "latent", "none", 2, zero=1),
    Case("fsdp=2,stage=2,expert=2", "deepseek-v3", "selective", 2, zero=1),
]
SLOW = [*EXPERTS, *DENSE, *LATENT, *ZERO]
WITHOUT_EXPERTS = {name for name, model in MODELS.items() if model.moe is None}


def execution_of(run: Run) -> Any:
    return execution_for(run, rules_for(run, run.mesh), "cpu")


def by_name(tree: Any) -> dict[str, np.ndarray]:
    leaves, _ = tree_flatten_with_path(tree)
    return {keystr(path, simple=True, separator="/"): np.asarray(leaf) for path, leaf in leaves}


def placed(run: Run) -> tuple[Any, Tokens]:
    """Parameters without zeros and ones, and tokens as the trainer orders them; the same numbers on
    every mesh."""
    noise, execution = np.random.default_rng(0), execution_of(run)
    flat, treedef = tree_flatten_with_path(abstract_state(run.model, execution, run.train).params)
    leaves = []
    for path, leaf in flat:
        scale = keystr(path, simple=True, separator="/").endswith("scale/value")
        x = np.float32(0.1 * noise.standard_normal(leaf.shape) + scale)
        leaves.append(jax.device_put(x, leaf.sharding))
    cut = abstract_tokens(run.batch, execution).inputs
    text = noise.integers(64, size=(SEQUENCES, SEQ_LEN + 1)).astype(np.int32)
    zigzag = order(SEQ_LEN, run.mesh.context)
    parts = (part[:, zigzag].reshape(cut.shape) for part in (text[:, :-1], text[:, 1:]))
    return treedef.unflatten(leaves), Tokens(*jax.device_put(tuple(parts), cut.sharding))


def compiled(function: Any, *arguments: Any) -> jax.stages.Compiled:
    return jax.jit(function).lower(*arguments).compile(compiler_options=QUICK)


def computed(case: Case) -> dict[str, np.ndarray]:
    """Loss, routing and gradients by name, as whole arrays on the host."""
    with jax.set_mesh(host_mesh(case.run.mesh)):
        arguments = placed(case.run)
        outcome, gradients = compiled(output_and_gradients, *arguments)(*arguments)
        both = zip(*map(jax.tree.leaves, (gradients, arguments[0])), strict=True)
        assert all(g.sharding.is_equivalent_to(param.sharding, g.ndim) for g, param in both)
        return by_name(outcome) | by_name(gradients)


@functools.cache
def on_one_device(case: Case) -> dict[str, np.ndarray]:
    return computed(case)


def check(case: Case) -> None:
    found, expected = computed(case), on_one_device(case.alone)
    assert found.keys() == expected.keys()
    for name, value in found.items():
        atol = ATOL_OF_LARGEST * np.abs(expected[name]).max()
        np.testing.assert_allclose(value, expected[name], RTOL, atol, err_msg=name)


@pytest.mark.parametrize("case", FAST, ids=str)
def test_experts_on_cut_sequences_compute_what_one_device_computes(case: Case) -> None:
    check(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", SLOW, ids=str)
def test_every_other_mix_computes_what_one_device_computes(case: Case) -> None:
    check(case)


def fed_forward(mesh: MeshShape, x_BSD: np.ndarray) -> tuple[np.ndarray, float]:
    """What a layer of experts with little room makes of a stream, and how much it drops."""
    model = replace(MODELS["mixtral"], moe=Moe(8, 2, 32, capacity_factor=0.5))
    run = Run("toy", model, Batch(*x_BSD.shape[:2]), mesh, precision=Precision("fp32"))
    execution = execution_of(run)
    with jax.set_mesh(host_mesh(mesh)):
        spec = jax.NamedSharding(host_mesh(mesh), execution.spec("batch", "residual", None))

        def layer(x_BSD: jax.Array) -> Any:
            return Experts(model, execution, jax.random.key(0))(x_BSD)

        x = jax.device_put(x_BSD, spec)
        y_BSD, routing = compiled(layer, x)(x)
        return np.asarray(y_BSD), float(routing.dropped)


@pytest.mark.slow
def test_a_device_drops_what_it_has_no_room_for_however_its_tokens_were_cut_off() -> None:
    x_BSD = np.random.default_rng(0).standard_normal((4, 16, 32)).astype(np.float32)
    halves = np.concatenate(np.split(x_BSD, 2, axis=1))  # what the devices of context hold
    y_BSD, dropped = fed_forward(MeshShape(expert=2, context=2), x_BSD)
    # Batches are cut over data first, so the devices of `expert` must hold the same sequences.
    same, as_many = fed_forward(MeshShape(data=2, expert=2), halves)
    np.testing.assert_allclose(np.concatenate(np.split(y_BSD, 2, axis=1)), same, RTOL, 1e-6)
    assert dropped == as_many >= 0.5 * x_BSD.shape[0] * x_BSD.shape[1] * 2


WIDE = ModelConfig(2048, 512, 4, n_heads=8, head_dim=64, d_ff=1024)  # calls of 64 KiB and more
GPU_PROGRAMS = [*EXPERTS[:2], EXPERTS[4], EXPERTS[11], DENSE[3], *LATENT[2:5], *ZERO[2:6]]


@pytest.mark.parametrize(
    "case", [*FAST, *(pytest.param(case, marks=pytest.mark.slow) for case in SLOW)], ids=str
)
def test_the_cpu_program_moves_and_computes_what_the_table_says(
    tmp_path, monkeypatch, case: Case
) -> None:
    """Over the axes of each case, and nothing besides; experts' empty rows are multiplied too."""
    monkeypatch.setenv("SCALING_CACHE", str(tmp_path))
    toy = case.run.model
    moe = toy.moe and replace(toy.moe, d_ff_expert=256)
    mla = toy.mla and Mla(128, 128, 64, 32, 48)
    model = replace(WIDE, moe=moe, mla=mla, qk_norm=toy.qk_norm, sliding_window=toy.sliding_window)
    run = replace(case.run, model=model, batch=Batch(16, 512, case.microbatches))
    priced = replace(price(program_of_run(run, run.mesh, HOST)[0], H100, ideal()), cluster=HOST)
    found = audit(priced, run, run.mesh)
    assert {s.reason for s in found} <= {ONCE, ALONE, BUFFERS, EVERY_EXPERT}
    kinds = Counter((c.axes, c.kind) for c, _ in running_collectives(priced))
    assert not moe or run.mesh.expert == 1 or kinds[("expert",), "all-to-all"]
    hop = "permute" if case.method == "ring" else "all-gather"
    assert run.mesh.context == 1 or kinds[("context",), hop]


@pytest.mark.deviceless
@pytest.mark.parametrize("case", GPU_PROGRAMS, ids=str)
def test_the_gpu_program_moves_and_computes_what_the_table_says(case: Case) -> None:
    toy, precision = case.run.model, Precision("bf16")
    model = replace(WIDE, moe=toy.moe, mla=toy.mla and Mla(128, 128, 64, 32, 48))
    batch = Batch(16, 512, case.microbatches)
    run = replace(case.run, model=model, batch=batch, precision=precision)
    priced = price(program_of_run(run, run.mesh, H100)[0], H100, ideal())
    assert {s.reason for s in audit(priced, run, run.mesh)} <= {ALONE, BUFFERS, EVERY_EXPERT}
    assert running_collectives(priced)


def cases_of(file: str, *names: str) -> list[Any]:
    """The cases in the lists `names` of another test file."""
    spec = importlib.util.spec_from_file_location(file, Path(__file__).with_name(f"{file}.py"))
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return [case for name in names for case in getattr(module, name)]


def meshes_and_models() -> set[tuple[MeshShape, bool]]:
    """Meshes of eight devices on which some file compares gradients with one device; with experts
    or without."""
    axes = cases_of("test_sharded_step", "FAST", "GRID")
    experts = cases_of("test_sharded_experts", "FAST", "MORE", "GRID")
    context = cases_of("test_context_step", "FAST", "MIXES", "GRID")
    stages = cases_of("test_pipeline_step", "FAST", "MORE", "GRID")
    both = cases_of("test_pipeline_experts", "CASES")
    without = WITHOUT_EXPERTS | {"direct"}
    found = {(case.mesh, False) for case in axes}
    found |= {(case.mesh, case.model not in without) for case in experts}
    found |= {(parse_mesh(case.mesh), False) for case in (*context, *stages)}
    found |= {(parse_mesh(case.mesh), True) for case in both}
    found |= {(case.run.mesh, case.model not in without) for case in (*FAST, *SLOW)}
    plain = {(replace(mesh, device_order=AXES), moe) for mesh, moe in found}
    return {(mesh, moe) for mesh, moe in plain if mesh.devices == 8}


def threes(cases: list[Case]) -> set[tuple[tuple[str, ...], bool]]:
    """The axes of cases that use three, dense and with experts."""
    used = [(axes_of(case.run.mesh), case.model not in WITHOUT_EXPERTS) for case in cases]
    return {(axes, moe) for axes, moe in used if len(axes) == 3}


def axes_of(mesh: MeshShape) -> tuple[str, ...]:
    return tuple(axis for axis in AXES if mesh.sizes[axis] > 1)


def test_every_three_of_the_six_axes_are_held_to_one_device_and_to_the_table() -> None:
    """Dense and with experts, each with its gradients and its collectives."""
    wanted = itertools.product(itertools.combinations(AXES, 3), (False, True))
    assert threes([*FAST, *SLOW]) == set(wanted)
    assert len({mesh for mesh, _ in meshes_and_models()}) >= 40


def test_every_two_of_the_six_axes_are_compared_with_one_device_in_the_fast_tier() -> None:
    files = ("test_sharded_step", "test_sharded_experts", "test_context_step", "test_pipeline_step")
    cases = [case for file in files for case in cases_of(file, "FAST")]
    meshes = [case.mesh for case in (*cases, *FAST)]
    shapes = [parse_mesh(mesh) if isinstance(mesh, str) else mesh for mesh in meshes]
    pairs = {pair for shape in shapes for pair in itertools.combinations(axes_of(shape), 2)}
    assert pairs == set(itertools.combinations(AXES, 2))
