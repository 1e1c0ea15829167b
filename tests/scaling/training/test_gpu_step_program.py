"""The step compiled for eight H100 that nobody has moves and multiplies what the table says.

`analytic.table` is that table, derived by hand; `compare.audit` also compares the FLOPs of
matrix products. Shapes are those of the toys, widened so that calls of matrices exceed 64 KiB.
"""

from dataclasses import replace

import pytest

from scaling.analytic.flops import BUFFERS, flops_in_ticks
from scaling.analytic.table import SMALLEST, expected_bytes
from scaling.comparing.audit import audit
from scaling.comparing.discrepancy import FETCHED_ONCE, ONCE_PER_STEP, PRODUCTS, TIED_TABLE
from scaling.models.accounting import train_flops
from scaling.program.ir import Loop, kernels
from scaling.simulate.step import running_collectives, running_kernels
from tests.harness import Case, assert_one_hop_per_tick, moved, on_h100, wide

pytestmark = pytest.mark.deviceless

ROUNDING = 0.01  # vectors that travel in the same instruction as matrices
REMATS = ("none", "selective", "full")
DENSE = [
    Case("fsdp=8"),
    Case("data=8", remat="selective"),
    Case("tensor=8", remat="full"),
    Case("data=2,fsdp=4", remat="selective", microbatches=2),
    Case("data=2,fsdp=2,tensor=2", remat="none"),
    Case("data=2,fsdp=2,tensor=2", remat="full", microbatches=2),
    Case("fsdp=4,tensor=2", remat="selective"),
    Case("data=2,fsdp=2,expert=2", remat="full"),
    Case("data=2,fsdp=2,tensor=2", "direct", microbatches=2),
    Case("data=2,tensor=4", "latent", "full", sequence_parallel=False),
]
ZERO = [
    Case("fsdp=8", remat="full", microbatches=2, zero=1),
    Case("data=2,fsdp=2,tensor=2", remat="full", zero=1),
    Case("fsdp=4,tensor=2", "latent", "full", zero=1),
    Case("data=2,fsdp=2,expert=2", "balanced", "full", 2, zero=1),
]
CONTEXT = [
    Case("context=8"),
    Case("context=8", method="all-gather"),
    Case("context=8", "window", "selective"),
    Case("context=4,tensor=2", remat="full"),
    Case("fsdp=2,context=4", remat="full", method="all-gather"),
    Case("data=2,context=2,tensor=2", remat="selective", microbatches=2),
    Case("fsdp=2,context=2,tensor=2", remat="selective", microbatches=2, method="all-gather"),
    Case("data=2,context=4", "gpt", "full"),
    Case("context=4,tensor=2", "latent", "selective"),
]
PIPELINES = [
    Case("data=2,stage=2,tensor=2", microbatches=4),
    Case("fsdp=4,stage=2", remat="selective", microbatches=4),
    Case("fsdp=2,stage=2,tensor=2", remat="full", microbatches=2),
    Case("data=2,stage=4", microbatches=4),  # a stage of one layer
    Case("stage=4,context=2", remat="full", microbatches=4),
    Case("stage=2,context=2,tensor=2", remat="selective", microbatches=2),
    Case("fsdp=2,stage=2,tensor=2", remat="selective", microbatches=4, schedule="interleaved"),
    Case("data=2,fsdp=2,stage=2", microbatches=4, zero=1),
    Case("fsdp=2,stage=2,tensor=2", remat="full", microbatches=2, zero=1),
]
EXPERTS = [
    Case("expert=8", "mixtral"),
    Case("data=2,expert=4", "deepseek"),  # XLA does not recompute one dense layer alone
    Case("fsdp=2,expert=4", "padded", "selective"),
    Case("fsdp=2,expert=2,tensor=2", "deepseek-v3", "selective"),
    Case("data=2,expert=2,tensor=2", "padded", "full", sequence_parallel=False),
    Case("expert=2,context=2,tensor=2", "balanced", "full", method="all-gather"),
    Case("data=2,fsdp=2,context=2", "padded", "full", 2, "all-gather"),
    Case("data=2,stage=2,expert=2", "mixtral", microbatches=2),
    Case("stage=4,expert=2", "balanced", "full", 2),
    Case("data=2,stage=2,expert=2", "mixtral", microbatches=2, schedule="interleaved"),
    Case("fsdp=2,stage=2,expert=2", "deepseek-v3", microbatches=2),
    Case("stage=2,expert=2,tensor=2", "padded", "selective", 2, schedule="interleaved", layers=8),
]
OPTIMIZERS = [
    Case("data=2,fsdp=2,tensor=2", optimizer="muon"),
    Case("fsdp=2,stage=2,tensor=2", microbatches=2, optimizer="muon"),
    Case("fsdp=2,expert=2,tensor=2", "deepseek-v3", optimizer="muon"),
    Case("fsdp=4,tensor=2", optimizer="adafactor"),
]
EIGHT_BITS = [
    Case("data=2,fsdp=2,tensor=2", compute="fp8"),
    Case("fsdp=2,context=2,tensor=2", remat="full", microbatches=2, compute="fp8"),
    Case("data=2,fsdp=2,stage=2", remat="selective", microbatches=2, compute="fp8"),
]
IN_FLOAT32 = [
    Case("data=2,fsdp=2,tensor=2", reduce="fp32"),
    Case("data=2,fsdp=4", "latent", "full", 2, reduce="fp32"),
    Case("data=2,fsdp=2,tensor=2", zero=1, reduce="fp32"),
    Case("fsdp=2,expert=2,tensor=2", "deepseek-v3", "selective", reduce="fp32"),
    Case("data=2,fsdp=2,stage=2", microbatches=2, reduce="fp32"),
]
EXPERTS_IN_8_BITS = [
    (Case("fsdp=2,expert=4", "padded", "selective", compute="fp8"), "fp8"),
    (Case("data=2,expert=4", "mixtral", "selective", compute="fp8"), "bf16"),
]
PACKED = [
    Case("data=2,fsdp=2,tensor=2", "window", "selective", 2, documents="packed"),
    Case("fsdp=4,tensor=2", "latent", "full", documents="packed"),
]
CASES = [*DENSE, *PACKED, *ZERO, *CONTEXT, *PIPELINES, *EXPERTS, *OPTIMIZERS, *EIGHT_BITS]
CASES += [case for case, _ in EXPERTS_IN_8_BITS]
CASES += IN_FLOAT32


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gpu_program_moves_and_multiplies_what_the_table_says(case: Case) -> None:
    run = wide(case)
    priced = on_h100(run)
    found = audit(priced, run, run.mesh)
    traffic = [d for d in found if d.kind != PRODUCTS]
    joined = {TIED_TABLE} if run.model.tied_embeddings else set()
    saved = (
        {ONCE_PER_STEP} if run.mesh.stage > 1 else set()
    )  # 2 % of gathers over expert, in one case
    assert {d.reason for d in traffic} <= {FETCHED_ONCE, *saved, *joined}, "\n".join(
        map(str, found)
    )
    if not traffic:
        most = expected_bytes(
            run, run.mesh, smallest=0
        )  # XLA joins some small calls with large ones
        for key, least in expected_bytes(run, run.mesh).items():
            assert least * (1 - ROUNDING) <= moved(priced)[key] <= most[key] * (1 + ROUNDING), key
        assert set(moved(priced)) <= set(most)
    known = {BUFFERS} if run.model.moe else set()
    assert {d.reason for d in found if d.kind == PRODUCTS} <= known, "\n".join(map(str, found))
    if run.mesh.stage > 1:
        assert_one_hop_per_tick(priced, run)
    if run.mesh.context > 1:
        assert [k for k, _ in running_kernels(priced) if k.kind == "attention"]


