"""ZeRO stages 1 and 3 train alike; what they store during a step and move differs.

The measure of all is one device: parameters and metrics after three steps of AdamW. What each step
moves is the table of `scaling.analytic.communication`, what it stores is the same in every stage.
"""

import functools
import itertools
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from jax.tree_util import keystr, tree_flatten_with_path

from scaling.analytic.communication.experts import EVERY_EXPERT
from scaling.analytic.communication.table import expected_bytes
from scaling.cli.sharding import ShardingCommand
from scaling.compare.audit import audit
from scaling.compare.known_causes import ONCE
from scaling.compile.options import compiler_options
from scaling.meshes import catalog
from scaling.meshes.devices import absent_mesh, host_mesh
from scaling.meshes.shape import MeshShape, parse_mesh
from scaling.models.config import Mla, ModelConfig, Moe
from scaling.models.execution import Execution
from scaling.optimizers import Optimizer, optimizer_of
from scaling.parallelism.rules import rules_for
from scaling.profiles.io import ideal
from scaling.recipes import recipe
from scaling.run import Batch, Precision, Run, Sharding, Train, save_run
from scaling.simulate.memory import memory_use
from scaling.simulate.step import price
from scaling.train.execution import execution_for
from scaling.train.program import program_of_run
from scaling.train.step import (
    Tokens,
    TrainState,
    abstract_state,
    abstract_tokens,
    eval_step,
    init_state,
    jitted_step,
)

RTOL = 1e-4
ROUNDING = 0.01  # norms that travel in the same instruction as matrices
SMALLEST = {"fp32": 4096, "bf16": 64 * 1024}  # bytes; below are norms and statistics of the loss
SEQUENCES, SEQ_LEN = 16, 16
QUICK = {"xla_backend_optimization_level": 0}  # of LLVM's code, not of XLA's program
# Epsilon: AdamW divides a gradient by its own size, and so makes rounding of the smallest visible.
TRAIN = Train(steps=10, learning_rate=1e-2, warmup_steps=0, epsilon=1e-6)
STEPS = 3
WAY = STEPS * TRAIN.learning_rate  # about what AdamW moves a parameter by, however small its slope
DGX = catalog.load("dgx-h100")

LARGE = ModelConfig(2048, d_model=512, n_layers=4, n_heads=8, d_ff=1024)
_toy = functools.partial(ModelConfig, d_model=64, n_layers=2, n_heads=8, d_ff=128)
MODELS = {
    "llama": _toy(128, n_kv_heads=4),
    "gpt": _toy(
        128,
        mlp="gelu",
        norm="layernorm",
        positions="learned",
        max_positions=SEQ_LEN,
        bias=True,
        tied_embeddings=True,
    ),
    "odd": _toy(129, qk_norm=True),  # a vocabulary that tensor does not divide
    "latent": _toy(128, mla=Mla(16, 16, 8, 4, 8)),
    "moe": _toy(128, moe=Moe(4, 2, 32, n_shared_experts=1, aux_loss=0.1, z_loss=0.01)),
    "deepseek": _toy(
        128,
        mla=Mla(16, 16, 8, 4, 8),
        moe=Moe(4, 2, 32, n_shared_experts=1, first_dense_layers=1, gate="sigmoid"),
    ),
    "large": LARGE,
    "large latent": replace(LARGE, mla=Mla(128, 128, 64, 32, 48)),
    "large odd": replace(LARGE, vocab_size=2049),  # a whole table
    "large positions": replace(LARGE, positions="learned", max_positions=512),
    "large moe": replace(LARGE, moe=Moe(8, 2, 256, n_shared_experts=1, aux_loss=0.1)),
}

Read = Callable[[str, MeshShape], list]
Table = dict[tuple[str, str], float]


class Case(NamedTuple):
    """One run."""

    zero: int
    mesh: str = "data=1"
    microbatches: int = 1
    model: str = "llama"
    remat: str = "none"
    optimizer: str = "adamw"

    @property
    def run(self) -> Run:
        return Run(
            "toy",
            MODELS[self.model],
            Batch(SEQUENCES, SEQ_LEN, self.microbatches),
            self.shape,
            Sharding(zero_stage=self.zero),
            precision=Precision("fp32"),
            remat=self.remat,
            optimizer=self.optimizer,
            train=TRAIN,
        )

    @property
    def made(self) -> Optimizer:
        return optimizer_of(self.run)

    @property
    def shape(self) -> MeshShape:
        return parse_mesh(self.mesh)

    def __str__(self) -> str:
        return "-".join(map(str, self))


