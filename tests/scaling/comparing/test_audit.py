"""Discrepancies: none where a program does what was asked, and each kind is told from the others.

Programs are written by hand, one call for each entry of the table; a handful are compiled.
"""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.analytic.flops import BUFFERS, TILES, buffer_flops
from scaling.analytic.table import SMALLEST, Table, expected_bytes
from scaling.comparing.audit import audit, noticeable
from scaling.comparing.discrepancy import (
    NO_MESH_AXES,
    NOT_EXPLAINED,
    ONCE_PER_STEP,
    PRODUCTS,
    REMATERIALISED,
    TIED_TABLE,
    Discrepancy,
)
from scaling.meshes import catalog
from scaling.meshes.cluster import Cluster
from scaling.meshes.shape import MeshShape
from scaling.models.accounting import train_flops
from scaling.models.config import LayerKind, ModelConfig, Moe
from scaling.models.presets import preset
from scaling.profiles.io import ideal
from scaling.program.ir import Branch, Collective, Kernel, Operation, Program
from scaling.run import Batch, Precision, Run, Sharding
from scaling.simulate.step import Priced, price

H100 = catalog.load("dgx-h100")
SHAPE = MeshShape(data=2, fsdp=4)
MODEL = ModelConfig(32_000, d_model=512, n_layers=4, n_heads=8, d_ff=1536)
RUN = Run("toy", MODEL, Batch(16, 512))
GATHER, SUM = ("fsdp", "all-gather"), ("data", "all-reduce")
FACTORS = st.floats(0, 10).filter(lambda factor: abs(factor - 1) > 0.011)


def calls_of(table: Table) -> list[Collective]:
    """One call for each entry."""
    return [call(axes, kind, n) for (axes, kind), n in table.items()]


def call(axes: str, kind: str, n: float, name: str = "") -> Collective:
    name = name or f"{kind}.{axes}"
    names = tuple(filter(None, axes.split("+")))
    return Collective(name, kind=kind, axes=names, bytes=n, line=f"%{name} =", asynchronous=False)


def products(run: Run, shape: MeshShape = SHAPE) -> Kernel:
    """All matrix products that the model needs, as one."""
    batch = run.batch
    flops = train_flops(run.model, batch.global_batch, batch.seq_len, run.remat).total
    return Kernel(
        "gemm", kind="matmul", flops=flops / shape.devices, dtype="bf16", dims=(1, 1, 1, 1)
    )


def priced(steps: Iterable[Operation], shape: MeshShape = SHAPE) -> Priced:
    return price(Program("toy", "compiled", shape.sizes, tuple(steps)), H100, ideal())


def found_in(table: Table, run: Run = RUN, shape: MeshShape = SHAPE) -> list:
    """The discrepancies of a program with this traffic and the products that are asked for."""
    return audit(priced([*calls_of(table), products(run, shape)], shape), run, shape)


def time_of(axes: str, kind: str, n: float) -> float:
    """Seconds of one call."""
    return priced([call(axes, kind, n)]).timeline.total


def test_a_program_that_does_what_was_asked_has_no_discrepancy() -> None:
    assert found_in(expected_bytes(RUN, SHAPE)) == []


@given(st.sampled_from(sorted(expected_bytes(RUN, SHAPE))), FACTORS)
def test_every_entry_is_held_to_one_percent(key: tuple[str, str], factor: float) -> None:
    table = expected_bytes(RUN, SHAPE)
    asked, table[key] = table[key], factor * table[key]
    (discrepancy,) = found_in(table)
    assert (discrepancy.axes, discrepancy.kind, discrepancy.reason) == (*key, NOT_EXPLAINED)
    assert discrepancy.expected == asked
    large = table[key] if table[key] >= SMALLEST else 0
    assert discrepancy.found == pytest.approx(large)
    assert (discrepancy.seconds > 0) == (factor > 1)