@pytest.mark.parametrize("case", EIGHT_BITS, ids=str)
def test_h100_multiplies_every_projection_in_8_bits(case: Case) -> None:
    run = wide(case)
    found = list(kernels(on_h100(run).program))
    eight = sum(k.flops * n for k, n in found if k.dtype == "fp8")
    flops = train_flops(run.model, run.batch.global_batch, run.batch.seq_len, case.remat)
    groups = flops_in_ticks(run, run.mesh, flops.groups)
    projections = sum(n for name, n in groups.items() if name not in ("attention", "head"))
    assert eight == pytest.approx(projections / 8, rel=1e-6)
    assert {k.dtype for k, _ in found if k.kind == "attention"} == {"bf16"}


@pytest.mark.parametrize(("case", "dtype"), EXPERTS_IN_8_BITS, ids=["padded", "dropless"])
def test_experts_multiply_in_8_bits_with_a_capacity_factor_and_else_in_bf16(case, dtype) -> None:
    products = [k for k, _ in kernels(on_h100(wide(case)).program) if k.flops]
    of = lambda part: {k.dtype for k in products if k.origin.layer.startswith(f"layers/{part}")}
    assert (of("mlp/experts"), of("attention") - {"bf16"}) == ({dtype}, {"fp8"})


def test_packed_documents_keep_the_flash_kernel_and_add_their_masks() -> None:
    """A mask is bf16 [seq_len, seq_len] of a sequence; scores would be float32, of every head."""
    case = PACKED[0]
    joined, packed = (on_h100(wide(replace(case, documents=d))) for d in ("joined", "packed"))
    flash = [
        sum(k.flops * n for k, n in running_kernels(priced) if k.kind == "attention")
        for priced in (joined, packed)
    ]
    assert 0 < flash[0] == pytest.approx(flash[1])
    batch, heads, seq_len = 4, 4, 512  # on a device
    assert packed.memory.peak - joined.memory.peak < 4 * batch * heads * seq_len**2