MESHES = "fsdp=2,data=2", "fsdp=2,tensor=2", "data=2,fsdp=2,tensor=2"
GRID = [  # remat takes turns; stage 3 is that of test_sharded_step
    Case(*case, ("none", "selective")[i % 2])
    for i, case in enumerate(itertools.product((1,), MESHES, (1, 2), ("llama", "gpt", "odd")))
]
OTHER_AXES = Case(1, "fsdp=2,context=2,expert=2", 2, remat="full")
MODELS_AND_OPTIMIZERS = [
    Case(1, "fsdp=2,tensor=2", 2, "latent", "selective"),
    Case(1, "data=2,fsdp=2", 1, "moe"),
    Case(1, "fsdp=2,expert=2,tensor=2", 1, "deepseek", "full"),
    Case(1, "fsdp=2,expert=2,context=2", 2, "deepseek"),
    Case(1, "fsdp=2,tensor=2", 1, optimizer="muon"),
    Case(1, "data=2,fsdp=4", 2, optimizer="adafactor"),
    Case(1, "fsdp=2,expert=2", 1, "moe", "full", "muon"),
    Case(1, "fsdp=2,stage=2,tensor=2", 2, "odd", "selective", "muon"),
    Case(1, "data=2,fsdp=2,stage=2", 2, "gpt", "full", "adafactor"),
    Case(1, "fsdp=2,stage=2,tensor=2", 2, "latent"),
]


def execution_of(run: Run, platform: str = "cpu") -> Execution:
    assert run.mesh is not None
    return execution_for(run, rules_for(run, run.mesh), platform)


def tokens_of(run: Run) -> Tokens:
    """The same text on every mesh; only where sequences are whole, as they are not reordered."""
    text = np.random.default_rng(0).integers(128, size=(SEQUENCES, SEQ_LEN + 1), dtype=np.int32)
    like = abstract_tokens(run.batch, execution_of(run)).inputs
    parts = (part.reshape(like.shape) for part in (text[:, :-1], text[:, 1:]))
    return Tokens(*jax.device_put(tuple(parts), like.sharding))


@functools.cache
def compiled(case: Case) -> jax.stages.Compiled:
    run = case.run
    with jax.set_mesh(host_mesh(case.shape)):
        execution = execution_of(run)
        state = abstract_state(run.model, execution, TRAIN, case.made)
        lowered = jitted_step(TRAIN, case.made).lower(state, abstract_tokens(run.batch, execution))
        return lowered.compile(compiler_options=QUICK)


def by_name(tree: Any) -> dict[str, np.ndarray]:
    leaves, _ = tree_flatten_with_path(tree)
    return {keystr(path, simple=True, separator="/"): np.asarray(leaf) for path, leaf in leaves}


@functools.cache
def initial(model: str, optimizer: str) -> list[np.ndarray]:
    """The state of one device before its first step, on the host."""
    case = Case(3, model=model, optimizer=optimizer)
    with jax.set_mesh(host_mesh(MeshShape())):
        state = _init(case.run.model, execution_of(case.run), TRAIN, case.made)
        return [np.asarray(x) for x in jax.tree.leaves(state)]


def placed(case: Case) -> TrainState:
    """The same on the mesh of a case, which is set."""
    state = abstract_state(case.run.model, execution_of(case.run), TRAIN, case.made)
    like, structure = jax.tree.flatten(state)
    leaves = zip(initial(case.model, case.optimizer), like, strict=True)
    return structure.unflatten([jax.device_put(x, leaf.sharding) for x, leaf in leaves])


def trained(case: Case) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """Parameters after some steps, and the last one's metrics."""
    run = case.run
    with jax.set_mesh(host_mesh(case.shape)):
        state = placed(case)
        for _ in range(STEPS):
            state, metrics = compiled(case)(state, tokens_of(run))
        numbers = {name: float(np.mean(value)) for name, value in metrics.items()}
        return by_name(state.params), numbers


_init = jax.jit(init_state, static_argnums=(0, 1, 2, 3))
on_one_device = functools.cache(lambda model: trained(Case(3, model=model)))


def check_steps(case: Case) -> None:
    """Three steps of a case are those of one device."""
    parameters, metrics = trained(case)
    expected_parameters, expected_metrics = on_one_device(case.model)
    for name, values in parameters.items():
        wanted = expected_parameters[name]
        np.testing.assert_allclose(values, wanted, RTOL, 1e-3 * WAY, err_msg=name)
    assert metrics == pytest.approx(expected_metrics, rel=RTOL)


def moved(found: list, smallest: int) -> Table:
    """Bytes by axes and kind of the large collectives."""
    sums: Counter = Counter()
    for c in found:
        if c.size >= smallest and c.axes != ():
            sums["+".join(c.axes or ("?",)), c.kind] += c.size * c.calls
    return dict(sums)


