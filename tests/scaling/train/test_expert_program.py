"""Compiled steps of mixtures of experts, and of latent attention, move what the hand-derived table
says, and nothing else."""

import functools
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import jax
import pytest

from scaling.analytic.communication.table import SMALLEST, expected_bytes
from scaling.compile.options import compiler_options
from scaling.meshes import catalog
from scaling.meshes.devices import absent_mesh, host_mesh
from scaling.meshes.shape import MeshShape, parse_mesh
from scaling.models.config import Mla, ModelConfig, Moe
from scaling.models.execution import Execution
from scaling.parallelism.rules import rules_for
from scaling.run import Batch, Precision, Run, Sharding, Train
from scaling.train.step import abstract_state, abstract_tokens, jitted_step

_toy = functools.partial(ModelConfig, 2048, d_model=512, n_layers=4, n_heads=8, head_dim=64)
MIXTRAL = Moe(8, 2, d_ff_expert=512, aux_loss=0.01)
DEEPSEEK = Moe(
    8,
    2,
    d_ff_expert=512,
    n_shared_experts=1,
    first_dense_layers=2,
    gate="sigmoid",
    selection_bias=True,
    bias_update_rate=0.001,
)
LATENT = Mla(256, 128, qk_nope_head_dim=64, qk_rope_head_dim=32, v_head_dim=64)
MODELS = {
    "mixtral": _toy(d_ff=1024, moe=MIXTRAL),
    "capacity": _toy(d_ff=1024, moe=replace(MIXTRAL, capacity_factor=1.25)),
    "deepseek": _toy(d_ff=1024, moe=DEEPSEEK),
    "latent": _toy(d_ff=1024, mla=LATENT, moe=DEEPSEEK),
    "direct": _toy(d_ff=1024, mla=replace(LATENT, q_lora_rank=None)),
}
ROUNDING = 0.01  # norms, routers and choices that travel in the same instruction as matrices
CASES = [
    ("expert=8", "mixtral", "none", 1, True),
    ("data=2,expert=4", "deepseek", "full", 1, True),
    ("fsdp=2,expert=4", "capacity", "selective", 1, True),
    ("data=2,fsdp=2,expert=2", "deepseek", "full", 2, True),
    ("fsdp=2,expert=2,tensor=2", "mixtral", "full", 1, True),
    ("data=2,expert=2,tensor=2", "deepseek", "none", 1, True),
    ("data=2,expert=2,tensor=2", "capacity", "full", 1, False),
    ("fsdp=2,expert=2,tensor=2", "latent", "selective", 1, True),
    ("data=2,fsdp=2,tensor=2", "direct", "none", 2, True),
    ("data=2,tensor=4", "latent", "full", 1, False),
]
Read = Callable[[str, MeshShape], list]


def run_of(model: str, remat: str, microbatches: int, sequence_parallel: bool) -> Run:
    batch = Batch(8 * microbatches, 512, microbatches)
    sharding = Sharding(sequence_parallel=sequence_parallel)
    precision = Precision(compute="bf16")
    return Run("toy", MODELS[model], batch, None, sharding, precision=precision, remat=remat)


def lowered(run: Run, execution: Execution, mesh: jax.sharding.Mesh) -> jax.stages.Lowered:
    with jax.set_mesh(mesh):
        state = abstract_state(run.model, execution, Train())
        return jitted_step(Train()).lower(state, abstract_tokens(run.batch, execution))


def measured(found: list, smallest: float) -> dict[tuple[str, str], float]:
    """Bytes by axes and kind of the large collectives."""
    sums: Counter = Counter()
    for c in found:
        if c.size >= smallest and c.axes != ():
            sums["+".join(c.axes or ("?",)), c.kind] += c.size * c.calls
    return dict(sums)


@pytest.mark.deviceless
@pytest.mark.parametrize(("mesh", "model", "remat", "microbatches", "sequence_parallel"), CASES)
def test_the_gpu_program_is_the_table(
    mesh: str, model: str, remat: str, microbatches: int, sequence_parallel: bool, collectives: Read
) -> None:
    shape, run = parse_mesh(mesh), run_of(model, remat, microbatches, sequence_parallel)
    execution = Execution(
        rules_for(run, shape), compute="bf16", remat=remat, attention_kernel="cudnn"
    )
    options = {**compiler_options("gpu"), "xla_gpu_autotune_level": 0}
    step = lowered(run, execution, absent_mesh(shape, catalog.load("dgx-h100")))
    found = collectives(step.compile(compiler_options=options).as_text(), shape)
    table = {
        ("+".join(sorted(a.split("+"))), k): n for (a, k), n in expected_bytes(run, shape).items()
    }
    assert measured(found, SMALLEST) == pytest.approx(table, rel=ROUNDING)
    assert not [c.line for c in found if c.axes is None]


@pytest.mark.slow
def test_the_host_program_exchanges_what_the_table_says(collectives: Read) -> None:
    """XLA's CPU compiler sums in its own way; all-to-alls it leaves as they are."""
    shape = parse_mesh("data=2,expert=2,tensor=2")
    model = ModelConfig(64, 32, 2, 8, 64, head_dim=4, moe=Moe(8, 2, d_ff_expert=32))
    run = Run("toy", model, Batch(8, 16), precision=Precision("fp32"), remat="full")
    execution = Execution(rules_for(run, shape), compute="fp32", remat="full")
    step = lowered(run, execution, host_mesh(shape))
    text = step.compile(compiler_options={"xla_backend_optimization_level": 0}).as_text()
    sums = measured(collectives(text, shape), 0)
    key = ("expert", "all-to-all")
    assert sums[key] == pytest.approx(expected_bytes(run, shape, smallest=0)[key], rel=1e-9)