def test_gathering_twice_costs_the_time_of_one_gather() -> None:
    table = expected_bytes(RUN, SHAPE)
    asked = table[GATHER]
    (discrepancy,) = found_in({**table, GATHER: 2 * asked})
    assert (discrepancy.expected, discrepancy.found, discrepancy.calls) == (asked, 2 * asked, 1)
    assert discrepancy.lines == ("%all-gather.fsdp =",)
    assert discrepancy.seconds == pytest.approx(time_of(*GATHER, 2 * asked) / 2)


def test_a_missing_collective_saves_its_time() -> None:
    table = expected_bytes(RUN, SHAPE)
    asked = table.pop(SUM)
    (discrepancy,) = found_in(table)
    assert (discrepancy.found, discrepancy.calls, discrepancy.lines) == (0, 0, ())
    assert discrepancy.seconds == pytest.approx(-time_of(*SUM, asked))


def test_a_collective_that_nobody_asked_for_is_told_with_its_line() -> None:
    steps = [
        *calls_of(expected_bytes(RUN, SHAPE)),
        call("data+fsdp", "all-to-all", 1e6),
        products(RUN),
    ]
    (discrepancy,) = audit(priced(steps), RUN, SHAPE)
    assert (discrepancy.axes, discrepancy.kind, discrepancy.expected) == (
        "data+fsdp",
        "all-to-all",
        0,
    )
    assert discrepancy.lines == ("%all-to-all.data+fsdp =",)