def without_tensor(table: Table) -> Table:
    """Gathers, and sums of either kind, by axes: XLA's CPU compiler scatters by a sum and a cut."""
    sums: Counter = Counter()
    for (axes, kind), n in table.items():
        if axes != "tensor":
            sums[axes, "gathered" if kind == "all-gather" else "summed"] += n
    return dict(sums)


def check_moves(case: Case, collectives: Read) -> None:
    """The compiled step moves what the table says."""
    smallest = SMALLEST["fp32"]
    found = moved(collectives(compiled(case).as_text(), case.shape), smallest)
    table = expected_bytes(case.run, case.shape, smallest)
    assert without_tensor(found) == pytest.approx(without_tensor(table), rel=ROUNDING)


@pytest.mark.slow
@pytest.mark.parametrize("case", GRID, ids=str)
def test_the_grid_trains_like_one_device_and_moves_the_table(case, collectives) -> None:
    """The CPU's compiler gathers once for all microbatches, and joins sums of vectors with others:
    its program is compared with the table where it does neither; that of GPUs everywhere, below."""
    check_steps(case)
    if (case.model, case.microbatches) == ("llama", 1):
        check_moves(case, collectives)


@pytest.mark.slow
def test_all_that_cuts_tokens_is_summed_over_once(tmp_path, monkeypatch) -> None:
    case = OTHER_AXES
    monkeypatch.setenv("SCALING_CACHE", str(tmp_path))
    run = replace(case.run, model=MODELS["large"], batch=Batch(16, 512, 2))
    program, _ = program_of_run(run, case.shape, catalog.load("host"))
    priced = replace(price(program, DGX, ideal()), cluster=catalog.load("host"))
    assert {s.reason for s in audit(priced, run, case.shape)} <= {ONCE}
    third = trained(case._replace(zero=3))[0]
    for name, values in trained(case)[0].items():
        np.testing.assert_allclose(values, third[name], RTOL, 1e-5, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("case", MODELS_AND_OPTIMIZERS, ids=str)
def test_experts_latents_and_other_optimizers_train_as_in_stage_3(case) -> None:
    parameters, metrics = trained(case)
    third, expected_metrics = trained(case._replace(zero=3))
    for name, values in parameters.items():
        np.testing.assert_allclose(values, third[name], RTOL, 1e-3 * WAY, err_msg=name)
    assert metrics == pytest.approx(expected_metrics, rel=RTOL)


@pytest.mark.slow
def test_evaluation_is_that_of_one_device() -> None:
    losses = []
    for case in (Case(1, "data=2,fsdp=2,tensor=2", 2), Case(3, microbatches=2)):
        run = case.run
        with jax.set_mesh(host_mesh(case.shape)):
            losses.append(float(jax.jit(eval_step)(placed(case).params, tokens_of(run))))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


# --- what is stored and held --------------------------------------------------------------------


@pytest.mark.parametrize("mesh", ["data=2,fsdp=2", "fsdp=2,tensor=2", "fsdp=2,stage=2"])
def test_every_stage_stores_the_same_so_any_reads_anothers_checkpoint(mesh: str) -> None:
    with jax.set_mesh(host_mesh(parse_mesh(mesh))):
        states = [
            jax.tree.leaves(abstract_state(case.run.model, execution_of(case.run), TRAIN))
            for case in (Case(1, mesh), Case(3, mesh))
        ]
    for first, third in zip(*states, strict=True):
        assert first == third
        assert first.sharding == third.sharding


@pytest.mark.slow
def test_each_stage_stores_the_same_and_needs_less_at_the_fullest_moment() -> None:
    uses = []
    for zero in (1, 3):
        tiny = replace(
            recipe("tiny"), precision=Precision("fp32"), sharding=Sharding(zero_stage=zero)
        )
        run = replace(tiny, batch=replace(tiny.batch, microbatches=2))
        program, _ = program_of_run(run, parse_mesh("fsdp=2,tensor=2"), catalog.load("host"))
        uses.append(memory_use(program))
    for owner in ("parameters", "optimizer_state"):
        assert len({use.owners[owner] for use in uses}) == 1
    assert uses[0].peak > uses[1].peak


def shown(case: Case, tmp_path, capsys, as_json: bool = True) -> str:
    """What `scaling sharding` prints."""
    save_run(replace(case.run, precision=Precision("bf16")), tmp_path / "run.json")
    assert ShardingCommand(str(tmp_path / "run.json"), case.mesh, json=as_json).execute() == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("microbatches, size", [(1, 2), (4, 4)])
def test_sharding_shows_what_a_step_holds(microbatches: int, size: int, tmp_path, capsys) -> None:
    case = Case(1, "fsdp=2,tensor=2", microbatches)
    run = replace(case.run, precision=Precision("bf16"))
    matrices = 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128) + 2 * 128 * 64  # by hand
    held = json.loads(shown(case, tmp_path, capsys))["held"]
    assert held == {
        "zero_stage": 1,
        "matrices": 2 * matrices // 2,
        "gradients": size * matrices // 2,
    }
    assert expected_bytes(run, case.shape, 0)["fsdp", "all-gather"] == held["matrices"]
    assert expected_bytes(run, case.shape, 0)["fsdp", "reduce-scatter"] == held["gradients"]