@pytest.mark.parametrize("mesh", ["fsdp=8", "data=2,fsdp=2,tensor=2"])
def test_recomputing_more_needs_less_memory(mesh: str) -> None:
    peaks = [on_h100(wide(Case(mesh, remat=remat))).memory.peak for remat in REMATS]
    assert peaks[0] > peaks[1] > peaks[2]


def test_1f1b_saves_more_memory_the_more_microbatches_there_are() -> None:
    peak = lambda schedule, n: (
        on_h100(wide(Case("data=2,stage=4", microbatches=n, schedule=schedule))).memory.peak
    )
    few, many = (peak("gpipe", n) - peak("1f1b", n) for n in (2, 8))
    assert 0 < few < many


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
def test_zero_1_in_stages_holds_matrices_and_their_gradients(schedule: str) -> None:
    """Whole matrices of a stage in bf16 and their gradients in float32, of which stage 3 has a
    quarter; a second float32 copy of the layers' gradients would be 45 % more."""
    third, first = (
        on_h100(wide(Case("fsdp=4,stage=2", "llama", "full", 4, zero=zero, schedule=schedule)))
        for zero in (3, 1)
    )
    layer, table = 4 * 512 * 512 + 3 * 512 * 1024, 2048 * 512
    elements = 2 * layer + 2 * table
    held = first.memory.peak - third.memory.peak
    assert 0 < held <= (2 + 4 * 3 / 4) * elements * 1.15


def test_zero_1_gathers_weights_outside_the_loop_over_microbatches() -> None:
    run = wide(ZERO[0])
    loops = [step for step in on_h100(run).program.schedule if isinstance(step, Loop)]
    assert loops
    gathers = [c for c, n in running_collectives(on_h100(run)) if c.kind == "all-gather" and n > 1]
    assert not [c for c in gathers if c.bytes >= SMALLEST]


def test_sums_over_data_run_once_per_step_in_float32() -> None:
    run = wide(Case("data=2,fsdp=4", remat="selective", microbatches=2))
    sums = [(c, n) for c, n in running_collectives(on_h100(run)) if c.axes == ("data",)]
    large = [(c, n) for c, n in sums if c.bytes >= SMALLEST]
    assert large and all(n == 1 and c.dtype == "fp32" for c, n in large)