def test_cutting_a_call_into_small_ones_is_no_discrepancy() -> None:
    table = expected_bytes(RUN, SHAPE)
    asked = table.pop(SUM)
    count = int(asked // SMALLEST) + 1
    small = [call(*SUM, asked / count, f"sum.{i}") for i in range(count)]
    steps = [*calls_of(table), *small, products(RUN)]
    assert audit(priced(steps), RUN, SHAPE) == []


def test_groups_of_no_mesh_axes_are_named() -> None:
    odd = replace(call("", "all-gather", 1e8, "odd"), groups=((0, 1, 2), (3, 4, 5)))
    steps = [*calls_of(expected_bytes(RUN, SHAPE)), odd, products(RUN)]
    (discrepancy,) = audit(priced(steps), RUN, SHAPE)
    assert (discrepancy.reason, discrepancy.found, discrepancy.lines) == (
        NO_MESH_AXES,
        1e8,
        ("%odd =",),
    )
    assert discrepancy.seconds > 0
    assert str(discrepancy).startswith("all-gather: 100 MB per step instead of 0 B, which costs ")


def test_a_branch_that_is_not_taken_does_nothing() -> None:
    other = replace(products(RUN), name="other", flops=1e6)
    sent = call("data+fsdp", "all-to-all", 1e8, "sent")
    odd = replace(call("", "all-gather", 1e8, "odd"), groups=((0, 1, 2), (3, 4, 5)))
    taken = tuple([*calls_of(expected_bytes(RUN, SHAPE)), products(RUN)])
    branch = Branch("either", branches=(taken, (other,)))
    assert audit(priced([branch]), RUN, SHAPE) == []
    long = (replace(products(RUN), name="long", flops=1e18),)
    branch = Branch("either", branches=((sent, odd), long))
    found = priced([branch, *taken])
    assert [s.kind for s in audit(found, RUN, SHAPE)] == [PRODUCTS]


def test_products_that_the_compiler_repeats_cost_their_time() -> None:
    needed = products(RUN)
    again = replace(needed, name="gemm.remat2", flops=needed.flops / 2)
    program = priced([*calls_of(expected_bytes(RUN, SHAPE)), needed, again])
    (discrepancy,) = audit(program, RUN, SHAPE)
    assert (discrepancy.kind, discrepancy.reason) == (PRODUCTS, REMATERIALISED)
    assert discrepancy.found == pytest.approx(1.5 * discrepancy.expected)
    both = program.kernels["gemm.remat2"].time + program.kernels[needed.name].time
    assert discrepancy.seconds == pytest.approx(both / 3)
    assert discrepancy.lines == ("gemm.remat2",)
    assert "FLOP per step instead of" in str(discrepancy)


def test_other_products_than_the_models_are_not_explained() -> None:
    fewer = replace(products(RUN), flops=products(RUN).flops / 2)
    (discrepancy,) = audit(priced([*calls_of(expected_bytes(RUN, SHAPE)), fewer]), RUN, SHAPE)
    assert (discrepancy.kind, discrepancy.reason, discrepancy.lines) == (
        PRODUCTS,
        NOT_EXPLAINED,
        (),
    )
    assert discrepancy.seconds < 0


def test_flash_attention_is_credited_with_the_products_of_its_kernel() -> None:
    """Two forward and five backward, where the model's gradient has two and four."""
    run = replace(RUN, remat="full")
    none = train_flops(MODEL, 16, 512, "none").groups["attention"] / 3 / SHAPE.devices
    full = train_flops(MODEL, 16, 512, "full").groups["attention"] / SHAPE.devices
    matrices = replace(products(run), flops=products(run).flops - full)
    core = Kernel("fmha", kind="attention", flops=none * (2 + 5 / 2), dtype="bf16", dims=(1,) * 5)
    program = priced([*calls_of(expected_bytes(run, SHAPE)), matrices, core])
    assert audit(program, run, SHAPE) == []


def test_chunks_of_packed_documents_are_multiplied_as_windows() -> None:
    model = replace(MODEL, layers=(LayerKind(attention_chunk=128), LayerKind()))
    packed = replace(RUN, model=model, train=replace(RUN.train, documents="packed"))
    windows = replace(MODEL, layers=(LayerKind(sliding_window=128), LayerKind()))
    table = expected_bytes(packed, SHAPE)
    gemm = products(replace(RUN, model=windows))
    assert audit(priced([*calls_of(table), gemm]), packed, SHAPE) == []
    assert audit(priced([*calls_of(table), products(packed)]), packed, SHAPE) != []


def test_a_whole_vocabulary_is_multiplied_on_every_tensor_device() -> None:
    run = replace(
        RUN, model=replace(MODEL, vocab_size=32_001), sharding=Sharding(sequence_parallel=False)
    )
    shape = MeshShape(fsdp=4, tensor=2)
    needed = products(run, shape)
    head = 3 * 2 * 16 * 512 * 512 * 32_001 / shape.devices
    once, twice = (
        audit(priced([*calls_of(expected_bytes(run, shape)), kernel], shape), run, shape)
        for kernel in (needed, replace(needed, flops=needed.flops + head))
    )
    assert [s.kind for s in once] == [PRODUCTS] and twice == []


def test_a_tied_table_that_is_summed_in_float32_is_recognised() -> None:
    run = replace(RUN, model=replace(MODEL, tied_embeddings=True))
    table = expected_bytes(run, SHAPE)
    table[SUM] += 2 * 32_000 * 512 / 4  # two bytes more for each element of the shard
    (discrepancy,) = found_in(table, run)
    assert (discrepancy.reason, discrepancy.seconds > 0) == (TIED_TABLE, True)
    table[SUM] *= 1.1
    assert [s.reason for s in found_in(table, run)] == [NOT_EXPLAINED]


def test_a_sum_outside_the_loop_over_microbatches_is_recognised() -> None:
    model = preset("gpt2-124m")  # whose vocabulary two devices do not divide
    run = replace(RUN, model=model, batch=Batch(64, 512, 4))
    shape = MeshShape(fsdp=4, tensor=2)
    table = expected_bytes(run, shape)
    table["tensor", "all-reduce"] /= 4
    (discrepancy,) = found_in(table, run, shape)
    assert (discrepancy.reason, discrepancy.seconds < 0) == (ONCE_PER_STEP, True)
    assert ", which saves " in str(discrepancy)


def test_collectives_that_the_compiler_repeats_are_recognised() -> None:
    repeated = call(*GATHER, 1e8, "all-gather.7.remat")
    steps = [*calls_of(expected_bytes(RUN, SHAPE)), repeated, products(RUN)]
    assert [s.reason for s in audit(priced(steps), RUN, SHAPE)] == [REMATERIALISED]


def test_on_cpus_sums_of_both_kinds_are_one() -> None:
    run = replace(RUN, precision=Precision(compute="fp32"))
    shape = MeshShape(data=2, fsdp=2, tensor=2)
    table = expected_bytes(run, shape)
    scattered = table.pop(("fsdp", "reduce-scatter"))
    table["fsdp", "all-reduce"] = scattered
    table["tensor", "all-reduce"] = 7 * table.pop(("tensor", "reduce-scatter"))
    program = priced([*calls_of(table), products(run, shape)], shape)
    assert len(audit(program, run, shape)) == 4
    host = replace(program, cluster=catalog.load("host"))
    assert audit(host, run, shape) == []
    table["fsdp", "all-reduce"] *= 2
    program = priced([*calls_of(table), products(run, shape)], shape)
    (discrepancy,) = audit(replace(program, cluster=host.cluster), run, shape)
    assert (discrepancy.axes, discrepancy.kind, discrepancy.expected) == ("fsdp", "sum", scattered)


# Compiled. Toys of two layers, whose matrices are large enough for calls of 64 KiB.


@pytest.fixture
def compiled(tmp_path, monkeypatch):
    """Discrepancies of a run's step on a mesh and cluster; the cache is the test's own."""
    from scaling.training.program import program_of_run

    monkeypatch.setenv("SCALING_CACHE", str(tmp_path))

    def compile_(run: Run, shape: MeshShape, cluster: Cluster = H100) -> list:
        program, _ = program_of_run(run, shape, cluster)
        on_h100 = price(program, H100, ideal())
        return audit(replace(on_h100, cluster=cluster), run, shape)

    return compile_


@pytest.mark.deviceless
def test_a_step_that_does_not_fit_is_told(compiled) -> None:
    """Two layers keep about 90 GB of a million tokens without remat."""
    model = replace(preset("gpt2-124m"), n_layers=2, tied_embeddings=False, max_positions=4096)
    run = Run("large", model, Batch(256, 4096))
    reasons = [s.reason for s in compiled(run, MeshShape())]
    assert REMATERIALISED in reasons


# --- experts' buffers ---------------------------------------------------------------------------


def test_buffers_of_experts_cost_their_empty_rows() -> None:
    """1,024 tokens on a device over expert=4: room for 4 x 2 x 1,024 rows where 2 x 1,024 are
    filled; two experts on a device, tiles of 512 rows, one beyond the rows for each. Three matrices
    512 x 512, two layers, forward and backward."""
    moe = Moe(8, 2, d_ff_expert=512, first_dense_layers=2)
    model = ModelConfig(2048, 512, 4, 8, 1024, moe=moe)
    run, shape = Run("m", model, Batch(16, 512)), MeshShape(data=2, expert=4)
    filled = 3 * 2 * 2048 * 512 * 512 * 3 * 2
    assert buffer_flops(run, shape) == {TILES: (4 + 2 / 4 - 1) * filled}
    exact = replace(moe, capacity_factor=1.0)
    padded = replace(run, model=replace(model, moe=exact))
    assert buffer_flops(padded, shape) == {BUFFERS: 0}
    assert buffer_flops(replace(run, model=replace(model, moe=None)), shape) == {}


def test_only_what_changes_the_step_by_a_percent_is_noticeable() -> None:
    step = priced([products(RUN, SHAPE)], SHAPE)
    total = step.timeline.total
    small, saving = (
        Discrepancy("fsdp", "all-gather", 1.0, 2.0, 1, (), NOT_EXPLAINED, share * total)
        for share in (0.0099, -0.011)
    )
    assert noticeable([small, saving], step) == [saving]