@pytest.mark.parametrize("model", ["moe", "latent"])
def test_sharding_shows_what_the_table_gathers_and_scatters(model, tmp_path, capsys) -> None:
    case = Case(1, "fsdp=2,tensor=2", 1, model)  # a router is held in float32
    held = json.loads(shown(case, tmp_path, capsys))["held"]
    table = expected_bytes(replace(case.run, precision=Precision("bf16")), case.shape, 0)
    assert held["matrices"] == table["fsdp", "all-gather"]
    assert held["gradients"] == table["fsdp", "reduce-scatter"]


def test_sharding_shows_the_layers_and_sums_of_one_pipeline_stage(tmp_path, capsys) -> None:
    case = Case(1, "fsdp=2,stage=2")
    layer = 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128  # by hand; one on each stage
    elements = layer + 2 * 128 * 64
    held = json.loads(shown(case, tmp_path, capsys))["held"]
    assert held == {"zero_stage": 1, "matrices": 2 * elements, "gradients": 4 * elements}
    table = expected_bytes(replace(case.run, precision=Precision("bf16")), case.shape, 0)
    assert (table["fsdp", "all-gather"], table["fsdp", "reduce-scatter"]) == (
        held["matrices"],
        held["gradients"],
    )


def test_sharding_says_it_in_words_and_nothing_where_there_is_nothing(tmp_path, capsys) -> None:
    said = [shown(Case(z, "fsdp=2"), tmp_path, capsys, as_json=False) for z in (1, 3)]
    assert "\nzero_stage 1: during a step also 180,224 bytes/device of matrices" in said[0]
    assert "180,224 of their gradients" in said[0]
    assert "zero_stage" not in said[1]
    assert "zero_stage" not in shown(Case(1, "data=2"), tmp_path, capsys, as_json=False)


# --- on GPUs that nobody has --------------------------------------------------------------------


@pytest.mark.deviceless
@pytest.mark.parametrize(
    "case",
    [
        Case(1, "fsdp=4,tensor=2", 1, "large latent", "full"),
        Case(1, "data=2,fsdp=2,expert=2", 2, "large moe", "full"),
    ],
    ids=str,
)
def test_the_gpu_program_of_latents_and_experts_is_the_table(case) -> None:
    batch = Batch(16 * case.microbatches, 512, case.microbatches)
    run = replace(case.run, batch=batch, precision=Precision("bf16"))
    program, _ = program_of_run(run, case.shape, DGX)
    found = audit(price(program, DGX, ideal()), run, case.shape)
    assert {s.reason for s in found} <= {EVERY_EXPERT}


@functools.cache
def on_gpus(zero: int, mesh: str, microbatches: int) -> tuple[Run, jax.stages.Compiled]:
    """The step in bf16 for one DGX H100, without one."""
    shape, batch = parse_mesh(mesh), Batch(8 * microbatches, 512, microbatches)
    sharding = Sharding(zero_stage=zero)
    run = Run("large", MODELS["large"], batch, shape, sharding, remat="full", train=TRAIN)
    options = {**compiler_options("gpu"), "xla_gpu_autotune_level": 0}
    with jax.set_mesh(absent_mesh(shape, DGX)):
        execution = execution_of(run, "gpu")
        arguments = abstract_state(run.model, execution, TRAIN), abstract_tokens(batch, execution)
        return run, jitted_step(TRAIN).lower(*arguments).compile(compiler_options=options)


@pytest.mark.deviceless
@pytest.mark.parametrize("microbatches", [1, 2])
@pytest.mark.parametrize("mesh", ["fsdp=8", "data=2,fsdp=4", "data=2,fsdp=2,tensor=2"])
def test_the_gpu_program_is_the_table(mesh, microbatches, collectives) -> None:
    run, step = on_gpus(1, mesh, microbatches)
    found = collectives(step.as_text(), run.mesh)
    table = expected_bytes(run, run.mesh, SMALLEST["bf16"])
    assert moved(found, SMALLEST["bf16"]) == pytest.approx(table, rel=ROUNDING)
    gathers = [c for c in found if c.kind == "all-gather" and c.axes == ("fsdp",)]
    assert gathers and all(c.loops == 0 for c in gathers)
